//! Reads an answer's body, bounded in size and in the time between its parts.

use std::future::Future;
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use crate::error::{ErrorKind, Failure};

/// Bodies up to this size are copied out of the buffer that was read.
pub(super) const SMALL: usize = 4 << 10;

/// Capacity that is reserved for an announced body. It grows with what is received.
pub(super) const FIRST_ROOM: usize = 1 << 20;

/// Collects parts. A large body that comes as one part is not copied.
#[derive(Debug)]
pub(crate) struct Parts {
    max: usize,
    announced: usize,
    first: Bytes,
    rest: BytesMut,
}

impl Parts {
    /// `announced` is the length in the answer's head, 0 if there is none.
    pub fn new(max: usize, announced: u64) -> Result<Parts, Failure> {
        let announced = usize::try_from(announced).unwrap_or(usize::MAX);
        if announced > max {
            return Err(too_large(announced, max));
        }
        Ok(Parts { max, announced, first: Bytes::new(), rest: BytesMut::new() })
    }

    pub fn push(&mut self, part: Bytes) -> Result<(), Failure> {
        let before = self.len();
        if part.len() > self.max - before {
            return Err(too_large(before + part.len(), self.max));
        }
        if before == 0 {
            self.first = part;
            return Ok(());
        }
        if self.rest.is_empty() {
            self.rest.reserve(self.announced.min(FIRST_ROOM).max(before + part.len()));
            self.rest.extend_from_slice(&self.first);
            self.first = Bytes::new();
        }
        self.rest.extend_from_slice(&part);
        Ok(())
    }

    pub fn len(&self) -> usize {
        self.first.len() + self.rest.len()
    }

    /// A small part is copied: otherwise it would keep the connection's much larger read buffer alive.
    pub fn finish(self) -> Bytes {
        match self.rest.is_empty() {
            true if self.first.len() <= SMALL => Bytes::copy_from_slice(&self.first),
            true => self.first,
            false => self.rest.freeze(),
        }
    }
}

#[cold]
pub(super) fn too_large(bytes: usize, max: usize) -> Failure {
    Failure::new(ErrorKind::TooLarge, format!("the answer has {bytes} bytes or more, {max} are allowed"))
}

/// Waits for the next part of a body, at most for `limit`.
pub(crate) async fn within<T>(limit: Option<Duration>, part: impl Future<Output = T>) -> Result<T, Failure> {
    match limit {
        None => Ok(part.await),
        // Boxed: without a limit, the default, a call does not carry the timer's state.
        Some(limit) => Box::pin(tokio::time::timeout(limit, part)).await.map_err(|_| {
            Failure::new(ErrorKind::Timeout, format!("no further part of the answer within {} ms", limit.as_millis()))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_large_part_is_not_copied_a_small_one_is_and_several_are_joined() {
        for (size, copied) in [(SMALL, true), (SMALL + 1, false)] {
            let part = Bytes::from(vec![1; size]);
            let mut parts = Parts::new(SMALL * 2, 0).unwrap();
            parts.push(part.clone()).unwrap();
            let whole = parts.finish();
            assert_eq!(whole, part);
            assert_eq!(whole.as_ptr() != part.as_ptr(), copied, "{size}");
        }

        let mut parts = Parts::new(200, 150).unwrap();
        parts.push(Bytes::from_static(b"ab")).unwrap();
        parts.push(Bytes::from_static(b"cd")).unwrap();
        parts.push(Bytes::from_static(b"e")).unwrap();
        assert_eq!(parts.finish(), "abcde");
    }

    #[test]
    fn a_too_large_answer_is_refused_by_its_head_or_its_parts() {
        assert_eq!(Parts::new(10, 11).unwrap_err().kind, ErrorKind::TooLarge);
        let mut parts = Parts::new(10, 0).unwrap();
        parts.push(Bytes::from_static(b"12345678")).unwrap();
        assert_eq!(parts.push(Bytes::from_static(b"901")).unwrap_err().kind, ErrorKind::TooLarge);
    }
}
