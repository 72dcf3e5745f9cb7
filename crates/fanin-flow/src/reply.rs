//! The outcome of a flow: a response or an error, and what it used.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use fanin_lang::{Limit, Usage};
use fanin_push::Subscription;
use http::{HeaderMap, StatusCode};
use smallvec::SmallVec;

use crate::flow_error::FlowError;
use crate::flow_record::FlowRecord;
use crate::rpc_status::RpcStatus;

/// The outcome of a flow.
#[derive(Debug)]
pub struct Reply<B = ReplyBody> {
    /// What the client receives.
    pub result: Result<Success<B>, FlowError>,
    /// Calls made, whether sent or not.
    pub calls: u32,
    /// Wall time during which at least one call was in flight.
    pub upstream: Duration,
    /// Names of the upstreams whose optional calls failed, comma-separated; `None` if none did.
    pub partial: Option<String>,
    /// What the flow used of its limits.
    pub usage: Usage,
    /// The limit that stopped it.
    pub limit: Option<Limit>,
    /// Its calls, if they were recorded and there were any.
    pub record: Option<Arc<FlowRecord>>,
}

impl<B> Reply<B> {
    /// The same with another body, or an error in its place.
    pub(crate) fn map_body<C>(self, map: impl FnOnce(B) -> Result<C, FlowError>) -> Reply<C> {
        let Reply { result, calls, upstream, partial, usage, limit, record } = self;
        let result = result
            .and_then(|Success { status, headers, body, rpc }| Ok(Success { status, headers, body: map(body)?, rpc }));
        Reply { result, calls, upstream, partial, usage, limit, record }
    }
}

/// The bytes of a complete body, in pieces that follow one another.
pub(crate) type Pieces = SmallVec<[Bytes; 1]>;

/// A response.
#[derive(Debug)]
pub struct Success<B = ReplyBody> {
    /// Status.
    pub status: StatusCode,
    /// Headers, `content-type` among them.
    pub headers: HeaderMap,
    /// Body.
    pub body: B,
    /// What clients that call a method get besides, if the flow says more than that.
    pub rpc: Option<Box<RpcStatus>>,
}

/// The body of a response.
pub enum ReplyBody {
    /// In pieces that follow one another.
    Pieces(SmallVec<[Bytes; 1]>),
    /// Made while it is sent.
    Stream(Box<dyn ReplyStream>),
    /// The messages of a gRPC stream: lines or events over HTTP, messages over gRPC.
    Messages(Box<dyn MessageStream>),
    /// Events of channels: as a `text/event-stream`, which the headers say, or as messages.
    Events(Box<Subscription>),
}

impl ReplyBody {
    /// The pieces; `None` of a stream or of events.
    pub(crate) fn pieces(&self) -> Option<&[Bytes]> {
        match self {
            ReplyBody::Pieces(pieces) => Some(pieces),
            ReplyBody::Stream(_) | ReplyBody::Messages(_) | ReplyBody::Events(_) => None,
        }
    }

    /// All bytes in one piece; none of a stream or of events.
    pub fn concat(&self) -> Vec<u8> {
        match self {
            ReplyBody::Pieces(pieces) => pieces.concat(),
            ReplyBody::Stream(_) | ReplyBody::Messages(_) | ReplyBody::Events(_) => Vec::new(),
        }
    }
}

impl fmt::Debug for ReplyBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReplyBody::Pieces(pieces) => f.debug_tuple("Pieces").field(pieces).finish(),
            ReplyBody::Stream(_) => f.write_str("Stream"),
            ReplyBody::Messages(_) => f.write_str("Messages"),
            ReplyBody::Events(_) => f.write_str("Events"),
        }
    }
}

/// A body that is made while it is sent, on the flow's worker. It is polled when the client has room for more. Dropped before its end, the
/// client has left. It holds the request's permit for as long as it counts among the requests in flight.
pub trait ReplyStream: 'static {
    /// The next bytes; `None` at the end.
    ///
    /// # Errors
    /// [`Incomplete`]: the client must see that the body is not complete.
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Incomplete>>>;

    /// How many bytes will come, if that is known.
    fn exact_len(&self) -> Option<u64> {
        None
    }

    /// What the whole request used, for log and metrics. Called once, after the end or before the drop. The [`Reply`] with the stream
    /// then reports nothing.
    fn summary(&mut self) -> Option<Summary> {
        None
    }
}

/// A stream of messages, which it can also give one by one, as a route that serves gRPC needs them.
pub trait MessageStream: ReplyStream {
    /// The next message as JSON; `None` after the last one.
    ///
    /// # Errors
    /// Why there will be no further one. The failure is logged and counted.
    fn poll_message(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, FlowError>>>;
}

/// What a request used.
#[derive(Debug, Default)]
pub struct Summary {
    /// Calls made, whether sent or not.
    pub calls: u32,
    /// Wall time during which at least one call was in flight.
    pub upstream: Duration,
    /// Optional calls failed.
    pub partial: bool,
    /// What the flow used of its limits.
    pub usage: Usage,
    /// The limit that stopped it.
    pub limit: Option<Limit>,
    /// Its calls, if they were recorded and there were any.
    pub record: Option<Arc<FlowRecord>>,
}

/// A stream ended before its body was complete, for a reason that the log names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the response's body ended before it was complete: {0}")]
pub struct Incomplete(pub &'static str);
