//! Request hedging: a second attempt when the first takes longer than most. It cuts off the slowest few percent for a
//! few percent more requests (Dean and Barroso, *The Tail at Scale*).
//!
//! Only for calls that change nothing, while the retry budget lasts, and if a permit is free at once: a hedge must
//! never be the load that slows the first attempt down.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use fanin_config::Hedge;

/// Buckets in each power of two: latencies are known to within 25 %.
const STEPS: usize = 4;
const BUCKETS: usize = 30 * STEPS;
/// Fewer answers are too few for a percentile.
const MIN_ANSWERS: u32 = 100;
/// At so many answers all counts are halved, so that old ones fade.
const HALVE_AT: u32 = 4096;
/// Answers after which the percentile is computed again.
const RECOMPUTE_EVERY: u32 = 64;
/// Shortest delay of a hedge.
const MIN_DELAY: Duration = Duration::from_millis(1);

/// Latencies of one upstream's answers. Shared by all workers, and kept only where a hedge needs them.
#[derive(Debug)]
pub(crate) struct Latencies {
    buckets: [AtomicU32; BUCKETS],
    total: AtomicU32,
    /// The percentile in microseconds; 0 if too little is known.
    percentile_micros: AtomicU64,
}

impl Latencies {
    pub fn new() -> Latencies {
        Latencies {
            buckets: std::array::from_fn(|_| AtomicU32::new(0)),
            total: AtomicU32::new(0),
            percentile_micros: AtomicU64::new(0),
        }
    }

    pub fn observe(&self, latency: Duration, percentile: f64) {
        self.buckets[bucket(latency)].fetch_add(1, Relaxed);
        let total = self.total.fetch_add(1, Relaxed) + 1;
        if total >= HALVE_AT {
            self.halve_counts();
        } else if total.is_multiple_of(RECOMPUTE_EVERY) && total >= MIN_ANSWERS {
            self.percentile_micros.store(self.percentile(percentile), Relaxed);
        }
    }

    /// When to send the second attempt. `None` if that is not known yet. `left` is what is left of the call's time.
    pub fn delay(&self, policy: Hedge, left: Duration) -> Option<Duration> {
        match policy {
            Hedge::Time(time) => Some(time),
            Hedge::Half => Some(left / 2),
            Hedge::Percentile(_) => match self.percentile_micros.load(Relaxed) {
                0 => None,
                micros => Some(Duration::from_micros(micros).max(MIN_DELAY)),
            },
        }
    }

    /// If two workers do this at once, some counts are lost.
    fn halve_counts(&self) {
        let mut total = 0;
        for bucket in &self.buckets {
            let half = bucket.load(Relaxed) / 2;
            bucket.store(half, Relaxed);
            total += half;
        }
        self.total.store(total, Relaxed);
    }

    fn percentile(&self, percentile: f64) -> u64 {
        let total: u64 = self.buckets.iter().map(|bucket| u64::from(bucket.load(Relaxed))).sum();
        let rank = (total as f64 * percentile) as u64;
        let mut below = 0;
        for (index, bucket) in self.buckets.iter().enumerate() {
            below += u64::from(bucket.load(Relaxed));
            if below > rank {
                return upper_bound(index);
            }
        }
        upper_bound(BUCKETS - 1)
    }
}

fn bucket(latency: Duration) -> usize {
    let micros = latency.as_micros().clamp(STEPS as u128, 1 << 30) as usize;
    let power = micros.ilog2() as usize;
    // The two bits below the highest one.
    let step = (micros >> (power - 2)) & (STEPS - 1);
    ((power - 2) * STEPS + step).min(BUCKETS - 1)
}

fn upper_bound(bucket: usize) -> u64 {
    let (power, step) = (bucket / STEPS + 2, bucket % STEPS);
    ((STEPS + step + 1) as u64) << (power - 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_cover_all_times_within_a_quarter() {
        for micros in (4..100_000).chain([1_000_000, 30_000_000, 500_000_000]) {
            let bound = upper_bound(bucket(Duration::from_micros(micros)));
            assert!(bound > micros && bound <= micros + micros / 4 + 1, "{micros}: {bound}");
        }
        assert_eq!(bucket(Duration::ZERO), 0);
        assert_eq!(bucket(Duration::MAX), bucket(Duration::from_micros(1 << 30)));
    }

    #[test]
    fn the_percentile_needs_enough_answers_and_follows_them() {
        let latencies = Latencies::new();
        let after = Hedge::Percentile(0.95);
        for _ in 0..99 {
            latencies.observe(Duration::from_millis(10), 0.95);
        }
        assert_eq!(latencies.delay(after, Duration::MAX), None);
        for call in 0..2000 {
            let slow = call % 10 == 0;
            latencies.observe(Duration::from_millis(if slow { 100 } else { 10 }), 0.95);
        }
        let delay = latencies.delay(after, Duration::MAX).unwrap();
        assert!((100..130).contains(&delay.as_millis()), "{delay:?}");
        for _ in 0..20_000 {
            latencies.observe(Duration::from_millis(2), 0.95);
        }
        let delay = latencies.delay(after, Duration::MAX).unwrap();
        assert!((2..4).contains(&delay.as_millis()), "{delay:?}");
        assert_eq!(latencies.delay(Hedge::Time(MIN_DELAY), Duration::MAX), Some(MIN_DELAY));
        assert_eq!(latencies.delay(Hedge::Half, 10 * MIN_DELAY), Some(5 * MIN_DELAY));
    }
}
