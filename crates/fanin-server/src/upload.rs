//! Request bodies that the application reads while they come.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::Body as _;
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep, sleep};

use crate::connection::ConnectionState;

/// A request's body, read from its connection as the application takes it: nothing is read ahead of that but what the connection's buffer
/// holds. `expect: 100-continue` is answered when the first part is polled. Dropped before its end, the connection ends with the response.
pub struct Upload {
    incoming: Incoming,
    conn: Rc<ConnectionState>,
    left: usize,
    limit: usize,
    idle_timeout: Duration,
    timer: Option<Pin<Box<Sleep>>>,
    /// The last poll waits for the client: the timer runs.
    waiting: bool,
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
    pub(crate) fn new(incoming: Incoming, conn: &Rc<ConnectionState>, limit: usize, idle_timeout: Duration) -> Upload {
        let conn = conn.clone();
        Upload { incoming, conn, left: limit, limit, idle_timeout, timer: None, waiting: false, ended: false }
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
                    return Poll::Ready(None);
                }
                Poll::Pending => {
                    let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(self.idle_timeout)));
                    // Time in which nobody asked for a part is not the client's.
                    if !std::mem::replace(&mut self.waiting, true) {
                        timer.as_mut().reset(Instant::now() + self.idle_timeout);
                    }
                    return timer.as_mut().poll(cx).map(|()| Some(Err(UploadError::Timeout)));
                }
            };
            // Trailers are ignored.
            let Ok(data) = frame.into_data() else { continue };
            self.waiting = false;
            let Some(left) = self.left.checked_sub(data.len()) else {
                return Poll::Ready(Some(Err(UploadError::TooLarge { limit: self.limit })));
            };
            self.left = left;
            if !data.is_empty() {
                return Poll::Ready(Some(Ok(data)));
            }
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
