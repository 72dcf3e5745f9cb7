//! Detects that all threads of a pool are idle, for tests in paused time.

use std::sync::{Condvar, Mutex, PoisonError};

/// Counts the active threads of a pool: those that are not blocked.
///
/// Paused time advances as soon as the runtime is idle, but the runtime does not see threads outside of it. So in such tests a
/// worker waits, before its runtime parks, until no thread is active. Then all messages of the threads have arrived, and the order of
/// events is that of virtual time.
#[derive(Debug, Default)]
pub(crate) struct Quiescence {
    active: Mutex<usize>,
    all_idle: Condvar,
}

impl Quiescence {
    /// Counts a thread as active. Called by the thread that wakes it, before that one can call [`wait`](Self::wait).
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

    /// Blocks until no thread is active.
    pub(crate) fn wait(&self) {
        let active = self.active.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.all_idle.wait_while(active, |active| *active > 0).unwrap_or_else(PoisonError::into_inner));
    }
}
