//! Reads any bytes as gRPC's messages, for [`crate::fuzzing`].

use bytes::BufMut;

use super::frame::{Frame, Frames, PREFIX};
use crate::error::ErrorKind;

/// Largest message here.
const MAX: usize = 1000;

/// Reads bytes as an answer's messages, in pieces of several sizes, with and without compression. Whether they are whole messages.
///
/// # Panics
/// If the size of the pieces makes a difference, or the messages are not what the bytes say.
pub fn frames(bytes: &[u8]) -> bool {
    check(bytes, true);
    check(bytes, false)
}

fn check(bytes: &[u8], may_compress: bool) -> bool {
    let whole = read(bytes, bytes.len().max(1), may_compress);
    for size in [1, 2, 5, 6, 64] {
        assert_eq!(read(bytes, size, may_compress), whole, "in pieces of {size}");
    }
    let (messages, end) = &whole;
    let mut wire: Vec<u8> = Vec::new();
    for Frame { is_compressed, bytes } in messages {
        assert!(may_compress || !is_compressed, "compression was not requested");
        wire.put_u8((*is_compressed).into());
        wire.put_u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        wire.extend_from_slice(bytes);
    }
    assert!(bytes.starts_with(&wire), "the messages are not those of the bytes");
    match end {
        Ok(left) => assert_eq!(wire.len() + left, bytes.len()),
        Err(_) => assert!(wire.len() + PREFIX <= bytes.len()),
    }
    *end == Ok(0)
}

/// The messages, and what is left after them or why the next one is refused.
fn read(bytes: &[u8], size: usize, may_compress: bool) -> (Vec<Frame>, Result<usize, ErrorKind>) {
    let (mut frames, mut messages) = (Frames::new(may_compress), Vec::new());
    for piece in bytes.chunks(size) {
        frames.push(piece);
        loop {
            match frames.next(MAX) {
                Ok(Some(message)) => {
                    assert!(message.bytes.len() <= MAX);
                    messages.push(message);
                }
                Ok(None) => break,
                Err(failure) => return (messages, Err(failure.kind)),
            }
        }
    }
    (messages, Ok(frames.left()))
}
