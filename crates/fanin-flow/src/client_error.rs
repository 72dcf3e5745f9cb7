//! What is wrong with a request, found by a flow.

use std::sync::Arc;

use fanin_lang::{Failure, Kind, Stop};

/// An invalid request, found by a flow. The payload of its failure.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct ClientError(pub String);

/// The failure that the client's request causes: 400.
#[cold]
pub(crate) fn client_error(message: String) -> Stop {
    let payload = ClientError(message.clone());
    Failure::new(Kind::Host, message).with_payload(Arc::new(payload)).into()
}
