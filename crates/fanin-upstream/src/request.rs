//! What goes out and what comes back.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use tokio::time::Instant;

use crate::Headers;

/// One request to an upstream, without anything that the upstream's configuration adds.
#[derive(Clone, Debug)]
pub struct Request {
    /// HTTP method.
    pub method: Method,
    /// Path and query, percent-encoded, with a leading `/`. Appended to the path of the endpoint's URL.
    pub path_and_query: String,
    /// Headers. Hop-by-hop headers, `host` and `content-length` among them are not sent.
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
#[derive(Clone, Copy, Debug)]
pub struct CallContext {
    /// When the request ends. Nothing of the call outlives it.
    pub deadline: Instant,
    /// When the request started. Waiting calls of older requests go first.
    pub request_started: Instant,
    /// How long this call may take. Default: the upstream's `timeout`.
    pub timeout: Option<Duration>,
    /// The call changes nothing at the upstream, so that it may be sent more than once.
    pub safe: bool,
    /// The operation that is called: its place among the configuration's operations of the upstream. Its policies hold then.
    pub operation: Option<u32>,
}

impl CallContext {
    /// The context of a request that starts now: a call that may change something, with the upstream's timeout.
    pub fn new(deadline: Instant) -> CallContext {
        CallContext { deadline, request_started: Instant::now(), timeout: None, safe: false, operation: None }
    }

    /// The same for a call that changes nothing.
    pub fn safe(mut self) -> CallContext {
        self.safe = true;
        self
    }
}

/// What an upstream answered, with any status: redirects are not followed, and what counts as success is the caller's to say.
#[derive(Clone, Debug)]
pub struct Answer {
    /// HTTP status.
    pub status: StatusCode,
    /// Headers without those that concern only the connection (RFC 9110, 7.6.1).
    pub headers: Headers,
    /// The whole body. gzip and deflate are never asked for, and decoded if they come all the same.
    pub body: Bytes,
    /// Time from the call's start to the last byte, waiting and retries included.
    pub elapsed: Duration,
}
