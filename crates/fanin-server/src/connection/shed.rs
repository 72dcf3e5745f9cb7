//! What a connection needs to have requests refused before they reach hyper.

use std::cell::RefCell;

use super::Conn;

/// Who knows whether a request would be refused.
pub(crate) trait Shed {
    /// Whether requests are being refused, so that what is read is worth a look.
    fn sheds(&self) -> bool;

    /// Refuses the request that `bytes` are, if they are one and it would be refused in any case: writes the whole response to
    /// `to`. With `false` nothing has happened.
    fn shed(&self, conn: &Conn, bytes: &[u8], to: &mut Vec<u8>) -> bool;
}

/// hyper reads as much at first.
const READ: usize = 8 << 10;

thread_local! {
    /// Where the start of a request is read to. Nothing stays in it.
    static READ_INTO: RefCell<[u8; READ]> = const { RefCell::new([0; READ]) };
}

/// Runs `read` with a buffer that must not be needed afterwards.
#[inline]
pub(super) fn with_buffer<R>(read: impl FnOnce(&mut [u8]) -> R) -> R {
    READ_INTO.with_borrow_mut(|buffer| read(buffer))
}
