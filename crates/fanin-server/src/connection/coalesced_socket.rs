//! A connection's socket with write coalescing: short writes join the worker's write batch, long ones are made at once.

use std::cell::{Cell, RefCell};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use fanin_io::write_coalescing::{BatchTarget, WriteBatch};
use tokio::io::{AsyncRead, AsyncWrite};

use super::state::ConnectionState;

/// Most bytes of one connection in a write batch.
const MAX_BATCHED: usize = 16 << 10;

/// The responses that one worker writes together.
pub(crate) type ResponseBatch = WriteBatch<()>;

/// Shared by hyper, by the connection's task and by the task that writes the batch. Each borrows the socket for a moment only.
pub(super) struct CoalescedSocket<S> {
    stream: RefCell<S>,
    conn: Rc<ConnectionState>,
    batch: Rc<ResponseBatch>,
    /// Bytes in the batch.
    batched: Cell<usize>,
    unsent: RefCell<Unsent>,
}

/// What the connection's task goes on with.
enum Unsent {
    Nothing,
    /// Bytes of a batch that the socket had no room for, and how many of them it has taken since.
    Bytes(Vec<u8>, usize),
    /// The socket failed.
    Failed(io::ErrorKind),
}

impl<S: AsyncRead + AsyncWrite + Unpin + 'static> CoalescedSocket<S> {
    pub(super) fn new(stream: S, conn: Rc<ConnectionState>, batch: Rc<ResponseBatch>) -> Rc<CoalescedSocket<S>> {
        let (stream, batched, unsent) = (RefCell::new(stream), Cell::new(0), RefCell::new(Unsent::Nothing));
        Rc::new(CoalescedSocket { stream, conn, batch, batched, unsent })
    }

    /// Runs something with the socket.
    #[inline]
    pub(super) fn with<R>(&self, run: impl FnOnce(Pin<&mut S>) -> R) -> R {
        run(Pin::new(&mut *self.stream.borrow_mut()))
    }

    /// Whether `len` more bytes may join the batch.
    #[inline]
    pub(super) fn has_room(&self, len: usize) -> bool {
        self.batched.get() + len <= MAX_BATCHED && matches!(*self.unsent.borrow(), Unsent::Nothing)
    }

    /// Adds what `fill` writes to the batch, if `fill` returns `true`.
    #[inline]
    pub(super) fn push(self: &Rc<Self>, fill: impl FnOnce(&mut Vec<u8>) -> bool) -> bool {
        let pushed = self.batch.append(self.clone(), (), fill);
        self.batched.set(self.batched.get() + pushed.unwrap_or(0));
        pushed.is_some()
    }

    /// Whether bytes are in the batch. They are written without the caller.
    #[inline]
    pub(super) fn is_batched(&self) -> bool {
        self.batched.get() > 0
    }

    /// Ready when all earlier bytes have been written.
    pub(super) fn poll_clear(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.is_batched() {
            // The batch is written before this task runs again.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.poll_unsent(cx)
    }

    /// Ready when nothing is left that the socket had no room for; an error once a batched write failed.
    #[inline]
    pub(super) fn poll_unsent(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut unsent = self.unsent.borrow_mut();
        let (bytes, written) = match &mut *unsent {
            Unsent::Nothing => return Poll::Ready(Ok(())),
            Unsent::Failed(kind) => return Poll::Ready(Err((*kind).into())),
            Unsent::Bytes(bytes, written) => (bytes, written),
        };
        let result = ready!(self.poll_write_all(cx, bytes, written));
        *unsent = result.as_ref().map_or_else(|error| Unsent::Failed(error.kind()), |()| Unsent::Nothing);
        Poll::Ready(result)
    }

    fn poll_write_all(&self, cx: &mut Context<'_>, bytes: &[u8], written: &mut usize) -> Poll<io::Result<()>> {
        let mut stream = self.stream.borrow_mut();
        while *written < bytes.len() {
            match Pin::new(&mut *stream).poll_write(cx, &bytes[*written..]) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(count)) => {
                    *written += count;
                    self.conn.on_write();
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    self.conn.on_write_blocked();
                    return Poll::Pending;
                }
            }
        }
        // TLS may hold bytes back until the flush.
        let flushed = Pin::new(&mut *stream).poll_flush(cx);
        if flushed.is_pending() {
            self.conn.on_write_blocked();
        }
        flushed
    }

    /// Closes the writing half once everything has been written.
    pub(super) fn poll_shutdown(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_clear(cx))?;
        Pin::new(&mut *self.stream.borrow_mut()).poll_shutdown(cx)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + 'static> BatchTarget<()> for CoalescedSocket<S> {
    fn write(&self, bytes: &[u8], (): &()) {
        self.batched.set(self.batched.get() - bytes.len());
        match &mut *self.unsent.borrow_mut() {
            Unsent::Nothing => {}
            Unsent::Bytes(unsent, _) => return unsent.extend_from_slice(bytes),
            Unsent::Failed(_) => return,
        }
        let mut written = 0;
        let result =
            self.conn.with_waker(|waker| self.poll_write_all(&mut Context::from_waker(waker), bytes, &mut written));
        match result {
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(error)) => {
                *self.unsent.borrow_mut() = Unsent::Failed(error.kind());
                // It ends the connection; nothing else would wake it.
                self.conn.wake();
            }
            Poll::Pending => *self.unsent.borrow_mut() = Unsent::Bytes(bytes[written..].to_vec(), 0),
        }
    }
}
