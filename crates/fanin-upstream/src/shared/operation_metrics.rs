//! Figures of shared work. They live as long as the process: counters must not go backwards when something is reloaded.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Upper bounds of the histograms of sizes.
pub(crate) const SIZES: [u64; 10] = [1, 2, 3, 5, 10, 20, 50, 100, 200, 500];

/// How large things were.
#[derive(Debug, Default)]
pub struct Sizes {
    buckets: [AtomicU64; SIZES.len() + 1],
    sum: AtomicU64,
}

impl Sizes {
    /// OperationMetrics one of this size.
    pub fn observe(&self, size: usize) {
        let size = size as u64;
        self.buckets[SIZES.partition_point(|bound| *bound < size)].fetch_add(1, Relaxed);
        self.sum.fetch_add(size, Relaxed);
    }

    /// Sum, count, and the count in each bucket with its bound.
    pub(crate) fn read(&self) -> (f64, u64, [(f64, u64); SIZES.len() + 1]) {
        let mut buckets = [(f64::MAX, 0); SIZES.len() + 1];
        for (at, bucket) in buckets.iter_mut().enumerate() {
            if let Some(bound) = SIZES.get(at) {
                bucket.0 = *bound as f64;
            }
            bucket.1 = self.buckets[at].load(Relaxed);
        }
        (self.sum.load(Relaxed) as f64, buckets.iter().map(|bucket| bucket.1).sum(), buckets)
    }
}

/// Figures of one operation.
#[derive(Debug, Default)]
pub struct OperationMetrics {
    /// All its calls.
    pub calls: AtomicU64,
    /// Calls in each request that a batch sent.
    pub batch_calls: Sizes,
    /// Keys in it.
    pub batch_keys: Sizes,
    /// Requests sent again in parts, because what was asked for seemed to be what failed.
    pub batch_splits: AtomicU64,
    /// Items of answers that could not be told to belong to a key that was asked for.
    pub batch_strays: AtomicU64,
    /// Calls that were held for a partner.
    pub held: AtomicU64,
    /// Calls that were held and found none.
    pub held_in_vain: AtomicU64,
    /// Calls that joined another's flight.
    pub joined: AtomicU64,
    /// Calls answered by the cache; of an operation with a batch, keys. So are those below.
    pub cache_hits: AtomicU64,
    /// Calls answered by the cache while a new answer was fetched.
    pub cache_stale: AtomicU64,
    /// Calls answered by the cache because the upstream failed.
    pub cache_saved: AtomicU64,
    /// Calls that the cache could not answer.
    pub cache_misses: AtomicU64,
}

impl OperationMetrics {
    /// OperationMetrics one.
    pub fn increment(counter: &AtomicU64) {
        counter.fetch_add(1, Relaxed);
    }
}
