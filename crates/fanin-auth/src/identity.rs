//! Who sends a request.

use arcstr::ArcStr;
use fanin_json::Doc;

/// Who sends a request, as its credentials prove.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The name of an API key, or a claim of a token.
    pub principal: Option<ArcStr>,
    /// The claims of a token: a JSON object.
    pub claims: Option<Doc>,
}
