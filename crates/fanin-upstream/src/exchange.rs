//! What one attempt sent, and what it was answered: as a transport sees it, and as [`Stub`](crate::Stub) gives it back.

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};

use crate::answer_headers::Headers;
use crate::error_kind::ErrorKind;

/// One attempt's request and answer.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// The operation, by its index in the upstream's configuration.
    pub operation: Option<u32>,
    /// HTTP method; POST or GET for a statement, a gRPC method or a model.
    pub method: Method,
    /// Path and query, without the path of the upstream's URL.
    pub path_and_query: String,
    /// The headers of the call.
    pub headers: HeaderMap,
    /// The body. For gRPC, databases and models: the message or the parameters as JSON.
    pub body: Bytes,
    /// Whether it changes nothing at the backend.
    pub safe: bool,
    /// How it ended.
    pub end: ExchangeEnd,
}

/// How an exchange ended.
#[derive(Clone, Debug)]
pub enum ExchangeEnd {
    /// It was cancelled, or runs still.
    Open,
    /// The answer.
    Answer {
        /// Status.
        status: StatusCode,
        /// Headers.
        headers: Headers,
        /// The body, as the upstream encoded it.
        body: Bytes,
    },
    /// No answer.
    Failed {
        /// The kind of failure.
        kind: ErrorKind,
        /// Its text.
        detail: String,
    },
    /// The body of the request or of the answer is passed on without being collected.
    Streamed,
}
