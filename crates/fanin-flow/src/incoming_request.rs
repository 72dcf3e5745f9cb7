//! A request as the server passes it on.

use std::any::Any;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use arcstr::ArcStr;
use bytes::Bytes;
use fanin_tracecontext::TraceContext;
use http::{HeaderMap, HeaderValue, Method, Uri};
use tokio::time::Instant;

use crate::call_record::Detail;
use crate::client_identity::ClientIdentity;
use crate::upload::ClientUpload;

/// A request to a route, with its whole body.
pub struct IncomingRequest {
    /// Its number, by which records of other requests name it.
    pub number: u64,
    /// The id by which others know it, if the server has one besides the number.
    pub known_id: Option<HeaderValue>,
    /// Method.
    pub method: Method,
    /// Target.
    pub uri: Uri,
    /// Path parameters of the route, decoded.
    pub params: Vec<(ArcStr, ArcStr)>,
    /// Headers.
    pub headers: HeaderMap,
    /// Body. Empty if it is in `upload`.
    pub body: Bytes,
    /// The body if the route does not collect it.
    pub upload: Option<Box<dyn ClientUpload>>,
    /// The peer's address.
    pub remote: SocketAddr,
    /// Who sends it, if that was checked.
    pub identity: Option<Box<ClientIdentity>>,
    /// When the request arrived.
    pub start: Instant,
    /// Nothing runs for this request after it.
    pub deadline: Instant,
    /// Its trace, which its calls carry on.
    pub trace: Option<Arc<TraceContext>>,
    /// The permit of the server's limits. Held until the flow has ended, also if it continues after a disconnect.
    pub permit: Option<Box<dyn Any>>,
    /// How much of it is recorded. At least as much as of all requests of its worker.
    pub detail: Detail,
}

impl fmt::Debug for IncomingRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.uri)
    }
}
