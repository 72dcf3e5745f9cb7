//! Events that a worker has not reported to the process-wide policies yet. It reports several at once, because a shared
//! counter for each call would be the most expensive part of the policies.

use std::cell::Cell;

/// Most events that are held back. Few, so that a breaker's share of failures is nearly exact.
const BATCH: u32 = 8;

/// One kind of event, counted by one worker.
#[derive(Debug, Default)]
pub(crate) struct BatchedCounter(Cell<u32>);

impl BatchedCounter {
    /// Counts one event. Returns the count once a batch is full.
    pub fn add(&self) -> Option<u32> {
        let count = self.0.get() + 1;
        if count < BATCH {
            self.0.set(count);
            return None;
        }
        self.0.set(0);
        Some(count)
    }

    /// The count, which starts again at 0.
    pub fn take(&self) -> u32 {
        self.0.take()
    }
}
