//! What a connection needs for fast rejection: requests are refused before they reach hyper.

use std::cell::RefCell;

use super::state::ConnectionState;

/// Decides about fast rejection.
pub(crate) trait FastRejection {
    /// Whether requests are being refused at present, so that new bytes are examined.
    fn is_rejecting(&self) -> bool;

    /// If `bytes` are one whole request that would be refused in any case, refuses it: appends the whole response to `to`. With
    /// `false` nothing has happened.
    fn try_reject(&self, conn: &ConnectionState, bytes: &[u8], to: &mut Vec<u8>) -> bool;
}

/// As much as hyper reads at first.
const READ_SIZE: usize = 8 << 10;

thread_local! {
    /// Where the start of a request is read to. Nothing stays in it.
    static READ_BUFFER: RefCell<[u8; READ_SIZE]> = const { RefCell::new([0; READ_SIZE]) };
}

/// Runs `read` with a buffer whose contents are not needed afterwards.
#[inline]
pub(super) fn with_buffer<R>(read: impl FnOnce(&mut [u8]) -> R) -> R {
    READ_BUFFER.with_borrow_mut(|buffer| read(buffer))
}
