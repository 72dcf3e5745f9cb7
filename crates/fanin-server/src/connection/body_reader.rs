//! Reading the body of an HTTP/1.1 request into hyper's buffer.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};

use super::strict_head::HeadScanner;

/// Most bytes of a body that are read at a time. hyper's buffer grows to hundreds of kilobytes, which hold the worker for long.
pub(super) const MAX_BODY_READ: usize = 64 << 10;

/// As many last bytes of a body are read with the head that may come behind it.
pub(super) const BODY_END: usize = 8 << 10;

/// Reads bytes of a body straight into hyper's buffer, at most so many, and counts them.
pub(super) struct BodyReader<'a, S> {
    pub(super) stream: Pin<&'a mut S>,
    pub(super) head: &'a mut HeadScanner,
    pub(super) limit: usize,
}

impl<S: AsyncRead> AsyncRead for BodyReader<'_, S> {
    #[inline]
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.stream.as_mut().take(this.limit as u64)).poll_read(cx, buffer))?;
        this.head.pass(&buffer.filled()[before..]);
        Poll::Ready(Ok(()))
    }
}
