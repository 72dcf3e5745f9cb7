//! Counters of an operation's batches, single-flight and caches. They live as long as the process, because counters
//! must not decrease on a reload.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Upper bounds of the histograms.
pub(crate) const SIZES: [u64; 10] = [1, 2, 3, 5, 10, 20, 50, 100, 200, 500];

/// A histogram of sizes.
#[derive(Debug, Default)]
pub struct Sizes {
    buckets: [AtomicU64; SIZES.len() + 1],
    sum: AtomicU64,
}

impl Sizes {
    /// Counts one thing of this size.
    pub fn observe(&self, size: usize) {
        let size = size as u64;
        self.buckets[SIZES.partition_point(|bound| *bound < size)].fetch_add(1, Relaxed);
        self.sum.fetch_add(size, Relaxed);
    }

    /// Sum, count, and the count in each bucket with its bound.
    pub(crate) fn read(&self) -> (f64, u64, [(f64, u64); SIZES.len() + 1]) {
        let mut buckets = [(f64::INFINITY, 0); SIZES.len() + 1];
        for (at, bucket) in buckets.iter_mut().enumerate() {
            if let Some(bound) = SIZES.get(at) {
                bucket.0 = *bound as f64;
            }
            bucket.1 = self.buckets[at].load(Relaxed);
        }
        (self.sum.load(Relaxed) as f64, buckets.iter().map(|bucket| bucket.1).sum(), buckets)
    }
}

/// Counters of one operation.
#[derive(Debug, Default)]
pub struct OperationMetrics {
    /// All its calls.
    pub calls: AtomicU64,
    /// Calls in each request that a batch sent.
    pub batch_calls: Sizes,
    /// Keys in each request that a batch sent.
    pub batch_keys: Sizes,
    /// Requests sent again in halves, because their keys seemed to cause the failure.
    pub batch_splits: AtomicU64,
    /// Items in answers that belong to none of the requested keys.
    pub batch_strays: AtomicU64,
    /// Calls that were held for a partner.
    pub held: AtomicU64,
    /// Calls that were held and got no partner.
    pub held_in_vain: AtomicU64,
    /// Calls that followed another call's single-flight request.
    pub joined: AtomicU64,
    /// Calls answered by the cache. For an operation with a batch, this and the counters below count keys.
    pub cache_hits: AtomicU64,
    /// Calls answered by the cache while a new answer was fetched.
    pub cache_stale: AtomicU64,
    /// Calls answered by the cache because the upstream failed.
    pub cache_saved: AtomicU64,
    /// Calls that the cache could not answer.
    pub cache_misses: AtomicU64,
}

impl OperationMetrics {
    /// Adds one.
    pub fn increment(counter: &AtomicU64) {
        counter.fetch_add(1, Relaxed);
    }
}
