//! A request that has ended, with its calls: what spans are made from.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fanin_tracecontext::{SpanId, TraceContext, TraceId};
use http::{Method, Version};

/// A request that has ended.
#[derive(Debug)]
pub struct RequestRecord {
    /// Its part of the trace.
    pub context: Arc<TraceContext>,
    /// When it arrived.
    pub started: SystemTime,
    /// From its arrival to the end of its response.
    pub duration: Duration,
    /// Its method.
    pub method: Method,
    /// Its path, without the query, which may hold secrets.
    pub path: String,
    /// Whether it came over TLS.
    pub secure: bool,
    /// The pattern of its route's path, if one matched.
    pub route: Option<Arc<str>>,
    /// The gRPC method that it called, if its route serves one.
    pub rpc: Option<Arc<str>>,
    /// Its status; 499 if the client left.
    pub status: u16,
    /// The client.
    pub client: SocketAddr,
    /// The protocol.
    pub version: Version,
    /// Its calls.
    pub calls: Vec<CallRecord>,
}

/// A call of a request. Times count from the request's start.
#[derive(Debug)]
pub struct CallRecord {
    /// Its number, which its spans' ids follow from.
    pub number: u32,
    /// What it called.
    pub upstream: Arc<UpstreamRecord>,
    /// The operation or statement.
    pub operation: Option<Arc<str>>,
    /// Method and path: `GET /products/7?a=b`.
    pub target: String,
    /// File and line: `flows/shop.star:12`.
    pub line: String,
    /// When it was sent.
    pub sent: Duration,
    /// When it ended. `None`: it was cancelled, at the latest at the end of its request.
    pub ended: Option<Duration>,
    /// A status, or the kind of an error.
    pub outcome: String,
    /// In which way others did its work, if they did.
    pub shared: Option<&'static str>,
    /// The call of this request that did its work.
    pub done_by: Option<u32>,
    /// The call, perhaps of another request, that made the request that this one shared.
    pub made_by: Option<(TraceId, SpanId)>,
    /// What was sent for it, if that was recorded.
    pub attempts: Vec<AttemptRecord>,
}

/// A request that was sent for a call.
#[derive(Debug)]
pub struct AttemptRecord {
    /// `first`, `retry`, `hedge` or `probe`.
    pub kind: String,
    /// Its number in the trace.
    pub number: u32,
    /// When it began.
    pub begun: Duration,
    /// When it ended.
    pub ended: Option<Duration>,
    /// Address and port.
    pub endpoint: Option<String>,
    /// A status, or the kind of an error.
    pub outcome: String,
}

/// An upstream.
#[derive(Debug)]
pub struct UpstreamRecord {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// `http` or `https`.
    pub scheme: String,
    /// Its host, as configured.
    pub host: String,
    /// Its port.
    pub port: Option<u16>,
    /// The database.
    pub namespace: Option<String>,
}

/// What an upstream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// HTTP.
    Http,
    /// gRPC.
    Grpc,
    /// A database, by the name that the semantic conventions give it.
    Database(&'static str),
    /// In this process: files, models.
    Local,
}
