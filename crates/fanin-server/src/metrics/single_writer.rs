//! Numbers that one thread writes and others read. Writing needs no atomic read-modify-write.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use fanin_tracecontext::{Exemplars, TraceContext};

/// A count with a single writer.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    #[inline]
    pub(crate) fn add(&self, more: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(more), Relaxed);
    }

    /// For a count that also falls.
    #[inline]
    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Relaxed);
    }

    #[inline]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Upper bounds of the buckets, in microseconds. One more bucket is above the last.
const BOUNDS: [u64; 17] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 20_000, 35_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000, 5_000_000, 10_000_000,
];

/// A histogram of durations with a single writer.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    buckets: [Count; BOUNDS.len() + 1],
    micros: Count,
    /// Of requests whose spans are sent.
    exemplars: Exemplars,
}

fn bucket(micros: u64) -> usize {
    BOUNDS.iter().position(|bound| micros <= *bound).unwrap_or(BOUNDS.len())
}

impl Histogram {
    #[inline]
    pub(crate) fn observe(&self, duration: Duration) {
        let micros = duration.as_micros() as u64;
        self.buckets[bucket(micros)].add(1);
        self.micros.add(micros);
    }

    /// Names the trace of a request that has been observed with this duration.
    pub(crate) fn exemplify(&self, duration: Duration, trace: &TraceContext) {
        self.exemplars.set(bucket(duration.as_micros() as u64), trace, duration);
    }

    pub(crate) fn exemplars(&self) -> &Exemplars {
        &self.exemplars
    }
}

/// The sum of the histograms of all workers.
#[derive(Debug, Default)]
pub(crate) struct Merged {
    counts: [u64; BOUNDS.len() + 1],
    micros: u64,
}

impl Merged {
    pub(crate) fn of<'a>(histograms: impl IntoIterator<Item = &'a Histogram>) -> Merged {
        let mut merged = Merged::default();
        for histogram in histograms {
            for (sum, count) in merged.counts.iter_mut().zip(&histogram.buckets) {
                *sum += count.get();
            }
            merged.micros += histogram.micros.get();
        }
        merged
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.micros as f64 / 1e6
    }

    pub(crate) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Upper bound in seconds and count; the last bound is infinite.
    pub(crate) fn buckets(&self) -> Vec<(f64, u64)> {
        let bounds = BOUNDS.iter().map(|bound| *bound as f64 / 1e6).chain([f64::INFINITY]);
        bounds.zip(self.counts).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn observations_fall_into_their_buckets() {
        let histograms = [Histogram::default(), Histogram::default()];
        for micros in [1, 100, 101, 10_000_000] {
            histograms[0].observe(Duration::from_micros(micros));
        }
        histograms[1].observe(Duration::from_secs(11));
        let merged = Merged::of(&histograms);
        let buckets = merged.buckets();
        assert_eq!((buckets[0], buckets[1]), ((0.0001, 2), (0.00025, 1)));
        assert_eq!(buckets[BOUNDS.len() - 1].1, 1);
        assert_eq!(buckets[BOUNDS.len()], (f64::INFINITY, 1));
        assert_eq!(merged.count(), 5);
        assert!((merged.seconds() - 21.000202).abs() < 1e-9);
    }
}
