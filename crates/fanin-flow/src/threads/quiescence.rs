//! Standing still, for tests in paused time.

use std::sync::{Condvar, Mutex, PoisonError};

/// Counts the threads of a pool that are not blocked.
///
/// Paused time jumps ahead as soon as a runtime has nothing to do, and a runtime does not see that a thread outside of it is
/// still at work for it. So in such tests a worker waits, before it lets its runtime rest, until no thread moves any more: then
/// all that the threads have asked for has arrived, and the order of events is that of virtual time.
#[derive(Debug, Default)]
pub(crate) struct Quiescence {
    active: Mutex<usize>,
    all_idle: Condvar,
}

impl Quiescence {
    /// A thread begins to move. Must be told by the one who moves it, before that one looks whether all stand still.
    pub(crate) fn begin(&self) {
        *self.active.lock().unwrap_or_else(PoisonError::into_inner) += 1;
    }

    /// A thread is about to block.
    pub(crate) fn end(&self) {
        let mut active = self.active.lock().unwrap_or_else(PoisonError::into_inner);
        *active -= 1;
        if *active == 0 {
            self.all_idle.notify_all();
        }
    }

    /// Blocks until none moves.
    pub(crate) fn wait(&self) {
        let active = self.active.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.all_idle.wait_while(active, |active| *active > 0).unwrap_or_else(PoisonError::into_inner));
    }
}
