//! Sends a request whose body comes from a client, part by part: the next part is taken when the socket has accepted the one before.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::AsyncWrite;

use crate::transport::stream::Stream;
use crate::transport::upload::{Upload, UploadSlot};

/// A request that is being sent.
pub(super) struct Uploading {
    slot: Rc<UploadSlot>,
    /// `None` once all of it was taken.
    upload: Option<Box<dyn Upload>>,
    /// Written before `part`: the head, or the frame of a chunk.
    frame: BytesMut,
    part: Bytes,
    chunked: bool,
    /// Bytes of the body that may still come, if its length was announced.
    left: u64,
    sent: usize,
}

impl fmt::Debug for Uploading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, {} bytes sent", self.slot, self.sent)
    }
}

impl Uploading {
    /// Takes the body. `None` if it was taken before.
    pub fn new(head: &[u8], slot: &Rc<UploadSlot>) -> Option<Uploading> {
        let upload = slot.take()?;
        let announced = slot.announced();
        Some(Uploading {
            slot: slot.clone(),
            upload: Some(upload),
            frame: head.into(),
            part: Bytes::new(),
            chunked: announced.is_none(),
            left: announced.unwrap_or(u64::MAX),
            sent: 0,
        })
    }

    /// Bytes written so far.
    pub fn sent(&self) -> usize {
        self.sent
    }

    /// Ready when all was sent.
    pub fn poll(&mut self, stream: &mut Stream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            while !self.frame.is_empty() {
                let count = ready!(Pin::new(&mut *stream).poll_write(cx, &self.frame))?;
                self.advanced(count)?;
                self.frame.advance(count);
            }
            while !self.part.is_empty() {
                let count = ready!(Pin::new(&mut *stream).poll_write(cx, &self.part))?;
                self.advanced(count)?;
                self.part.advance(count);
                if self.chunked && self.part.is_empty() {
                    self.frame.extend_from_slice(b"\r\n");
                }
            }
            if !self.frame.is_empty() {
                continue;
            }
            let Some(upload) = &mut self.upload else { return Pin::new(&mut *stream).poll_flush(cx) };
            match upload.poll_part(cx) {
                // What was written must not wait for the next part.
                Poll::Pending => {
                    let _ = Pin::new(&mut *stream).poll_flush(cx)?;
                    return Poll::Pending;
                }
                Poll::Ready(Some(Ok(part))) if part.len() as u64 <= self.left => {
                    self.left -= part.len() as u64;
                    if self.chunked && !part.is_empty() {
                        self.frame.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes());
                    }
                    self.part = part;
                }
                Poll::Ready(None) if self.chunked || self.left == 0 => {
                    self.upload = None;
                    if self.chunked {
                        self.frame.extend_from_slice(b"0\r\n\r\n");
                    }
                }
                Poll::Ready(_) => {
                    self.slot.set_broken();
                    return Poll::Ready(Err(io::Error::other("the client's body ended before it was complete")));
                }
            }
        }
    }

    fn advanced(&mut self, count: usize) -> io::Result<()> {
        self.sent += count;
        if count == 0 { Err(io::ErrorKind::WriteZero.into()) } else { Ok(()) }
    }
}
