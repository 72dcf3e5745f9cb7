//! A connection that goes on in another protocol, after hyper has ended. It stays in the worker's table: timeouts of writing, slow
//! readers and the bytes that clients have not taken are bounded as for responses.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::StatusCode;
use hyper::rt::Write;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::coalesced_socket::CoalescedSocket;
use super::hyper_io::HyperIo;
use super::state::ConnectionState;
use super::{Open, fast_rejection, pre_request_errors};
use crate::Application;
use crate::serve::catch_panic;
use crate::upgrade::{Takeover, Upgraded};

/// Reads and writes in a row before other tasks of the worker run.
const STEPS: usize = 32;

/// Serves the connection until the protocol ends it, the client leaves, or a bound closes it. `waited`: the client has sent nothing behind
/// its request. One that has does not know yet which protocol its bytes are read in, and is answered 400.
pub(super) async fn serve<A, S>(
    open: Open<A>,
    socket: Rc<CoalescedSocket<S>>,
    mut io: HyperIo<S>,
    mut takeover: Box<Takeover>,
    waited: bool,
) where
    A: Application,
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let conn = open.conn.clone();
    let mut pending = Bytes::from(std::mem::take(&mut takeover.head));
    if !waited {
        takeover.outcome.status = StatusCode::BAD_REQUEST.as_u16();
        pending = pre_request_errors::response(StatusCode::BAD_REQUEST, "").into();
    }
    conn.on_stream_bytes(pending.len());
    let mut connection = Connection { socket, pending, switched: false };
    let ended = poll_fn(|cx| {
        conn.register_waker(cx);
        open.worker.heartbeat.beat();
        match catch_panic(|| connection.poll(cx, &conn, &mut io, &mut takeover, waited)) {
            Some(Poll::Pending) if conn.expired().is_none() => Poll::Pending,
            Some(Poll::Ready(result)) => Poll::Ready(result),
            Some(Poll::Pending) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            None => Poll::Ready(Err(io::Error::other("its code panicked"))),
        }
    })
    .await;
    let left = connection.pending.len();
    conn.on_bytes_taken(left);
    takeover.outcome.complete = ended.is_ok() && waited;
    // Its end is logged and counted before the client sees it.
    drop(takeover);
    if let Err(error) = ended {
        tracing::debug!(%error, remote = %conn.client.remote(), "connection ended");
        return;
    }
    // What the client has sent meanwhile must not destroy the last bytes.
    conn.mark_unread();
    let _: io::Result<()> = poll_fn(|cx| {
        conn.register_waker(cx);
        match Pin::new(&mut io).poll_shutdown(cx) {
            Poll::Pending if conn.expired().is_some() => Poll::Ready(Ok(())),
            other => other,
        }
    })
    .await;
}

struct Connection<S> {
    socket: Rc<CoalescedSocket<S>>,
    /// What is to be written next.
    pending: Bytes,
    /// The head is written.
    switched: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin + 'static> Connection<S> {
    /// Ready when the protocol has ended and its bytes are written; an error if the client has left before that.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        conn: &ConnectionState,
        io: &mut HyperIo<S>,
        takeover: &mut Takeover,
        waited: bool,
    ) -> Poll<io::Result<()>> {
        if let Poll::Ready(Err(error)) = self.socket.poll_unsent(cx) {
            return Poll::Ready(Err(error));
        }
        for _ in 0..STEPS {
            ready!(self.poll_write(cx, conn, io, takeover))?;
            if !waited {
                return Poll::Ready(Ok(()));
            }
            if !self.switched {
                self.switched = true;
                takeover.outcome.status = StatusCode::SWITCHING_PROTOCOLS.as_u16();
            }
            match takeover.upgraded.poll_next(cx) {
                Poll::Ready(None) => return Poll::Ready(Ok(())),
                Poll::Ready(Some(bytes)) => {
                    conn.on_stream_bytes(bytes.len());
                    self.pending = bytes;
                    continue;
                }
                Poll::Pending => {}
            }
            // TLS may hold bytes back here.
            ready!(Pin::new(&mut *io).poll_flush(cx))?;
            ready!(self.poll_read(cx, &mut *takeover.upgraded))?;
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        conn: &ConnectionState,
        io: &mut HyperIo<S>,
        takeover: &mut Takeover,
    ) -> Poll<io::Result<()>> {
        while !self.pending.is_empty() {
            let count = ready!(Pin::new(&mut *io).poll_write(cx, &self.pending))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.pending.advance(count);
            conn.on_bytes_taken(count);
            if self.switched {
                takeover.outcome.bytes += count as u64;
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Reads once. Nothing that a client sends is read while it does not take what it is sent.
    fn poll_read(&mut self, cx: &mut Context<'_>, upgraded: &mut dyn Upgraded) -> Poll<io::Result<()>> {
        fast_rejection::with_buffer(|scratch| {
            let mut read = ReadBuf::new(scratch);
            ready!(self.socket.with(|stream| stream.poll_read(cx, &mut read)))?;
            if read.filled().is_empty() {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            upgraded.on_bytes(read.filled());
            Poll::Ready(Ok(()))
        })
    }
}
