//! Who sends a request.

use arcstr::ArcStr;
use fanin_json::Doc;

/// Who sends a request, as far as it was checked before its flow.
#[derive(Clone, Debug, Default)]
pub struct ClientIdentity {
    /// `req.principal`.
    pub principal: Option<ArcStr>,
    /// `req.claims`: an object.
    pub claims: Option<Doc>,
    /// `req.auth`: what the flow before has returned.
    pub auth: Option<Doc>,
    /// `req.client`: the client's certificate, an object.
    pub client: Option<Doc>,
}
