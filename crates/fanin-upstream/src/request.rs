//! Requests and answers of calls.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fanin_tracecontext::CallParent;
use http::{HeaderMap, Method, StatusCode};
use tokio::time::Instant;

use crate::Headers;
use crate::attempt_log::AttemptLog;

/// One request to an upstream, without what the upstream's configuration adds.
#[derive(Clone, Debug)]
pub struct Request {
    /// HTTP method.
    pub method: Method,
    /// Path and query, percent-encoded, with a leading `/`. Appended to the path of the endpoint's URL.
    pub path_and_query: String,
    /// Headers. `host`, `content-length` and hop-by-hop headers are not sent.
    pub headers: HeaderMap,
    /// The whole body; empty for none.
    pub body: Bytes,
}

impl Request {
    /// A GET request without headers of its own.
    pub fn get(path_and_query: impl Into<String>) -> Request {
        Request {
            method: Method::GET,
            path_and_query: path_and_query.into(),
            headers: HeaderMap::new(),
            body: Bytes::new(),
        }
    }
}

/// What a call inherits from the request that it serves.
#[derive(Clone, Debug)]
pub struct CallContext {
    /// When the request ends. Nothing of the call outlives it.
    pub deadline: Instant,
    /// When the request started. Waiting calls of older requests get permits first.
    pub request_started: Instant,
    /// How long this call may take. Default: the upstream's `timeout`.
    pub timeout: Option<Duration>,
    /// The call changes nothing at the upstream, so it may be sent more than once.
    pub safe: bool,
    /// The operation, by its index in the upstream's configuration. Its own policies apply.
    pub operation: Option<u32>,
    /// The call in its request's trace. Each attempt over HTTP or gRPC carries it.
    pub trace: Option<CallParent>,
    /// Where its attempts are noted, if somebody wants to see them.
    pub attempts: Option<Arc<AttemptLog>>,
}

impl CallContext {
    /// The context of a request that starts now. The call may change something, and has the upstream's timeout.
    pub fn new(deadline: Instant) -> CallContext {
        CallContext {
            deadline,
            request_started: Instant::now(),
            timeout: None,
            safe: false,
            operation: None,
            trace: None,
            attempts: None,
        }
    }

    /// The same context for a call that changes nothing.
    pub fn safe(mut self) -> CallContext {
        self.safe = true;
        self
    }
}

/// An upstream's answer with any status. Redirects are not followed. The caller decides which statuses are successes.
#[derive(Clone, Debug)]
pub struct Answer {
    /// HTTP status.
    pub status: StatusCode,
    /// Headers without hop-by-hop headers (RFC 9110, 7.6.1).
    pub headers: Headers,
    /// The whole body. An answer that comes with gzip, deflate, br or zstd, unasked, is decoded.
    pub body: Bytes,
    /// Time from the call's start to the last byte, waiting and retries included.
    pub elapsed: Duration,
    /// A 206 to a request without `Range`: a part that nothing requested is not taken for the whole.
    pub unrequested_part: bool,
}

impl Answer {
    /// Whether the status is a success for any caller: 2xx, without an unrequested 206.
    pub fn is_success(&self) -> bool {
        self.status.is_success() && !self.unrequested_part
    }
}
