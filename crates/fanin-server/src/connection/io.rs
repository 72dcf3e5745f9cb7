//! The socket as hyper sees it, and what passes through it as [`Conn`] sees it.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::Conn;
use super::early;
use super::sniff::Prefix;

/// At most this much of a request that nobody reads is taken before the connection is closed the hard way.
const LINGER_BYTES: usize = 16 << 20;

/// Up to this many bytes are joined before they are written: `writev` costs the kernel more than the copy costs us.
const JOIN: usize = 4 << 10;

thread_local! {
    /// Where they are joined. Nothing stays in it.
    static JOINED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A socket with the bytes that were read to find out what it speaks.
pub(super) struct Io<S> {
    stream: TokioIo<S>,
    conn: Rc<Conn>,
    prefix: Prefix,
    /// What is written in place of hyper's own answer, and how much of it has been.
    early: Option<(Vec<u8>, usize)>,
    /// The writing half is closed; bytes taken since then.
    lingering: Option<usize>,
    /// What is written now has waited for the others of its lap.
    departs: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Io<S> {
    pub(super) fn new(stream: S, conn: Rc<Conn>, prefix: Prefix) -> Io<S> {
        Io { stream: TokioIo::new(stream), conn, prefix, early: None, lingering: None, departs: false }
    }

    /// The socket without hyper.
    pub(super) fn into_stream(self) -> S {
        self.stream.into_inner()
    }

    fn noted(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match &written {
            Poll::Ready(_) => self.conn.has_written(),
            Poll::Pending => self.conn.is_blocked(),
        }
        written
    }

    /// Responses leave together, as requests to upstreams do: behind whatever else is ready, so that most of them find a client
    /// awake that has just been woken for another. Pending once for each response but refusals.
    fn poll_departure(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.departs, true) || self.conn.takes_at_once() {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Writes our answer in place of hyper's own, whose bytes count as written when ours are. `None`: hyper's stands.
    fn poll_write_early(&mut self, cx: &mut Context<'_>, hypers: &[u8], len: usize) -> Option<Poll<io::Result<usize>>> {
        if self.early.is_none() {
            let (status, date) = early::status_of(hypers)?;
            self.early = Some((early::answer(status, date), 0));
            self.conn.answers_early();
        }
        let (answer, mut written) = self.early.take()?;
        while written < answer.len() {
            match Pin::new(&mut self.stream).poll_write(cx, &answer[written..]) {
                Poll::Ready(Ok(0)) => return Some(Poll::Ready(Err(io::ErrorKind::WriteZero.into()))),
                Poll::Ready(Ok(count)) => written += count,
                Poll::Ready(Err(error)) => return Some(Poll::Ready(Err(error))),
                Poll::Pending => {
                    self.early = Some((answer, written));
                    return Some(self.noted(Poll::Pending));
                }
            }
        }
        // Whatever hyper still has to say follows as it is.
        self.conn.owes();
        Some(self.noted(Poll::Ready(Ok(len))))
    }

    /// Reads and forgets until the client closes, so that our last answer is not lost in a reset.
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut scratch = [0; 4096];
        while let Some(taken) = self.lingering.filter(|taken| *taken < LINGER_BYTES) {
            let mut buffer = ReadBuf::new(&mut scratch);
            match ready!(Pin::new(self.stream.inner_mut()).poll_read(cx, &mut buffer)) {
                Ok(()) if !buffer.filled().is_empty() => self.lingering = Some(taken + buffer.filled().len()),
                _ => break,
            }
        }
        Poll::Ready(())
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Read for Io<S> {
    #[inline]
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, mut buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let prefix = this.prefix.take(buffer.remaining());
        if !prefix.is_empty() {
            buffer.put_slice(&prefix);
            return Poll::Ready(Ok(()));
        }
        ready!(Pin::new(&mut this.stream).poll_read(cx, buffer))?;
        this.conn.has_read();
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Write for Io<S> {
    #[inline]
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.conn.is_hypers_own()
            && let Some(written) = this.poll_write_early(cx, bytes, bytes.len())
        {
            return written;
        }
        ready!(this.poll_departure(cx));
        let written = Pin::new(&mut this.stream).poll_write(cx, bytes);
        this.noted(written)
    }

    #[inline]
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.conn.is_hypers_own()
            && let Some(head) = slices.first()
            && let Some(written) = this.poll_write_early(cx, head, slices.iter().map(|slice| slice.len()).sum())
        {
            return written;
        }
        ready!(this.poll_departure(cx));
        let written = if slices.iter().map(|slice| slice.len()).sum::<usize>() <= JOIN {
            JOINED.with_borrow_mut(|joined| {
                joined.clear();
                slices.iter().for_each(|slice| joined.extend_from_slice(slice));
                Pin::new(&mut this.stream).poll_write(cx, joined)
            })
        } else {
            Pin::new(&mut this.stream).poll_write_vectored(cx, slices)
        };
        this.noted(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    #[inline]
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.stream).poll_flush(cx);
        match &flushed {
            Poll::Ready(_) => {
                this.departs = false;
                this.conn.has_flushed();
            }
            // Under TLS, bytes may be kept back here.
            Poll::Pending => this.conn.is_blocked(),
        }
        flushed
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.lingering.is_none() {
            ready!(Pin::new(&mut this.stream).poll_shutdown(cx))?;
            this.lingering = Some(0);
            if this.conn.is_unread() {
                this.conn.lingers();
            }
        }
        if this.conn.is_unread() {
            ready!(this.poll_linger(cx));
        }
        Poll::Ready(Ok(()))
    }
}
