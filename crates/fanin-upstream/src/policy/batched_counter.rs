//! Calls and successes that a worker has not told the process-wide policies yet. They are told in small lots, because on
//! the good path a shared counter for every call would be the dearest part of the policies.

use std::cell::Cell;

/// How many are kept back at most. Small, so that a breaker's share of failures is not far off.
const BATCH: u32 = 8;

/// One kind of event, counted by one worker.
#[derive(Debug, Default)]
pub(crate) struct BatchedCounter(Cell<u32>);

impl BatchedCounter {
    /// Counts one; a full batch is handed out.
    pub fn add(&self) -> Option<u32> {
        let count = self.0.get() + 1;
        if count < BATCH {
            self.0.set(count);
            return None;
        }
        self.0.set(0);
        Some(count)
    }

    /// What is there.
    pub fn take(&self) -> u32 {
        self.0.take()
    }
}
