//! The stream of a connection: messages out, messages in, and what the server still owes.
//!
//! Everything is done in the future of the call that has the connection; there is no task beside it, so that an answer that
//! comes in one piece is one write, one wake and one read. All of the state is here and not in a future: a call may be dropped
//! at any point, and whoever cleans up after it goes on from there.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWrite};

use super::messages::{Body, SYNC, TERMINATE, message, text, unexpected};
use crate::error::{ErrorKind, Failure};
use crate::transport::stream::Stream;

/// Room for what comes next, at least.
const READ: usize = 16 << 10;
/// Less room than this is not worth a read.
const LEAST_ROOM: usize = 512;
/// Room for a large row grows with what really comes.
const MOST_ROOM: usize = 256 << 10;
/// A buffer that has grown beyond this is given up when it is empty.
const MAX_KEPT: usize = 64 << 10;
/// No message but a row is longer.
const LONGEST_MESSAGE: usize = 1 << 20;
/// A message's tag and its length.
const HEADER: usize = 5;

/// A connection's stream.
pub(super) struct MessageStream {
    socket: Stream,
    read_buffer: ReadBuffer,
    write_buffer: Vec<u8>,
    /// How much of the write_buffer has been sent.
    sent: usize,
    /// Something is in the write_buffer, or the stream itself may still hold it back.
    sending: bool,
    /// How often the server has yet to say that it is ready.
    pending_replies: usize,
    /// The longest row that is read, in bytes.
    pub max_row: usize,
    /// It is of no more use.
    pub broken: bool,
}

/// What has come and is not looked at yet.
#[derive(Default)]
struct ReadBuffer {
    bytes: BytesMut,
    /// The length of the message at its beginning, if that has been given out.
    taken: usize,
}

impl ReadBuffer {
    /// The tag and the length of the next message as a whole, if it has come. The one before is thrown away.
    #[inline]
    fn next(&mut self, max_row: usize) -> Result<Option<(u8, usize)>, Failure> {
        self.bytes.advance(std::mem::take(&mut self.taken));
        let Some(&[tag, ref length @ ..]) = self.bytes.first_chunk::<HEADER>() else { return Ok(None) };
        let length = u32::from_be_bytes(*length) as usize;
        // Its length counts itself, but not its tag.
        let Some(body) = length.checked_sub(4) else { return Err(unexpected(tag)) };
        // A message has to come as a whole before anybody can look at it, so its length is looked at first.
        if body > if tag == b'D' { max_row } else { LONGEST_MESSAGE } {
            return Err(match tag {
                b'D' => Failure::new(
                    ErrorKind::TooLarge,
                    format!("a row of {body} bytes is larger than {max_row} bytes (max_answer)"),
                ),
                _ => unexpected(tag),
            });
        }
        let whole = length + 1;
        if self.bytes.len() < whole {
            self.bytes.reserve((whole - self.bytes.len()).min(MOST_ROOM));
            return Ok(None);
        }
        self.taken = whole;
        Ok(Some((tag, whole)))
    }
}

impl MessageStream {
    pub fn new(socket: Stream, max_row: usize) -> MessageStream {
        MessageStream {
            socket,
            read_buffer: ReadBuffer::default(),
            write_buffer: Vec::new(),
            sent: 0,
            sending: false,
            pending_replies: 0,
            max_row,
            broken: false,
        }
    }

    /// Where messages are written; they are sent when the next one is awaited. It is never cut below what was there.
    pub fn write_buffer(&mut self) -> &mut Vec<u8> {
        self.sending = true;
        &mut self.write_buffer
    }

    /// Ends what belongs together, by which the server owes an answer.
    pub fn sync(&mut self) {
        self.write_buffer().extend_from_slice(&SYNC);
        self.pending_replies += 1;
    }

    /// Has the server run statements without parameters and results.
    pub fn simple_query(&mut self, sql: &str) {
        message(self.write_buffer(), b'Q', |out| text(out, sql));
        self.pending_replies += 1;
    }

    /// The same before what stands in the write_buffer from `at` on, which begins with a message.
    pub fn simple_query_before(&mut self, at: usize, sql: &str) {
        let behind = self.write_buffer.split_off(at);
        self.simple_query(sql);
        self.write_buffer.extend_from_slice(&behind);
    }

    /// Whether all has been answered.
    pub fn is_idle(&self) -> bool {
        self.pending_replies == 0
    }

    /// The next message that is an answer: its tag and its body.
    ///
    /// # Errors
    /// The connection broke, or what comes on it is not understood or too long: it is of no more use.
    pub async fn next(&mut self) -> Result<(u8, Body<'_>), Failure> {
        let (tag, whole) = loop {
            match self.read_buffer.next(self.max_row) {
                // ServerError by the way: notices, settings, notifications.
                Ok(Some((b'N' | b'S' | b'A', _))) => {}
                Ok(Some(found)) => break found,
                Ok(None) => poll_fn(|cx| self.poll_fill(cx)).await?,
                Err(failure) => {
                    self.broken = true;
                    return Err(failure);
                }
            }
        };
        if tag == b'Z' {
            self.pending_replies = self.pending_replies.saturating_sub(1);
        }
        Ok((tag, Body(&self.read_buffer.bytes[HEADER..whole])))
    }

    /// Reads up to the end of all that the server owes. Whether the last of it went well.
    pub async fn drain(&mut self) -> Result<bool, Failure> {
        let mut well = true;
        while !self.is_idle() {
            match self.next().await?.0 {
                b'E' => well = false,
                b'Z' if !self.is_idle() => well = true,
                _ => {}
            }
        }
        Ok(well)
    }

    /// Whether an unused connection is still good, as far as the runtime has heard. Costs no system call if nothing has come.
    pub fn is_quiet(&mut self) -> bool {
        while !self.broken {
            match self.read_buffer.next(self.max_row) {
                Ok(Some((b'N' | b'S' | b'A', _))) => {}
                Ok(None) => match self.poll_fill(&mut Context::from_waker(Waker::noop())) {
                    Poll::Pending => return true,
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(_)) => break,
                },
                // Nothing was asked.
                Ok(Some(_)) | Err(_) => break,
            }
        }
        self.broken = true;
        false
    }

    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        if self.sending
            && let Poll::Ready(Err(error)) = self.poll_send(cx)
        {
            // What the server has said before it closed the connection may be there, so that it is read on.
            tracing::debug!(%error, "sending to PostgreSQL");
            (self.sending, self.broken) = (false, true);
        }
        let read_buffer = &mut self.read_buffer.bytes;
        if read_buffer.is_empty() {
            if read_buffer.capacity() > MAX_KEPT {
                *read_buffer = BytesMut::new();
            }
            // Costs nothing: it begins again at its front.
            read_buffer.reserve(READ);
        } else if read_buffer.capacity() - read_buffer.len() < LEAST_ROOM {
            read_buffer.reserve(READ);
        }
        let what = match ready!(pin!(self.socket.read_buf(read_buffer)).poll(cx)) {
            Ok(0) => "the server has closed the connection".to_owned(),
            Ok(_) => return Poll::Ready(Ok(())),
            Err(error) => format!("the connection broke: {error}"),
        };
        self.broken = true;
        Poll::Ready(Err(Failure::new(ErrorKind::Protocol, what)))
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.sent < self.write_buffer.len() {
            match ready!(Pin::new(&mut self.socket).poll_write(cx, &self.write_buffer[self.sent..]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                sent => self.sent += sent,
            }
        }
        self.sent = 0;
        self.write_buffer.clear();
        self.write_buffer.shrink_to(MAX_KEPT);
        ready!(Pin::new(&mut self.socket).poll_flush(cx))?;
        self.sending = false;
        Poll::Ready(Ok(()))
    }
}

impl Drop for MessageStream {
    /// The server is told, if that takes no wait.
    fn drop(&mut self) {
        if !self.broken && self.is_idle() && !self.sending {
            self.write_buffer().extend_from_slice(&TERMINATE);
            let _ = self.poll_send(&mut Context::from_waker(Waker::noop()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(size: usize) -> Vec<u8> {
        let mut out = Vec::new();
        message(&mut out, b'D', |out| out.resize(out.len() + size, b'x'));
        out
    }

    /// The bodies' lengths of what comes in parts of `part` bytes.
    fn lengths(bytes: &[u8], part: usize, max_row: usize) -> Result<Vec<(u8, usize)>, Failure> {
        let mut read_buffer = ReadBuffer::default();
        let mut found = Vec::new();
        for part in bytes.chunks(part) {
            read_buffer.bytes.extend_from_slice(part);
            while let Some((tag, whole)) = read_buffer.next(max_row)? {
                assert_eq!(read_buffer.bytes[0], tag);
                found.push((tag, whole - HEADER));
            }
        }
        Ok(found)
    }

    #[test]
    fn messages_pass_up_to_the_bound_however_they_are_cut() {
        let bytes = [row(10), b"C\0\0\0\x04".to_vec(), row(3)].concat();
        for part in 1..=bytes.len() {
            assert_eq!(lengths(&bytes, part, 10).unwrap(), [(b'D', 10), (b'C', 0), (b'D', 3)], "in parts of {part}");
            let failure = lengths(&bytes, part, 9).unwrap_err();
            assert_eq!(failure.kind, ErrorKind::TooLarge, "in parts of {part}");
        }
    }

    #[test]
    fn a_length_that_cannot_be_is_noticed() {
        assert_eq!(lengths(b"D\0\0\0\x03", 5, 10).unwrap_err().kind, ErrorKind::Protocol);
        assert_eq!(lengths(b"H\x7f\0\0\0", 5, usize::MAX).unwrap_err().kind, ErrorKind::Protocol);
    }
}
