//! A connection's socket, and when what is written on it leaves: what a worker writes in one lap leaves together.
//!
//! A response that is written as soon as it is made finds its client asleep as a rule, since the worker computes for a while between
//! any two: the kernel wakes the client, which costs the sender more than the sending, and it falls asleep again before the next.
//! Written behind whatever else is ready, one after the other, most find it awake. So what is short is copied, and one task of the
//! worker writes it for all connections; what is long is written by its own.

use std::cell::{Cell, RefCell};
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;

use super::Conn;

/// Most that waits on one connection.
const MOST: usize = 16 << 10;

/// Room for the bytes of a lap beyond this is given back after it.
const MAX_KEPT: usize = 256 << 10;

/// What waits to be written by a worker.
#[derive(Default)]
pub(crate) struct Departures {
    waiting: RefCell<Waiting>,
    /// Empty, with the room of the lap before.
    spare: RefCell<Waiting>,
    first: Notify,
}

#[derive(Default)]
struct Waiting {
    entries: Vec<(Rc<dyn Departs>, Range<usize>)>,
    /// Of all entries, one behind the other.
    bytes: Vec<u8>,
}

/// What bytes leave on.
trait Departs {
    fn depart(&self, bytes: &[u8]);
}

impl Departures {
    /// Writes what waits, for ever, each time behind whatever else is ready.
    pub(crate) async fn run(self: Rc<Departures>) {
        loop {
            self.first.notified().await;
            let mut waiting = self.waiting.replace(self.spare.take());
            for (on, range) in waiting.entries.drain(..) {
                on.depart(&waiting.bytes[range]);
            }
            waiting.bytes.clear();
            waiting.bytes.shrink_to(MAX_KEPT);
            self.spare.replace(waiting);
        }
    }

    /// Has what `write` appends leave on `on`, if it gives `true`. Gives how many bytes that are.
    fn push(&self, on: &Rc<impl Departs + 'static>, write: impl FnOnce(&mut Vec<u8>) -> bool) -> Option<usize> {
        let waiting = &mut *self.waiting.borrow_mut();
        let begin = waiting.bytes.len();
        if !write(&mut waiting.bytes) {
            waiting.bytes.truncate(begin);
            return None;
        }
        let range = begin..waiting.bytes.len();
        let len = range.len();
        waiting.entries.push((on.clone(), range));
        if waiting.entries.len() == 1 {
            self.first.notify_one();
        }
        Some(len)
    }
}

/// See the module. Shared by hyper, by the connection's task and by the task that writes; each borrows the socket for a moment.
pub(super) struct Line<S> {
    stream: RefCell<S>,
    conn: Rc<Conn>,
    departures: Rc<Departures>,
    /// Bytes among the departures.
    queued: Cell<usize>,
    rest: RefCell<Rest>,
}

/// What the connection's task goes on with.
enum Rest {
    Nothing,
    /// What the socket has not taken at its departure, and how much of that it has taken since.
    Bytes(Vec<u8>, usize),
    /// It takes nothing any more.
    Failed(io::ErrorKind),
}

impl<S: AsyncRead + AsyncWrite + Unpin + 'static> Line<S> {
    pub(super) fn new(stream: S, conn: Rc<Conn>, departures: Rc<Departures>) -> Rc<Line<S>> {
        let (stream, queued, rest) = (RefCell::new(stream), Cell::new(0), RefCell::new(Rest::Nothing));
        Rc::new(Line { stream, conn, departures, queued, rest })
    }

    /// The socket, for a moment.
    #[inline]
    pub(super) fn with<R>(&self, run: impl FnOnce(Pin<&mut S>) -> R) -> R {
        run(Pin::new(&mut *self.stream.borrow_mut()))
    }

    /// Whether so many bytes more may wait.
    #[inline]
    pub(super) fn has_room(&self, len: usize) -> bool {
        self.queued.get() + len <= MOST && matches!(*self.rest.borrow(), Rest::Nothing)
    }

    /// Has what `write` appends leave with the others of this lap, if it gives `true`.
    #[inline]
    pub(super) fn push(self: &Rc<Self>, write: impl FnOnce(&mut Vec<u8>) -> bool) -> bool {
        let pushed = self.departures.push(self, write);
        self.queued.set(self.queued.get() + pushed.unwrap_or(0));
        pushed.is_some()
    }

    /// Whether something waits for its departure, which is not the caller's to hurry.
    #[inline]
    pub(super) fn is_queued(&self) -> bool {
        self.queued.get() > 0
    }

    /// Ready when nothing is before what is written now.
    pub(super) fn poll_clear(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.is_queued() {
            // It leaves before this task runs again.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.poll_rest(cx)
    }

    /// Ready when nothing is left that the socket had no room for; an error once what has left was not taken.
    #[inline]
    pub(super) fn poll_rest(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut rest = self.rest.borrow_mut();
        let (bytes, written) = match &mut *rest {
            Rest::Nothing => return Poll::Ready(Ok(())),
            Rest::Failed(kind) => return Poll::Ready(Err((*kind).into())),
            Rest::Bytes(bytes, written) => (bytes, written),
        };
        let result = ready!(self.poll_write_all(cx, bytes, written));
        *rest = result.as_ref().map_or_else(|error| Rest::Failed(error.kind()), |()| Rest::Nothing);
        Poll::Ready(result)
    }

    fn poll_write_all(&self, cx: &mut Context<'_>, bytes: &[u8], written: &mut usize) -> Poll<io::Result<()>> {
        let mut stream = self.stream.borrow_mut();
        while *written < bytes.len() {
            match Pin::new(&mut *stream).poll_write(cx, &bytes[*written..]) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(count)) => {
                    *written += count;
                    self.conn.has_written();
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    self.conn.is_blocked();
                    return Poll::Pending;
                }
            }
        }
        // Under TLS, bytes may be kept back until here.
        let flushed = Pin::new(&mut *stream).poll_flush(cx);
        if flushed.is_pending() {
            self.conn.is_blocked();
        }
        flushed
    }

    /// Closes the writing half once everything has left.
    pub(super) fn poll_shutdown(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_clear(cx))?;
        Pin::new(&mut *self.stream.borrow_mut()).poll_shutdown(cx)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + 'static> Departs for Line<S> {
    fn depart(&self, bytes: &[u8]) {
        self.queued.set(self.queued.get() - bytes.len());
        match &mut *self.rest.borrow_mut() {
            Rest::Nothing => {}
            Rest::Bytes(rest, _) => return rest.extend_from_slice(bytes),
            Rest::Failed(_) => return,
        }
        let mut written = 0;
        let result =
            self.conn.with_waker(|waker| self.poll_write_all(&mut Context::from_waker(waker), bytes, &mut written));
        match result {
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(error)) => {
                *self.rest.borrow_mut() = Rest::Failed(error.kind());
                // It ends the connection; nothing else would tell it.
                self.conn.wake();
            }
            Poll::Pending => *self.rest.borrow_mut() = Rest::Bytes(bytes[written..].to_vec(), 0),
        }
    }
}
