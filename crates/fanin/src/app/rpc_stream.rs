//! A route that serves a gRPC method which returns a stream passes on the stream of a gRPC upstream, one message at a time.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use fanin_flow::{FlowError, MessageStream, Reply, ReplyBody};
use fanin_server::{Aborted, BodyStream};
use fanin_upstream::grpc::{Method, Served, off_worker};
use http::StatusCode;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http_body::Frame;
use tokio::time::{Instant, Sleep, sleep_until};

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

const OK: u16 = 0;
const DEADLINE_EXCEEDED: u16 = 4;
const INTERNAL: u16 = 13;
const UNAVAILABLE: u16 = 14;

/// Larger messages are converted off the worker.
const SMALL: usize = 16 << 10;

/// Takes the stream out of a reply that succeeds.
pub(super) fn take(reply: &mut Reply) -> Option<Box<dyn MessageStream>> {
    let success = reply.result.as_mut().ok()?;
    match std::mem::replace(&mut success.body, ReplyBody::Pieces(Default::default())) {
        ReplyBody::Messages(messages) => Some(messages),
        other => {
            success.body = other;
            None
        }
    }
}

type Converting = Pin<Box<dyn Future<Output = Result<Bytes, String>>>>;

/// The messages as the route's method returns them, then the trailers. A message is read when the client takes it.
pub(super) struct Streamed {
    /// `None` after the end.
    messages: Option<Box<dyn MessageStream>>,
    served: Arc<Served>,
    method: Method,
    /// The route, for the log.
    line: String,
    /// The end of the time that the client gives its call.
    deadline: Option<Pin<Box<Sleep>>>,
    /// A large message.
    converting: Option<Converting>,
}

impl Streamed {
    pub(super) fn new(
        messages: Box<dyn MessageStream>,
        served: Arc<Served>,
        method: Method,
        line: &str,
        deadline: Option<Instant>,
    ) -> Streamed {
        let deadline = deadline.map(|deadline| Box::pin(sleep_until(deadline)));
        Streamed { messages: Some(messages), served, method, line: line.to_owned(), deadline, converting: None }
    }

    fn message(&mut self, converted: Result<Bytes, String>) -> Frame<Bytes> {
        converted.map_or_else(
            |what| {
                tracing::error!("{} serves {}: {what}", self.line, self.method.full_name());
                self.end(INTERNAL, "The flow failed: see the log of the server")
            },
            Frame::data,
        )
    }

    /// The trailers. What the upstream still sends is not read.
    fn end(&mut self, status: u16, message: &str) -> Frame<Bytes> {
        self.messages = None;
        let mut trailers = HeaderMap::with_capacity(2);
        trailers.insert(STATUS, HeaderValue::from(status));
        // The texts of errors are ASCII; another one would only be left out.
        if let (false, Ok(message)) = (message.is_empty(), HeaderValue::from_str(message)) {
            trailers.insert(MESSAGE, message);
        }
        Frame::trailers(trailers)
    }
}

impl BodyStream for Streamed {
    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Aborted>>> {
        if self.messages.is_some()
            && let Some(deadline) = &mut self.deadline
            && deadline.as_mut().poll(context).is_ready()
        {
            self.converting = None;
            return Poll::Ready(Some(Ok(self.end(DEADLINE_EXCEEDED, "the call's deadline has passed"))));
        }
        loop {
            if let Some(converting) = &mut self.converting {
                let converted = ready!(converting.as_mut().poll(context));
                self.converting = None;
                return Poll::Ready(Some(Ok(self.message(converted))));
            }
            let Some(messages) = &mut self.messages else { return Poll::Ready(None) };
            let json = match ready!(messages.poll_message(context)) {
                Some(Ok(json)) => json,
                Some(Err(FlowError { status, detail, .. })) => {
                    let code = if status == StatusCode::GATEWAY_TIMEOUT { DEADLINE_EXCEEDED } else { UNAVAILABLE };
                    return Poll::Ready(Some(Ok(self.end(code, &detail))));
                }
                None => return Poll::Ready(Some(Ok(self.end(OK, "")))),
            };
            if json.len() <= SMALL {
                let converted = self.served.message(&self.method, json);
                return Poll::Ready(Some(Ok(self.message(converted))));
            }
            let (served, method) = (self.served.clone(), self.method.clone());
            self.converting = Some(Box::pin(async move {
                let converted = off_worker(json.len(), move || served.message(&method, json)).await;
                converted.unwrap_or_else(|| Err("the thread for large messages has ended".to_owned()))
            }));
        }
    }
}
