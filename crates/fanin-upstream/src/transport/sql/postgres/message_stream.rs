//! The message stream of a connection: messages out, messages in, and the replies that are pending.
//!
//! It runs in the future of the call that has the connection, without a task of its own. So an answer in one piece is
//! one write, one wake-up and one read. All state is kept here and not in a future: a call may be dropped at any point,
//! and the cleanup task goes on from there.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWrite};

use super::messages::{Body, SYNC, TERMINATE, message, text, unexpected};
use crate::error::{ErrorKind, Failure};
use crate::transport::stream::Stream;

/// Least capacity for the next read.
const READ: usize = 16 << 10;
/// With less free capacity, the buffer grows before a read.
const LEAST_ROOM: usize = 512;
/// Most capacity added at once. The buffer of a large row grows with what is received.
const MOST_ROOM: usize = 256 << 10;
/// A larger buffer is freed when it is empty.
const MAX_KEPT: usize = 64 << 10;
/// Longest message that is not a row.
const LONGEST_MESSAGE: usize = 1 << 20;
/// Length of a message's tag and length field.
const HEADER: usize = 5;

/// A connection's message stream.
pub(super) struct MessageStream {
    socket: Stream,
    read_buffer: ReadBuffer,
    write_buffer: Vec<u8>,
    /// How much of the write buffer has been sent.
    sent: usize,
    /// Something is left to send, in the write buffer or in TLS.
    sending: bool,
    /// How many times the server has still to report that it is ready.
    pending_replies: usize,
    /// Whether a transaction was open when the server was ready last.
    pub in_transaction: bool,
    /// Longest row that is read, in bytes.
    pub max_row: usize,
    /// The connection cannot be used any more.
    pub broken: bool,
}

/// Received bytes.
#[derive(Default)]
struct ReadBuffer {
    bytes: BytesMut,
    /// Length of the message at the front that was returned last.
    taken: usize,
}

impl ReadBuffer {
    /// Tag and length of the next message, once all of it has come. Discards the one before.
    #[inline]
    fn next(&mut self, max_row: usize) -> Result<Option<(u8, usize)>, Failure> {
        self.bytes.advance(std::mem::take(&mut self.taken));
        let Some(&[tag, ref length @ ..]) = self.bytes.first_chunk::<HEADER>() else { return Ok(None) };
        let length = u32::from_be_bytes(*length) as usize;
        // The length counts itself, but not the tag.
        let Some(body) = length.checked_sub(4) else { return Err(unexpected(tag)) };
        // A message is buffered as a whole, so its length is checked first.
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
            in_transaction: false,
            max_row,
            broken: false,
        }
    }

    /// Where messages are written. They are sent when the next reply is awaited. What is in the buffer before must not
    /// be removed.
    pub fn write_buffer(&mut self) -> &mut Vec<u8> {
        self.sending = true;
        &mut self.write_buffer
    }

    /// Ends a group of messages, which makes one reply pending.
    pub fn sync(&mut self) {
        self.write_buffer().extend_from_slice(&SYNC);
        self.pending_replies += 1;
    }

    /// Runs statements without parameters and results.
    pub fn simple_query(&mut self, sql: &str) {
        message(self.write_buffer(), b'Q', |out| text(out, sql));
        self.pending_replies += 1;
    }

    /// The same, before the messages that start at `at` in the write buffer.
    pub fn simple_query_before(&mut self, at: usize, sql: &str) {
        let behind = self.write_buffer.split_off(at);
        self.simple_query(sql);
        self.write_buffer.extend_from_slice(&behind);
    }

    /// The server's certificate, with TLS.
    pub fn certificate(&self) -> Option<&[u8]> {
        match &self.socket {
            Stream::Tcp(_) => None,
            Stream::Tls(stream) => Some(stream.get_ref().1.peer_certificates()?.first()?),
        }
    }

    /// Whether no reply is pending.
    pub fn is_idle(&self) -> bool {
        self.pending_replies == 0
    }

    /// The next reply: its tag and its body.
    ///
    /// # Errors
    /// The connection broke, or a message is invalid or too long. The connection cannot be used any more.
    pub async fn next(&mut self) -> Result<(u8, Body<'_>), Failure> {
        let (tag, whole) = loop {
            match self.read_buffer.next(self.max_row) {
                // Asynchronous messages: notices, settings, notifications.
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
            // `T` in a transaction, `E` in a failed one.
            self.in_transaction = self.read_buffer.bytes[HEADER..whole] != *b"I";
        }
        Ok((tag, Body(&self.read_buffer.bytes[HEADER..whole])))
    }

    /// Reads all pending replies. Whether the last one was a success.
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

    /// Whether an unused connection is still open and silent, as far as the runtime knows. Makes no system call if
    /// nothing has come.
    pub fn is_quiet(&mut self) -> bool {
        while !self.broken {
            match self.read_buffer.next(self.max_row) {
                Ok(Some((b'N' | b'S' | b'A', _))) => {}
                Ok(None) => match self.poll_fill(&mut Context::from_waker(Waker::noop())) {
                    Poll::Pending => return true,
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(_)) => break,
                },
                // A reply that was not requested.
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
            // The server may have sent an error before it closed the connection, so reading goes on.
            tracing::debug!(%error, "sending to PostgreSQL");
            (self.sending, self.broken) = (false, true);
        }
        let read_buffer = &mut self.read_buffer.bytes;
        if read_buffer.is_empty() {
            if read_buffer.capacity() > MAX_KEPT {
                *read_buffer = BytesMut::new();
            }
            // Reserving in an empty buffer only resets it.
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
    /// Tells the server, if that needs no wait.
    fn drop(&mut self) {
        if !self.broken && self.is_idle() && !self.sending {
            self.write_buffer().extend_from_slice(&TERMINATE);
            let _ = self.poll_send(&mut Context::from_waker(Waker::noop()));
        }
    }
}

/// For [`super::fuzz`].
pub(super) mod fuzz {
    use super::*;

    /// The messages in bytes that come in pieces, and whether all bytes are messages.
    pub fn whole_messages(bytes: &[u8], piece: usize, max_row: usize) -> (Vec<(u8, Vec<u8>)>, bool) {
        let mut read_buffer = ReadBuffer::default();
        let mut found = Vec::new();
        for piece in bytes.chunks(piece) {
            read_buffer.bytes.extend_from_slice(piece);
            loop {
                match read_buffer.next(max_row) {
                    Ok(Some((tag, whole))) => found.push((tag, read_buffer.bytes[HEADER..whole].to_vec())),
                    Ok(None) => break,
                    Err(_) => return (found, false),
                }
            }
        }
        (found, read_buffer.bytes.is_empty())
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

    /// Lengths of the bodies that come in parts of `part` bytes.
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
    fn messages_up_to_the_bound_do_not_depend_on_the_size_of_parts() {
        let bytes = [row(10), b"C\0\0\0\x04".to_vec(), row(3)].concat();
        for part in 1..=bytes.len() {
            assert_eq!(lengths(&bytes, part, 10).unwrap(), [(b'D', 10), (b'C', 0), (b'D', 3)], "in parts of {part}");
            let failure = lengths(&bytes, part, 9).unwrap_err();
            assert_eq!(failure.kind, ErrorKind::TooLarge, "in parts of {part}");
        }
    }

    #[test]
    fn an_impossible_length_is_detected() {
        assert_eq!(lengths(b"D\0\0\0\x03", 5, 10).unwrap_err().kind, ErrorKind::Protocol);
        assert_eq!(lengths(b"H\x7f\0\0\0", 5, usize::MAX).unwrap_err().kind, ErrorKind::Protocol);
    }
}
