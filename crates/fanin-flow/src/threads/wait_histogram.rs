//! How long requests waited for a thread, as a histogram.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Upper bounds of the buckets, in microseconds.
pub(super) const BOUNDS: [u64; 14] =
    [50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 50_000, 100_000, 500_000, 1_000_000, 5_000_000, 10_000_000];

/// How long requests waited for a thread.
#[derive(Debug, Default)]
pub(super) struct WaitHistogram {
    pub(super) buckets: [AtomicU64; BOUNDS.len() + 1],
    pub(super) sum_us: AtomicU64,
}

impl WaitHistogram {
    pub(super) fn record(&self, wait: Duration) {
        let us = u64::try_from(wait.as_micros()).unwrap_or(u64::MAX);
        self.buckets[BOUNDS.partition_point(|bound| *bound < us)].fetch_add(1, Relaxed);
        self.sum_us.fetch_add(us, Relaxed);
    }
}
