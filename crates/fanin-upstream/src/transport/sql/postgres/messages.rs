//! Messages of PostgreSQL's protocol 3.0 (PostgreSQL manual, 55.7, "Message Formats").
//!
//! A message is a tag, a length that counts itself, and a body. Bodies are parsed in place.

use crate::error::{ErrorKind, Failure};

/// Protocol version 3.0, which starts a connection.
const VERSION: u32 = 3 << 16;
/// Asks for TLS.
pub(super) const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];
/// Ends a connection.
pub(super) const TERMINATE: [u8; 5] = *b"X\0\0\0\x04";
/// Ends a group of messages. The server replies that it is ready.
pub(super) const SYNC: [u8; 5] = *b"S\0\0\0\x04";
/// Executes the unnamed portal for all its rows.
pub(super) const EXECUTE: [u8; 10] = *b"E\0\0\0\x09\0\0\0\0\0";

/// Writes a message whose body `write` appends.
pub(super) fn message(out: &mut Vec<u8>, tag: u8, write: impl FnOnce(&mut Vec<u8>)) {
    out.push(tag);
    sized(out, write);
}

/// Writes a length, which counts itself, and what `write` appends.
fn sized(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    write(out);
    // A flow's values are bounded far below 4 GB.
    let length = (out.len() - start) as u32;
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

/// A text and its terminating zero byte. Callers have checked that it contains none.
pub(super) fn text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
    out.push(0);
}

/// The first message of a connection, which has no tag.
pub(super) fn startup(out: &mut Vec<u8>, settings: &[(&str, &str)]) {
    sized(out, |out| {
        out.extend_from_slice(&VERSION.to_be_bytes());
        for (name, value) in settings {
            text(out, name);
            text(out, value);
        }
        out.push(0);
    });
}

/// Sent on a connection of its own: cancels the statement of another one.
pub(super) fn cancel(process: u32, secret: u32) -> [u8; 16] {
    const CANCEL: u32 = 80_877_102;
    let mut out = [0; 16];
    for (at, part) in [16, CANCEL, process, secret].into_iter().enumerate() {
        out[4 * at..4 * at + 4].copy_from_slice(&part.to_be_bytes());
    }
    out
}

/// The rest of a message's body. Each method returns `None` if the body is too short.
pub(super) struct Body<'a>(pub &'a [u8]);

impl<'a> Body<'a> {
    pub fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub fn u16(&mut self) -> Option<u16> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u16::from_be_bytes(*taken))
    }

    pub fn u32(&mut self) -> Option<u32> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*taken))
    }

    /// A text up to its terminating zero byte.
    pub fn text(&mut self) -> Option<&'a str> {
        let end = memchr::memchr(0, self.0)?;
        let (taken, rest) = self.0.split_at(end);
        self.0 = &rest[1..];
        std::str::from_utf8(taken).ok()
    }

    /// A value of a row: its length, or -1 for NULL, and its bytes.
    #[inline]
    pub fn value(&mut self) -> Option<Option<&'a [u8]>> {
        match self.u32()? {
            u32::MAX => Some(None),
            length => self.bytes(length as usize).map(Some),
        }
    }
}

/// A message that is unexpected or malformed.
#[cold]
pub(super) fn unexpected(tag: u8) -> Failure {
    let shown = char::from(tag).escape_default();
    Failure::new(ErrorKind::Protocol, format!("unexpected message {shown} from the server"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_their_lengths() {
        let mut out = Vec::new();
        startup(&mut out, &[("user", "a")]);
        assert_eq!(out, b"\0\0\0\x10\0\x03\0\0user\0a\0\0");
        let mut out = b"before".to_vec();
        message(&mut out, b'Q', |out| text(out, "select 1"));
        assert_eq!(out, b"beforeQ\0\0\0\x0dselect 1\0");
        assert_eq!(cancel(1, 2), [0, 0, 0, 16, 0x04, 0xd2, 0x16, 0x2e, 0, 0, 0, 1, 0, 0, 0, 2]);
    }

    #[test]
    fn a_truncated_body_is_detected() {
        let mut body = Body(b"\0\0\0\x02ab\xff\xff\xff\xffc\0rest");
        assert_eq!(body.value(), Some(Some(&b"ab"[..])));
        assert_eq!(body.value(), Some(None));
        assert_eq!(body.text(), Some("c"));
        assert_eq!(body.text(), None);
        assert_eq!(Body(b"\0\0\0\x03ab").value(), None);
        assert_eq!(Body(b"\0").u16(), None);
    }
}
