//! A body of HTTP/2 that is read as its reader takes it. What is not read stays within the stream's flow-control window.

use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::RecvStream;
use http::header::CONTENT_LENGTH;
use tokio::time::Instant;

use super::{Http2, Http2Connection, Lease, poll_part, send_request, transact_on};
use crate::endpoint::Endpoint;
use crate::error::{ErrorKind, Failure};
use crate::headers::strip_hop_by_hop;
use crate::transport::attempt::{Attempt, Received};
use crate::transport::body::too_large;
use crate::transport::part_source::{PartSource, SourceSlot};
use crate::transport::pool::Pool;

/// Sends one request and leaves the body of its answer in `slot`.
pub(super) async fn send(
    pool: &Rc<Pool<Http2>>,
    attempt: &Attempt<'_>,
    slot: &SourceSlot,
) -> Result<Received, Failure> {
    let exchange = async |lease: &Lease| {
        let window = Window::of(lease);
        let body = attempt.request.body.clone();
        let (head, stream) = send_request(lease, attempt, attempt.http2_request()?, body).await?;
        Ok((head, stream, window))
    };
    let ((head, stream, window), lease) = transact_on(pool, attempt, exchange).await?;
    let mut headers = head.headers;
    let announced = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    // An answer to HEAD announces a body that does not come.
    let announced = if stream.is_end_stream() { Some(0) } else { announced };
    if announced.is_some_and(|length| length > attempt.max_answer as u64) {
        return Err(too_large(usize::try_from(announced.unwrap_or(0)).unwrap_or(usize::MAX), attempt.max_answer));
    }
    strip_hop_by_hop(&mut headers);
    let source = Source { stream, lease, endpoint: attempt.endpoint.clone(), announced, read: 0, _window: window };
    slot.put(source, announced);
    Ok(Received { status: head.status, headers: headers.into(), body: Bytes::new(), at: Instant::now() })
}

/// The part of the connection's window that belongs to one streamed answer.
pub(in crate::transport) struct Window(Rc<Http2Connection>);

impl Window {
    /// Made before the request, which wakes the connection.
    pub fn of(lease: &Lease) -> Window {
        let connection = &lease.connection;
        connection.streamed.set(connection.streamed.get() + 1);
        Window(connection.clone())
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        self.0.streamed.set(self.0.streamed.get() - 1);
    }
}

/// Dropped before its end, it resets the stream.
struct Source {
    stream: RecvStream,
    lease: Lease,
    endpoint: Arc<Endpoint>,
    announced: Option<u64>,
    /// Bytes of the body so far, for messages.
    read: u64,
    _window: Window,
}

impl PartSource for Source {
    fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Failure>>> {
        loop {
            let part = match ready!(poll_part(&self.lease, &self.endpoint, &mut self.stream, cx)) {
                Some(Ok(part)) => part,
                Some(Err(mut failure)) => {
                    failure.detail =
                        format!("the answer broke off after {} bytes: {}", self.read, failure.detail).into();
                    failure.unsent = false;
                    return Poll::Ready(Some(Err(failure)));
                }
                None => match self.announced {
                    // The library compares lengths too, unless the stream ends with trailers.
                    Some(length) if length != self.read => {
                        let (address, read) = (self.endpoint.address, self.read);
                        let detail = format!("{address}: the answer broke off after {read} of {length} bytes");
                        return Poll::Ready(Some(Err(Failure::new(ErrorKind::Protocol, detail))));
                    }
                    _ => return Poll::Ready(None),
                },
            };
            if !part.is_empty() {
                self.read += part.len() as u64;
                return Poll::Ready(Some(Ok(part)));
            }
        }
    }
}
