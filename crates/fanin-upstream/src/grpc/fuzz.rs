//! Reads any bytes as gRPC's messages, for [`crate::fuzzing`].

use super::frame::{Frames, PREFIX};
use crate::error::ErrorKind;

/// Largest message here.
const MAX: usize = 1000;

/// Reads bytes as an answer's messages, in pieces of several sizes. Whether they are whole messages.
///
/// # Panics
/// If the size of the pieces makes a difference, or the messages are not what the bytes say.
pub fn frames(bytes: &[u8]) -> bool {
    let whole = read(bytes, bytes.len().max(1));
    for size in [1, 2, 5, 6, 64] {
        assert_eq!(read(bytes, size), whole, "in pieces of {size}");
    }
    let (messages, end) = &whole;
    let mut wire: Vec<u8> = Vec::new();
    for message in messages {
        wire.push(0);
        wire.extend_from_slice(&u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes());
        wire.extend_from_slice(message);
    }
    assert!(bytes.starts_with(&wire), "the messages are not those of the bytes");
    match end {
        Ok(left) => assert_eq!(wire.len() + left, bytes.len()),
        Err(_) => assert!(wire.len() + PREFIX <= bytes.len()),
    }
    *end == Ok(0)
}

/// The messages, and what is left after them or why the next one is refused.
fn read(bytes: &[u8], size: usize) -> (Vec<Vec<u8>>, Result<usize, ErrorKind>) {
    let (mut frames, mut messages) = (Frames::default(), Vec::new());
    for piece in bytes.chunks(size) {
        frames.push(piece);
        loop {
            match frames.next(MAX) {
                Ok(Some(message)) => {
                    assert!(message.len() <= MAX);
                    messages.push(message.to_vec());
                }
                Ok(None) => break,
                Err(failure) => return (messages, Err(failure.kind)),
            }
        }
    }
    (messages, Ok(frames.left()))
}
