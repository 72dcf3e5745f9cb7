//! One attempt of a call, as each transport gets it, and the answer that it returns.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fanin_tracecontext::{SpanId, TRACEPARENT, TRACESTATE, TraceContext};
use http::uri::{PathAndQuery, Uri};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use tokio::time::Instant;

use crate::answer_headers::Headers;
use crate::attempt_log::Attempted;
use crate::endpoint::Endpoint;
use crate::error::Failure;
use crate::grpc::Services;
use crate::headers;
use crate::metrics::Shard;
use crate::request::Request;

use super::part_source::SourceSlot;
use super::upload::UploadSlot;

/// What a call is doing. A timeout's error names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Waiting,
    Resolving,
    Connecting,
    Sent,
    Answering,
    Pausing,
    Decoding,
}

impl Phase {
    pub fn describe(self) -> &'static str {
        match self {
            Phase::Waiting => "waiting for a permit of the limit",
            Phase::Resolving => "the host name is not resolved yet",
            Phase::Connecting => "no connection yet",
            Phase::Sent => "no answer",
            Phase::Answering => "the answer is not complete",
            Phase::Pausing => "waiting before a retry",
            Phase::Decoding => "the answer is not decompressed",
        }
    }
}

/// A request whose parts have been checked, so that every attempt of it can be built.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub method: Method,
    pub path: PathAndQuery,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Prepared {
    pub fn new(request: Request) -> Result<Prepared, Failure> {
        let Request { method, path_and_query, headers, body } = request;
        if !path_and_query.starts_with('/') {
            return Err(Failure::ours(format!("path {path_and_query:?} does not start with a slash")));
        }
        let path = PathAndQuery::from_maybe_shared(Bytes::from(path_and_query))
            .map_err(|error| Failure::ours(format!("path cannot be sent: {error}")))?;
        Ok(Prepared { method, path, headers, body })
    }
}

/// One attempt of a call at one endpoint.
#[derive(Debug)]
pub(crate) struct Attempt<'a> {
    pub request: &'a Prepared,
    pub endpoint: &'a Arc<Endpoint>,
    pub config: &'a fanin_config::Upstream,
    /// The services of a gRPC upstream.
    pub services: Option<&'a Services>,
    pub age: Instant,
    /// When the attempt started.
    pub begun: Instant,
    pub deadline: Instant,
    pub safe: bool,
    /// The operation, by its index in the configuration.
    pub operation: Option<u32>,
    pub max_answer: usize,
    pub chunk_timeout: Option<Duration>,
    pub timeout_header: Option<&'a HeaderName>,
    /// The trace of the request that it serves, and its own span in it.
    pub trace: Option<(&'a TraceContext, SpanId)>,
    pub phase: &'a Cell<Phase>,
    pub metrics: &'a Shard,
    /// Where it is noted, if a log of attempts is kept.
    pub noted: Option<&'a Attempted>,
    /// Where the body goes if it is not collected.
    pub source: Option<&'a SourceSlot>,
    /// How long such a body may take, if that is bounded.
    pub stream_timeout: Option<Duration>,
    /// The request's body, if it is not collected.
    pub upload: Option<&'a Rc<UploadSlot>>,
}

impl Attempt<'_> {
    fn headers(&self) -> HeaderMap {
        let mut headers = headers::outgoing(&self.endpoint.origin.default_headers, &self.request.headers);
        if let Some(name) = self.timeout_header {
            headers.insert(name.clone(), headers::remaining(self.deadline.saturating_duration_since(Instant::now())));
        }
        if let Some((trace, span)) = self.trace {
            headers.remove(TRACESTATE);
            // Hexadecimal digits and dashes.
            if let Ok(parent) = HeaderValue::from_bytes(&trace.traceparent(span)) {
                headers.insert(TRACEPARENT, parent);
            }
            if let Some(state) = trace.state() {
                headers.insert(TRACESTATE, state.clone());
            }
        }
        headers
    }

    fn path(&self) -> Result<PathAndQuery, Failure> {
        let base = &self.endpoint.origin.base_path;
        if base.is_empty() {
            return Ok(self.request.path.clone());
        }
        PathAndQuery::try_from(format!("{base}{}", self.request.path))
            .map_err(|error| Failure::ours(format!("path cannot be sent: {error}")))
    }

    pub fn http2_request(&self) -> Result<http::Request<()>, Failure> {
        self.http2_request_of(self.request.method.clone(), self.path()?)
    }

    /// The same request with another method and path.
    pub fn http2_request_of(&self, method: Method, path: PathAndQuery) -> Result<http::Request<()>, Failure> {
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(self.endpoint.origin.scheme.clone());
        parts.authority = Some(self.endpoint.origin.authority.clone());
        parts.path_and_query = Some(path);
        let mut request = http::Request::new(());
        *request.method_mut() = method;
        *request.uri_mut() =
            Uri::from_parts(parts).map_err(|error| Failure::ours(format!("URL cannot be sent: {error}")))?;
        *request.headers_mut() = self.headers();
        *request.version_mut() = http::Version::HTTP_2;
        Ok(request)
    }
}

/// A complete answer.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub status: StatusCode,
    pub headers: Headers,
    pub body: Bytes,
    /// When its last byte was received.
    pub at: Instant,
}
