//! Splits an answer's stream into messages.

use bytes::{Buf, Bytes, BytesMut};

use crate::error::{ErrorKind, Failure};

/// Bytes before each message: a flag for compression, and the length.
pub(crate) const PREFIX: usize = 5;

/// One message as it was sent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// Its bytes are compressed with gzip.
    pub is_compressed: bool,
    pub bytes: Bytes,
}

/// Bytes that are not a complete message yet.
#[derive(Debug)]
pub(crate) struct Frames {
    rest: BytesMut,
    /// Messages may be compressed: gzip was requested, and the answer uses it.
    may_compress: bool,
}

impl Frames {
    pub fn new(may_compress: bool) -> Frames {
        Frames { rest: BytesMut::new(), may_compress }
    }

    /// Appends received bytes. The buffer never holds more than one allowed message and one part.
    pub fn push(&mut self, part: &[u8]) {
        self.rest.extend_from_slice(part);
    }

    /// The next message, if it is complete.
    pub fn next(&mut self, max: usize) -> Result<Option<Frame>, Failure> {
        if self.rest.len() < PREFIX {
            return Ok(None);
        }
        let compressed = self.rest[0];
        let length = (&self.rest[1..PREFIX]).get_u32() as usize;
        if compressed > u8::from(self.may_compress) {
            let detail = format!("a message with compression {compressed}, which was not requested");
            return Err(Failure::new(ErrorKind::Protocol, detail));
        }
        if length > max {
            let detail = format!("a message of the answer has {length} bytes, {max} are allowed (max_answer)");
            return Err(Failure::new(ErrorKind::TooLarge, detail));
        }
        if self.rest.len() < PREFIX + length {
            self.rest.reserve(PREFIX + length - self.rest.len());
            return Ok(None);
        }
        self.rest.advance(PREFIX);
        Ok(Some(Frame { is_compressed: compressed != 0, bytes: self.rest.split_to(length).freeze() }))
    }

    /// Bytes of an incomplete message.
    pub fn left(&self) -> usize {
        self.rest.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_do_not_depend_on_the_size_of_parts() {
        let wire = [&[0, 0, 0, 0, 3][..], b"abc", &[0, 0, 0, 0, 0], &[1, 0, 0, 0, 1], b"z"].concat();
        for size in 1..=wire.len() {
            let mut frames = Frames::new(true);
            let mut found = Vec::new();
            for part in wire.chunks(size) {
                frames.push(part);
                while let Some(Frame { is_compressed, bytes }) = frames.next(3).unwrap() {
                    found.push((is_compressed, bytes));
                }
            }
            let expected = [(false, "abc"), (false, ""), (true, "z")];
            assert_eq!(found, expected.map(|(is_compressed, text)| (is_compressed, text.into())), "{size}");
            assert_eq!(frames.left(), 0);
        }
    }

    #[test]
    fn too_large_and_compressed_messages_are_refused_by_their_prefix() {
        for (prefix, may_compress, kind) in [
            ([0, 0, 0, 0, 4], false, ErrorKind::TooLarge),
            ([1, 0, 0, 0, 4], true, ErrorKind::TooLarge),
            ([1, 0, 0, 0, 1], false, ErrorKind::Protocol),
            ([2, 0, 0, 0, 1], true, ErrorKind::Protocol),
        ] {
            let mut frames = Frames::new(may_compress);
            frames.push(&prefix);
            assert_eq!(frames.next(3).unwrap_err().kind, kind, "{prefix:?}");
        }
    }
}
