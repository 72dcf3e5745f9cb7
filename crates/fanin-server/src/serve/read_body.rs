//! A request's body, read to its end under its limit.

use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http_body::Body as _;
use hyper::body::Incoming;
use tokio::time::Instant;

use crate::connection::ConnectionState;
use crate::sender_rate::SenderRate;

/// Most bytes reserved because of `Content-Length` alone. When as many have come, the whole is reserved: growing step by step would copy
/// a large body twice. Memory that is reserved and not yet written takes up addresses only.
const MAX_RESERVED: usize = 64 << 10;

/// Bytes that are read and copied at a time. Then the worker looks at its sockets: several large bodies at once must not hold it.
const SLICE: usize = 64 << 10;

/// A body being read. One that arrives in a single piece is not copied.
#[derive(Debug)]
pub(super) struct ReadBody {
    incoming: Incoming,
    limit: usize,
    first: Bytes,
    rest: BytesMut,
    rate: SenderRate,
    due: Option<Instant>,
}

/// Why there is no body.
#[derive(Debug)]
pub(super) enum BodyError {
    TooLarge,
    /// It came slower than the minimum rate.
    TooSlow,
    Broken(hyper::Error),
}

impl ReadBody {
    pub(super) fn new(
        incoming: Incoming,
        limit: usize,
        conn: &Rc<ConnectionState>,
        server: &fanin_config::Server,
    ) -> ReadBody {
        let rate = SenderRate::new(conn, server);
        ReadBody { incoming, limit, first: Bytes::new(), rest: BytesMut::new(), rate, due: None }
    }

    /// Bytes that come with these `len`, as far as the client has said so.
    fn announced(&self, len: usize) -> usize {
        let room = self.limit - self.first.len() - self.rest.len();
        usize::try_from(self.incoming.size_hint().lower()).unwrap_or(usize::MAX).saturating_add(len).min(room)
    }

    /// After a poll that was pending: when to poll again at the latest.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Bytes, BodyError>> {
        let mut read = 0;
        loop {
            if read >= SLICE {
                self.due = None;
                return yield_to_sockets(cx);
            }
            let frame = match Pin::new(&mut self.incoming).poll_frame(cx) {
                Poll::Ready(Some(frame)) => frame.map_err(BodyError::Broken)?,
                Poll::Ready(None) => break,
                Poll::Pending => match self.rate.wait(Instant::now()) {
                    Err(_) => return Poll::Ready(Err(BodyError::TooSlow)),
                    Ok(due) => {
                        self.due = due;
                        return Poll::Pending;
                    }
                },
            };
            // Trailers are ignored.
            let Ok(data) = frame.into_data() else { continue };
            self.rate.came(data.len());
            read += data.len();
            if self.first.len() + self.rest.len() + data.len() > self.limit {
                return Poll::Ready(Err(BodyError::TooLarge));
            }
            if self.first.is_empty() && self.rest.is_empty() {
                self.first = data;
                continue;
            }
            if self.rest.is_empty() {
                let announced = self.announced(data.len()) + self.first.len();
                self.rest.reserve(announced.min(MAX_RESERVED));
                self.rest.extend_from_slice(&std::mem::take(&mut self.first));
            }
            if self.rest.len() + data.len() > self.rest.capacity() {
                self.rest.reserve(self.announced(data.len()));
            }
            self.rest.extend_from_slice(&data);
        }
        let whole = if self.rest.is_empty() { std::mem::take(&mut self.first) } else { self.rest.split().freeze() };
        Poll::Ready(Ok(whole))
    }
}

/// Pending; the task is woken when the runtime has polled the sockets. Waking it at once would put it in front of them.
fn yield_to_sockets<T>(cx: &mut Context<'_>) -> Poll<T> {
    match pin!(tokio::task::yield_now()).poll(cx) {
        // It yields on its first poll.
        Poll::Ready(()) | Poll::Pending => Poll::Pending,
    }
}
