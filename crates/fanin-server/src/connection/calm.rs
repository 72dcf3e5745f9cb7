//! The end of an HTTP/2 connection whose client resets too many requests: GOAWAY with ENHANCE_YOUR_CALM, which hyper cannot send.

use std::future::poll_fn;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{CoalescedSocket, Open};
use crate::Application;

/// The last stream is the highest possible: any request may have been worked on.
const GOAWAY: [u8; 17] = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0xb];

/// Most bytes that are discarded before the connection is reset.
const LINGER_BYTES: usize = 1 << 20;

/// Sends it if the socket takes it at once, then discards what comes until the client closes: a reset would destroy it. hyper must have
/// dropped the connection.
pub(super) async fn send<A: Application, S>(open: &Open<A>, socket: &CoalescedSocket<S>)
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    open.conn.begin_shutdown();
    // A frame may be half written.
    if open.conn.is_write_blocked() || socket.is_batched() {
        return;
    }
    let attempt = |cx: &mut Context<'_>| {
        ready!(socket.poll_unsent(cx))?;
        ready!(socket.with(|stream| stream.poll_write(cx, &GOAWAY)))?;
        socket.poll_shutdown(cx)
    };
    let sent: Poll<std::io::Result<()>> = poll_fn(|cx| Poll::Ready(attempt(cx))).await;
    if matches!(sent, Poll::Ready(Err(_))) {
        return;
    }
    let mut discarded = 0;
    let discard = poll_fn(|cx| {
        let mut scratch = [0; 4096];
        while discarded < LINGER_BYTES {
            let mut buffer = ReadBuf::new(&mut scratch);
            match ready!(socket.with(|stream| stream.poll_read(cx, &mut buffer))) {
                Ok(()) if !buffer.filled().is_empty() => discarded += buffer.filled().len(),
                _ => break,
            }
        }
        Poll::Ready(())
    });
    // Over when the client closes, or after the time that any client has to close.
    let _ = open.unless_expired(discard).await;
}
