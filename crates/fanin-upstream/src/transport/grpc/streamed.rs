//! A stream of messages that is not collected: each becomes JSON when its reader takes it.
//!
//! What is not read stays within the stream's flow-control window: a part is read only when the parts before it hold no further message.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use prost_reflect::SerializeOptions;
use tokio::time::{Instant, timeout};

use super::answer::{Answer, Opened, decompressed};
use super::{SMALL, is_compressed, request};
use crate::endpoint::Endpoint;
use crate::error::{ErrorKind, Failure, Fault};
use crate::grpc::{self, Code, Frame, Method, Services, Status};
use crate::transport::attempt::{Attempt, Received};
use crate::transport::http2::{self, Http2, Lease, Window};
use crate::transport::part_source::{Ending, PartSource, SourceSlot};
use crate::transport::pool::Pool;

/// Sends a call, and leaves the messages of its answer in `slot`. An error that comes before the first message is the answer.
pub(super) async fn send(
    pool: &Rc<Pool<Http2>>,
    attempt: &Attempt<'_>,
    services: &Services,
    method: &Method,
    body: Bytes,
    slot: &SourceSlot,
) -> Result<Received, Failure> {
    if !method.is_server_streaming() {
        let full = method.full_name();
        return Err(Failure::ours(format!("{full} returns one message, and only a stream can be passed on")));
    }
    let exchange = async |lease: &Lease| {
        let window = Window::of(lease);
        let request = request(attempt, method.path())?;
        let (head, stream) = http2::send_request(lease, attempt, request, body.clone()).await?;
        Ok((head, stream, window))
    };
    let ((head, stream, window), lease) = http2::transact_on(pool, attempt, exchange).await?;
    let at = Instant::now();
    let answer = match Answer::open(head, stream, is_compressed(attempt), attempt.config.max_answer) {
        Opened::Ended { status, headers } => return Ok(ended(status, headers, slot, at)),
        Opened::Messages(answer) => answer,
    };
    let mut source = Source {
        answer,
        lease,
        endpoint: attempt.endpoint.clone(),
        method: method.clone(),
        shown: services.shown.clone(),
        max: attempt.config.max_answer,
        first: None,
        converting: None,
        end: None,
        _window: window,
    };
    // A server may accept the call long before it has a message. The answer begins without one then.
    let patience = attempt.deadline.saturating_duration_since(at) / 2;
    match timeout(patience, poll_fn(|cx| source.poll_message(cx))).await {
        Err(_) | Ok(None) => {}
        Ok(Some(Ok(message))) => source.first = Some(message),
        Ok(Some(Err(failure))) => {
            return match source.end {
                Some((status, trailers)) => Ok(ended(status, source.answer.all_headers(trailers), slot, at)),
                None => Err(failure),
            };
        }
    }
    let headers = source.answer.headers().clone();
    slot.put(source, None);
    Ok(Received { status: StatusCode::OK, headers: headers.into(), body: Bytes::new(), at })
}

/// An answer without messages. Its body says why.
fn ended(status: Status, mut headers: HeaderMap, slot: &SourceSlot, at: Instant) -> Received {
    if status.code == Code::OK {
        slot.put(Bytes::new(), Some(0));
        return Received { status: StatusCode::OK, headers: headers.into(), body: Bytes::new(), at };
    }
    let body = Bytes::from(status.refusal(&mut headers));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    slot.put(body.clone(), Some(body.len() as u64));
    Received { status: status.code.http(), headers: headers.into(), body: Bytes::new(), at }
}

type Converting = Pin<Box<dyn Future<Output = Result<Bytes, Failure>>>>;

/// Dropped before its end, it resets the stream.
struct Source {
    answer: Answer,
    lease: Lease,
    endpoint: Arc<Endpoint>,
    method: Method,
    shown: SerializeOptions,
    /// Most bytes of one message, also as JSON.
    max: usize,
    /// A message that was read ahead, to see that the call has not failed.
    first: Option<Bytes>,
    /// A message that is large or compressed.
    converting: Option<Converting>,
    end: Option<(Status, HeaderMap)>,
    _window: Window,
}

impl Source {
    fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Failure>>> {
        loop {
            if let Some(converting) = &mut self.converting {
                let message = ready!(converting.as_mut().poll(cx));
                self.converting = None;
                return Poll::Ready(Some(message));
            }
            match self.answer.next_message() {
                Ok(Some(Frame { is_compressed: false, bytes })) if bytes.len() <= SMALL => {
                    return Poll::Ready(Some(grpc::decode_one(&self.method, bytes, &self.shown, self.max)));
                }
                Ok(Some(frame)) => {
                    self.converting = Some(Box::pin(convert(self.method.clone(), self.shown.clone(), frame, self.max)));
                    continue;
                }
                Ok(None) => {}
                Err(failure) => return Poll::Ready(Some(Err(failure))),
            }
            if self.end.is_none() {
                match ready!(self.answer.poll_part(&self.lease, &self.endpoint, cx)) {
                    Ok(true) => continue,
                    Ok(false) => {}
                    Err(failure) => return Poll::Ready(Some(Err(failure))),
                }
                match ready!(self.answer.poll_end(&self.lease, &self.endpoint, cx)) {
                    Ok(end) => self.end = Some((end.status, end.trailers)),
                    Err(failure) => return Poll::Ready(Some(Err(failure))),
                }
            }
            return Poll::Ready(match &self.end {
                Some((status, _)) if status.code != Code::OK => Some(Err(failure(status))),
                _ => None,
            });
        }
    }
}

impl PartSource for Source {
    fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Failure>>> {
        match self.first.take() {
            Some(first) => Poll::Ready(Some(Ok(first))),
            None => self.poll_message(cx),
        }
    }

    fn ending(&mut self) -> Option<Ending> {
        let (Status { code, message }, trailers) = self.end.take()?;
        Some(Ending { code: code.name(), message, trailers })
    }
}

async fn convert(method: Method, shown: SerializeOptions, frame: Frame, max: usize) -> Result<Bytes, Failure> {
    let bytes = match frame.is_compressed {
        false => frame.bytes,
        true => decompressed(frame.bytes, max).await?,
    };
    grpc::convert(bytes.len(), move || grpc::decode_one(&method, bytes, &shown, max)).await?
}

/// The status of a stream that has sent messages. The fault is that of the same status as an answer.
#[cold]
fn failure(status: &Status) -> Failure {
    let http = status.code.http();
    let is_upstreams = http.is_server_error() && http != StatusCode::NOT_IMPLEMENTED;
    let mut failure = Failure::new(ErrorKind::Status, status.text());
    failure.fault = if is_upstreams { Fault::Upstream } else { Fault::Client };
    failure
}
