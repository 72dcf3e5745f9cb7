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
use fanin_upstream::grpc::{DETAILS, code_named};
use fanin_upstream::{Ending, ErrorKind, StreamedBody};
use http::HeaderMap;

use crate::flow_error::FlowError;
use crate::progressive::Framing;
use crate::reply::{Incomplete, MessageStream, ReplyStream};
use crate::rpc_status::RpcStatus;

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

    #[cold]
    fn failure(&self, kind: ErrorKind) -> FlowError {
        let mut error = FlowError::upstream(&self.upstream, kind);
        error.rpc = self.body.ending().and_then(|ending| status(ending, &error.detail)).map(Box::new);
        error
    }
}

/// The status that a server has ended its stream with, for clients that call a method. What it says of a failure of its own, under codes that are
/// a 5xx in HTTP, is for the log: `detail` takes its place.
fn status(ending: &Ending, detail: &str) -> Option<RpcStatus> {
    let (code, http) = code_named(ending.code).filter(|(code, _)| *code != 0)?;
    if http.is_server_error() {
        return Some(RpcStatus { code, message: detail.to_owned(), ..RpcStatus::default() });
    }
    let details = ending.trailers.get(&DETAILS).map(|details| (DETAILS, details.clone()));
    let trailers = HeaderMap::from_iter(details);
    Some(RpcStatus { code, message: ending.message.clone(), trailers, ..RpcStatus::default() })
}

impl MessageStream for Messages {
    fn poll_message(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, FlowError>>> {
        self.body.poll_part(context).map_err(|kind| self.failure(kind))
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

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn what_a_server_says_of_the_request_reaches_the_client() {
        let ending = |code| {
            let mut trailers = HeaderMap::from_iter([(DETAILS, HeaderValue::from_static("CAU"))]);
            trailers.insert("x-secret", HeaderValue::from_static("1"));
            Ending { code, message: "its words".to_owned(), trailers }
        };
        let found = status(&ending("OUT_OF_RANGE"), "far: status").unwrap();
        assert_eq!((found.code, &*found.message, found.trailers.len()), (11, "its words", 1));
        assert_eq!(found.trailers[&DETAILS], "CAU");
        for (code, number) in [("INTERNAL", 13), ("UNAVAILABLE", 14), ("UNKNOWN", 2), ("DATA_LOSS", 15)] {
            let found = status(&ending(code), "far: status").unwrap();
            assert_eq!((found.code, &*found.message, found.trailers.len()), (number, "far: status", 0), "{code}");
        }
        assert_eq!(status(&ending("OK"), ""), None);
    }
}
