//! A recorded request and its response, before they are written.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fanin_flow::{ClientIdentity, FlowError, FlowRecord};
use http::{HeaderMap, Method, StatusCode, Uri};
use smallvec::SmallVec;
use tokio::time::Instant;

/// What was requested.
#[derive(Debug)]
pub(super) struct CapturedRequest {
    pub(super) route: Arc<str>,
    pub(super) method: Method,
    pub(super) uri: Uri,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    pub(super) remote: SocketAddr,
    pub(super) identity: Option<Box<ClientIdentity>>,
    pub(super) start: Instant,
    pub(super) queued: Duration,
    /// If it is shorter than the route's.
    pub(super) timeout: Option<Duration>,
    pub(super) has_upload: bool,
}

/// A request and its response.
#[derive(Debug)]
pub(super) struct Captured {
    pub(super) request: CapturedRequest,
    pub(super) took: Duration,
    pub(super) partial: Option<String>,
    pub(super) response: CapturedResponse,
    pub(super) record: Option<Arc<FlowRecord>>,
}

/// What was answered.
#[derive(Debug)]
pub(super) enum CapturedResponse {
    Success { status: StatusCode, headers: HeaderMap, body: Option<SmallVec<[Bytes; 1]>> },
    Error(FlowError),
}

impl Captured {
    /// Bytes that it keeps.
    pub(super) fn bytes(&self) -> usize {
        let headers =
            |map: &HeaderMap| map.iter().map(|(name, value)| name.as_str().len() + value.len()).sum::<usize>();
        let response = match &self.response {
            CapturedResponse::Success { headers: map, body, .. } => {
                headers(map) + body.iter().flatten().map(Bytes::len).sum::<usize>()
            }
            CapturedResponse::Error(_) => 0,
        };
        let calls = self.record.as_ref().map_or(0, |record| record.bytes() + record.len() * 1000);
        1000 + self.request.body.len() + headers(&self.request.headers) + response + calls
    }
}
