//! Request bodies that the application reads while they come.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::Body as _;
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::connection::{ConnectionState, HeldBack};
use crate::sender_rate::SenderRate;

/// A request's body, read from its connection as the application takes it: nothing is read ahead of that but what the connection's buffer
/// holds. `expect: 100-continue` is answered when the first part is polled. Dropped before its end, the connection ends with the response.
pub struct Upload {
    incoming: Incoming,
    conn: Rc<ConnectionState>,
    left: usize,
    limit: usize,
    idle_timeout: Duration,
    rate: SenderRate,
    /// Since when it waits for the client, by the connection's clock for sending. Time in which nobody asks for a part does not count.
    waits: Option<Instant>,
    /// While it does not wait for the client.
    held_back: Option<HeldBack>,
    timer: Option<Pin<Box<Sleep>>>,
    ended: bool,
}

/// Why an upload is not complete.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UploadError {
    /// It has more bytes than the route accepts.
    #[error("at most {limit} bytes are accepted")]
    TooLarge {
        /// The route's `max_body`.
        limit: usize,
    },
    /// No further part came in time.
    #[error("the body did not arrive in time")]
    Timeout,
    /// It came slower than `min_send_rate`, while the server waited for it.
    #[error("the body came slower than the minimum rate")]
    TooSlow,
    /// The client broke it off, or broke the protocol.
    #[error("the body could not be read: {0}")]
    Broken(String),
}

impl fmt::Debug for Upload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "upload, {} of {} bytes left", self.left, self.limit)
    }
}

impl Upload {
    pub(crate) fn new(
        incoming: Incoming,
        conn: &Rc<ConnectionState>,
        limit: usize,
        server: &fanin_config::Server,
    ) -> Upload {
        Upload {
            incoming,
            conn: conn.clone(),
            left: limit,
            limit,
            idle_timeout: server.body_timeout,
            rate: SenderRate::new(conn, server),
            waits: None,
            held_back: Some(HeldBack::new(conn)),
            timer: None,
            ended: false,
        }
    }

    /// Bytes of the whole body, if they are announced.
    pub fn announced(&self) -> Option<u64> {
        self.incoming.size_hint().exact()
    }

    /// The next part; `None` at the end. Not to be polled after that, or after an error.
    ///
    /// # Errors
    /// Why it is not complete.
    pub fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, UploadError>>> {
        loop {
            let frame = match Pin::new(&mut self.incoming).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => frame,
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(UploadError::Broken(error.to_string())))),
                Poll::Ready(None) => {
                    self.ended = true;
                    self.held_back = None;
                    return Poll::Ready(None);
                }
                Poll::Pending => return self.poll_wait(cx).map(|error| Some(Err(error))),
            };
            // Trailers are ignored.
            let Ok(data) = frame.into_data() else { continue };
            self.rate.came(data.len());
            let Some(left) = self.left.checked_sub(data.len()) else {
                return Poll::Ready(Some(Err(UploadError::TooLarge { limit: self.limit })));
            };
            self.left = left;
            if !data.is_empty() {
                self.waits = None;
                self.held_back.get_or_insert_with(|| HeldBack::new(&self.conn));
                return Poll::Ready(Some(Ok(data)));
            }
        }
    }

    /// Waits for the client. Ready when it is silent for too long, or too slow.
    fn poll_wait(&mut self, cx: &mut Context<'_>) -> Poll<UploadError> {
        self.held_back = None;
        loop {
            let now = Instant::now();
            let clock = self.conn.sending_clock(now);
            let silent = clock.saturating_duration_since(*self.waits.get_or_insert(clock));
            let Some(left) = self.idle_timeout.checked_sub(silent).filter(|left| !left.is_zero()) else {
                return Poll::Ready(UploadError::Timeout);
            };
            let Ok(due) = self.rate.wait(now) else { return Poll::Ready(UploadError::TooSlow) };
            let due = due.map_or(now + left, |due| due.min(now + left));
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(due)));
            if timer.deadline() != due {
                timer.as_mut().reset(due);
            }
            ready!(timer.as_mut().poll(cx));
        }
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if !self.ended && !self.incoming.is_end_stream() {
            self.conn.mark_unread();
        }
    }
}
