//! What a recording has. Numbers of fields are never used again for something else; readers skip those that they do not know.

use bytes::Bytes;
use prost::Message;

/// The first block: how the recording was made.
#[derive(Clone, PartialEq, Message)]
pub struct Header {
    /// Version of the program that wrote it.
    #[prost(string, tag = "1")]
    pub version: String,
    /// When it began, in microseconds since 1970.
    #[prost(uint64, tag = "2")]
    pub started_unix_us: u64,
    /// The share of requests that is recorded, from 0 to 1.
    #[prost(double, tag = "3")]
    pub share: f64,
    /// Headers whose values are removed.
    #[prost(string, repeated, tag = "4")]
    pub removed_headers: Vec<String>,
    /// The same of query parameters and fields of forms.
    #[prost(string, repeated, tag = "5")]
    pub removed_query: Vec<String>,
    /// The same of places in JSON.
    #[prost(string, repeated, tag = "6")]
    pub removed_json: Vec<String>,
    /// The tables that flows looked things up in when it began.
    #[prost(message, repeated, tag = "7")]
    pub tables: Vec<Exchange>,
}

/// The last block. A file without it is not complete.
#[derive(Clone, PartialEq, Message)]
pub struct Footer {
    /// Requests in the file.
    #[prost(uint64, tag = "1")]
    pub requests: u64,
    /// Requests that were to be recorded and are not, because the memory or the file was full.
    #[prost(uint64, tag = "2")]
    pub dropped: u64,
    /// Requests that a replay could not repeat, by reason: `REASON: NUMBER`.
    #[prost(string, repeated, tag = "3")]
    pub left_out: Vec<String>,
    /// When it ended, in microseconds since its beginning.
    #[prost(uint64, tag = "4")]
    pub took_us: u64,
    /// Values that were removed.
    #[prost(uint64, tag = "5")]
    pub removed: u64,
}

/// A header.
#[derive(Clone, PartialEq, Message)]
pub struct Pair {
    /// Its name in lower case.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its value.
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
}

/// A request. Times are in microseconds; those of calls count from its arrival.
#[derive(Clone, PartialEq, Message)]
pub struct Request {
    /// When it arrived, since the recording began.
    #[prost(uint64, tag = "1")]
    pub arrived_us: u64,
    /// How long it waited to be admitted, before its flow began.
    #[prost(uint64, tag = "2")]
    pub queued_us: u64,
    /// From its arrival to its response.
    #[prost(uint64, tag = "3")]
    pub took_us: u64,
    /// The method.
    #[prost(string, tag = "4")]
    pub method: String,
    /// Path and query.
    #[prost(string, tag = "5")]
    pub target: String,
    /// Headers.
    #[prost(message, repeated, tag = "6")]
    pub headers: Vec<Pair>,
    /// Body.
    #[prost(bytes = "bytes", tag = "7")]
    pub body: Bytes,
    /// The client's address and port.
    #[prost(string, tag = "8")]
    pub remote: String,
    /// Who sent it, if that was checked.
    #[prost(string, optional, tag = "9")]
    pub principal: Option<String>,
    /// The claims of its token, as JSON.
    #[prost(bytes = "bytes", optional, tag = "10")]
    pub claims: Option<Bytes>,
    /// Its time limit, if the client has set a shorter one than the route's.
    #[prost(uint64, optional, tag = "11")]
    pub timeout_us: Option<u64>,
    /// Its route.
    #[prost(string, tag = "12")]
    pub route: String,
    /// What it was answered.
    #[prost(message, optional, tag = "13")]
    pub response: Option<Response>,
    /// The calls of its flow, in program order.
    #[prost(message, repeated, tag = "14")]
    pub calls: Vec<Call>,
    /// The requests to upstreams that were made for it, and the answers that it shared with others.
    #[prost(message, repeated, tag = "15")]
    pub exchanges: Vec<Exchange>,
}

/// A response.
#[derive(Clone, PartialEq, Message)]
pub struct Response {
    /// Status.
    #[prost(uint32, tag = "1")]
    pub status: u32,
    /// Headers.
    #[prost(message, repeated, tag = "2")]
    pub headers: Vec<Pair>,
    /// Body.
    #[prost(bytes = "bytes", tag = "3")]
    pub body: Bytes,
    /// The body was too large to be recorded.
    #[prost(bool, tag = "4")]
    pub without_body: bool,
    /// Upstreams whose optional calls failed.
    #[prost(string, optional, tag = "5")]
    pub partial: Option<String>,
    /// The kind of error.
    #[prost(string, optional, tag = "6")]
    pub error: Option<String>,
}

/// A call of a flow.
#[derive(Clone, PartialEq, Message)]
pub struct Call {
    /// The upstream.
    #[prost(string, tag = "1")]
    pub upstream: String,
    /// The operation.
    #[prost(string, optional, tag = "2")]
    pub operation: Option<String>,
    /// HTTP method; empty if it was not sent.
    #[prost(string, tag = "3")]
    pub method: String,
    /// Path and query, without the keys of a batched operation.
    #[prost(string, tag = "4")]
    pub path: String,
    /// Body.
    #[prost(bytes = "bytes", tag = "5")]
    pub body: Bytes,
    /// Keys of a batched operation.
    #[prost(string, repeated, tag = "6")]
    pub keys: Vec<String>,
    /// Its status, or why it has none.
    #[prost(string, tag = "7")]
    pub outcome: String,
    /// With what it shared a request: empty, `cache`, `snapshot`, `single-flight`, `batch`.
    #[prost(string, tag = "8")]
    pub sharing: String,
    /// When it was made.
    #[prost(uint64, tag = "9")]
    pub made_us: u64,
    /// When it was sent.
    #[prost(uint64, optional, tag = "10")]
    pub sent_us: Option<u64>,
    /// When it ended.
    #[prost(uint64, optional, tag = "11")]
    pub ended_us: Option<u64>,
}

/// One request to an upstream, and what it was answered.
#[derive(Clone, PartialEq, Message)]
pub struct Exchange {
    /// The upstream.
    #[prost(string, tag = "1")]
    pub upstream: String,
    /// The operation.
    #[prost(string, optional, tag = "2")]
    pub operation: Option<String>,
    /// HTTP method.
    #[prost(string, tag = "3")]
    pub method: String,
    /// Path and query, without the path of the upstream's URL.
    #[prost(string, tag = "4")]
    pub path: String,
    /// Headers of the call.
    #[prost(message, repeated, tag = "5")]
    pub headers: Vec<Pair>,
    /// Body. For gRPC, databases and models: the message or the parameters as JSON.
    #[prost(bytes = "bytes", tag = "6")]
    pub body: Bytes,
    /// Whether it may change something.
    #[prost(bool, tag = "7")]
    pub effect: bool,
    /// When it was wanted, before it waited for a permit.
    #[prost(uint64, tag = "8")]
    pub wanted_us: u64,
    /// When it was sent.
    #[prost(uint64, tag = "9")]
    pub begun_us: u64,
    /// When its answer was complete.
    #[prost(uint64, optional, tag = "10")]
    pub ended_us: Option<u64>,
    /// The answer.
    #[prost(message, optional, tag = "11")]
    pub answer: Option<Answer>,
    /// The kind of failure, if there is no answer. Neither: it was cancelled.
    #[prost(string, optional, tag = "12")]
    pub failure: Option<String>,
    /// The failure's text.
    #[prost(string, optional, tag = "13")]
    pub detail: Option<String>,
    /// A request of another request of the server, or a cache, got this answer: what is here is the call's own part of it.
    #[prost(bool, tag = "14")]
    pub shared: bool,
    /// The call that it was made for, by its position.
    #[prost(uint32, tag = "15")]
    pub call: u32,
    /// The keys that a shared answer has the items of. With one key and `single`, the body is the item.
    #[prost(string, repeated, tag = "16")]
    pub keys: Vec<String>,
    /// See `keys`.
    #[prost(bool, tag = "17")]
    pub single: bool,
    /// The shared answer has no item for its key.
    #[prost(bool, tag = "18")]
    pub absent: bool,
}

/// The answer of an upstream.
#[derive(Clone, PartialEq, Message)]
pub struct Answer {
    /// Status.
    #[prost(uint32, tag = "1")]
    pub status: u32,
    /// Headers.
    #[prost(message, repeated, tag = "2")]
    pub headers: Vec<Pair>,
    /// Body.
    #[prost(bytes = "bytes", tag = "3")]
    pub body: Bytes,
}
