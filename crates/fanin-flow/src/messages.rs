//! The messages of a streamed gRPC answer on their way to the client.
//!
//! Over HTTP each message is a line of JSON, as JSON lines or as the data of a server-sent event:
//!
//! | line | event | meaning |
//! |---|---|---|
//! | `{"message":…}` | `message` | one message |
//! | `{"done":true}` | `done` | the stream has ended with success |
//! | `{"error":{…}}` | `error` | it has failed: a problem document (RFC 9457) |

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use fanin_upstream::StreamedBody;

use crate::flow_error::FlowError;
use crate::progressive::Framing;
use crate::reply::{Incomplete, MessageStream, ReplyStream};

/// How messages are told from each other if the client names no format.
pub(crate) const DEFAULT: Framing = Framing::Lines("application/jsonl");

/// The framing that a flow chooses with `format`.
pub(crate) fn format(name: &str) -> Option<Framing> {
    match name {
        "jsonl" => Some(DEFAULT),
        "sse" => Some(Framing::Events),
        _ => None,
    }
}

/// The messages of a gRPC stream, taken one by one. Dropped before its end, it cancels the call.
pub(crate) struct Messages {
    body: Box<StreamedBody>,
    upstream: Arc<str>,
    framing: Framing,
    /// The mark of completion, or an error, is sent.
    ended: bool,
}

impl Messages {
    pub(crate) fn new(body: Box<StreamedBody>, upstream: &Arc<str>, framing: Framing) -> Messages {
        Messages { body, upstream: upstream.clone(), framing, ended: false }
    }
}

impl MessageStream for Messages {
    fn poll_message(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, FlowError>>> {
        self.body.poll_part(context).map_err(|kind| FlowError::upstream(&self.upstream, kind))
    }
}

impl ReplyStream for Messages {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Incomplete>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let next = ready!(self.poll_message(context));
        let pieces = match next {
            Some(Ok(ref json)) => self.framing.frame("message", b"{\"message\":", [json.clone()].into_iter().collect()),
            Some(Err(ref error)) => self.framing.error(error),
            None => self.framing.done(),
        };
        self.ended = !matches!(next, Some(Ok(_)));
        Poll::Ready(Some(Ok(pieces.concat().into())))
    }
}
