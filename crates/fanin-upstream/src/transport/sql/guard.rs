//! A bound on what PostgreSQL may send in one message.
//!
//! `tokio-postgres` reads a message whole before anybody can look at it, and a row is one message: a row of 200 MB would be in
//! memory before its size is known. The length stands at a message's beginning, so this looks at it as it passes.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A message's tag and its length, which counts itself.
const HEADER: usize = 5;

/// Ends the stream at a message that is too long.
pub(crate) struct Guard<S> {
    stream: S,
    max: usize,
    header: [u8; HEADER],
    have: usize,
    /// Bytes of the message's body that have not passed.
    body: usize,
    /// The length of the message at which the stream ended; 0 for none.
    pub refused: Arc<AtomicU64>,
}

impl<S> Guard<S> {
    pub fn new(stream: S, max: usize) -> Guard<S> {
        Guard { stream, max, header: [0; HEADER], have: 0, body: 0, refused: Arc::default() }
    }

    fn look(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            if self.body > 0 {
                let skipped = self.body.min(bytes.len());
                self.body -= skipped;
                bytes = &bytes[skipped..];
                continue;
            }
            let part = (HEADER - self.have).min(bytes.len());
            self.header[self.have..self.have + part].copy_from_slice(&bytes[..part]);
            self.have += part;
            bytes = &bytes[part..];
            if self.have == HEADER {
                let [_, length @ ..] = self.header;
                // A length below its own four bytes is broken, and the protocol's reader says so.
                self.body = (u32::from_be_bytes(length) as usize).saturating_sub(4);
                self.have = 0;
                if self.body > self.max {
                    self.refused.store(self.body as u64, Relaxed);
                    return Err(io::Error::other("a message is too long"));
                }
            }
        }
        Ok(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Guard<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        let looked = self.look(&buf.filled()[before..]);
        if looked.is_err() {
            // By the trait's contract nothing has been read when a read fails.
            buf.set_filled(before);
        }
        Poll::Ready(looked)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Guard<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    fn message(tag: u8, body: usize) -> Vec<u8> {
        let mut bytes = vec![tag];
        bytes.extend((body as u32 + 4).to_be_bytes());
        bytes.resize(bytes.len() + body, b'x');
        bytes
    }

    #[tokio::test]
    async fn messages_pass_up_to_the_bound_however_they_are_cut() {
        let bytes: Vec<u8> = [message(b'D', 10), message(b'C', 0), message(b'D', 3)].concat();
        for chunk in 1..bytes.len() {
            let mut mock = parts(bytes.chunks(chunk).map(<[u8]>::to_vec).collect());
            let mut guard = Guard::new(&mut mock, 10);
            let mut read = Vec::new();
            guard.read_to_end(&mut read).await.unwrap();
            assert_eq!(read, bytes, "in parts of {chunk}");
            assert_eq!(guard.refused.load(Relaxed), 0);
        }
        for chunk in 1..bytes.len() {
            let mut mock = parts(bytes.chunks(chunk).map(<[u8]>::to_vec).collect());
            let mut guard = Guard::new(&mut mock, 9);
            guard.read_to_end(&mut Vec::new()).await.unwrap_err();
            assert_eq!(guard.refused.load(Relaxed), 10);
        }
    }

    /// A reader that gives its parts one by one.
    fn parts(parts: Vec<Vec<u8>>) -> Parts {
        Parts(parts.into())
    }

    struct Parts(std::collections::VecDeque<Vec<u8>>);

    impl AsyncRead for Parts {
        fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            if let Some(mut part) = self.0.pop_front() {
                let now = part.len().min(buf.remaining());
                buf.put_slice(&part[..now]);
                if now < part.len() {
                    self.0.push_front(part.split_off(now));
                }
            }
            Poll::Ready(Ok(()))
        }
    }
}
