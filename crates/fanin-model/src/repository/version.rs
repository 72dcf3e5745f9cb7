//! A loaded version of a model.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use super::scan;
use crate::engine::Engine;
use crate::stats::Stats;

/// A loaded version of a model.
pub struct Version {
    pub(super) model: Arc<str>,
    pub(super) number: u64,
    /// The number as text, as the protocol has it.
    pub(super) text: Arc<str>,
    pub(super) engine: Box<dyn Engine>,
    /// The files that it was loaded from.
    pub(super) fingerprint: scan::Fingerprint,
    pub(super) stats: Stats,
    /// Predicted nanoseconds a row.
    pub(super) time_per_row: AtomicU64,
    pub(super) memory: usize,
    /// Bytes that all versions hold together. Reduced by `memory` on drop.
    pub(super) total: Arc<AtomicUsize>,
}

impl Drop for Version {
    fn drop(&mut self) {
        self.total.fetch_sub(self.memory, Relaxed);
    }
}

impl std::fmt::Debug for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "model {} version {}", self.model, self.number)
    }
}

impl Version {
    /// The model's name.
    pub fn model(&self) -> &Arc<str> {
        &self.model
    }

    /// The version's number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The version's number as text, as the protocol has it.
    pub fn text(&self) -> &Arc<str> {
        &self.text
    }

    /// The engine that computes it.
    pub fn engine(&self) -> &dyn Engine {
        &*self.engine
    }

    /// Bytes that it holds.
    pub fn memory(&self) -> usize {
        self.memory
    }

    /// Its counters.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    #[cfg(test)]
    pub(crate) fn for_test(model: &str, engine: Box<dyn Engine>) -> Version {
        Version {
            model: model.into(),
            number: 1,
            text: "1".into(),
            engine,
            fingerprint: scan::Fingerprint::default(),
            stats: Stats::default(),
            time_per_row: AtomicU64::new(1),
            memory: 0,
            total: Arc::default(),
        }
    }

    /// Predicted nanoseconds of computing so many rows.
    pub(crate) fn predict(&self, rows: usize) -> u64 {
        self.time_per_row.load(Relaxed).saturating_mul(rows.max(1) as u64)
    }

    /// Updates the prediction by a measured time, as an exponentially weighted average. An outlier (a preempted thread) counts
    /// as at most four times the prediction.
    pub(crate) fn observe(&self, rows: usize, took: Duration) {
        let took = (took.as_nanos() as u64 / rows.max(1) as u64).max(1);
        let before = self.time_per_row.load(Relaxed);
        let took = took.min(before.saturating_mul(4));
        self.time_per_row.store((before.saturating_mul(7) + took).div_ceil(8), Relaxed);
    }
}
