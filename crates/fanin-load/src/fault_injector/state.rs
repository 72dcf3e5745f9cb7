//! State that the accepting task and the connections share.

use std::sync::atomic::AtomicU64;

use super::fault::Fault;

/// The state that all connections watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) fault: Fault,
    /// Connections of an earlier epoch are reset.
    pub(super) epoch: u64,
}

/// Counters of a fault injector.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) accepted: AtomicU64,
    pub(super) open: AtomicU64,
    pub(super) requested: AtomicU64,
    pub(super) answered: AtomicU64,
}
