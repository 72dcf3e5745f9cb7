//! Counters of models, for the protocol's statistics and for metrics.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::InferError;

/// Counters of one version.
#[derive(Debug, Default)]
pub struct Stats {
    success: AtomicU64,
    success_ns: AtomicU64,
    fail: AtomicU64,
    queue_ns: AtomicU64,
    compute_ns: AtomicU64,
    rows: AtomicU64,
    executions: AtomicU64,
    last: AtomicU64,
}

/// A copy of the counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Requests that were answered.
    pub success: u64,
    /// Nanoseconds that they took, waiting included.
    pub success_ns: u64,
    /// Requests that failed.
    pub fail: u64,
    /// Nanoseconds that answered requests waited for a thread.
    pub queue_ns: u64,
    /// Nanoseconds of computing.
    pub compute_ns: u64,
    /// Rows that were computed.
    pub rows: u64,
    /// Runs of the engine; fewer than requests if these are batched.
    pub executions: u64,
    /// Time of the last run, in milliseconds since 1970.
    pub last: u64,
}

impl Stats {
    /// A request has been answered.
    pub(crate) fn success(&self, queued: Duration, computed: Duration) {
        self.success.fetch_add(1, Relaxed);
        self.success_ns.fetch_add((queued + computed).as_nanos() as u64, Relaxed);
        if !queued.is_zero() {
            self.queue_ns.fetch_add(queued.as_nanos() as u64, Relaxed);
        }
    }

    /// The engine has run.
    pub(crate) fn executed(&self, rows: usize, took: Duration) {
        self.executions.fetch_add(1, Relaxed);
        self.rows.fetch_add(rows as u64, Relaxed);
        self.compute_ns.fetch_add(took.as_nanos() as u64, Relaxed);
        self.last.store(unix_millis(), Relaxed);
    }

    /// A request has failed.
    pub(crate) fn fail(&self) {
        self.fail.fetch_add(1, Relaxed);
    }

    /// The counters now.
    pub fn counted(&self) -> Counted {
        let load = |counter: &AtomicU64| counter.load(Relaxed);
        Counted {
            success: load(&self.success),
            success_ns: load(&self.success_ns),
            fail: load(&self.fail),
            queue_ns: load(&self.queue_ns),
            compute_ns: load(&self.compute_ns),
            rows: load(&self.rows),
            executions: load(&self.executions),
            last: load(&self.last),
        }
    }
}

/// Failed requests by kind of error.
#[derive(Debug, Default)]
pub(crate) struct Outcomes([AtomicU64; 6]);

/// Names, in the order of the counters.
pub(crate) const FAILURES: [&str; 6] = ["invalid", "not_found", "unavailable", "overloaded", "deadline", "engine"];

impl Outcomes {
    pub fn count(&self, error: &InferError) {
        let at = FAILURES.iter().position(|name| *name == error.as_str()).unwrap_or(0);
        self.0[at].fetch_add(1, Relaxed);
    }

    pub fn counted(&self) -> impl Iterator<Item = (&'static str, u64)> {
        FAILURES.into_iter().zip(self.0.iter().map(|counter| counter.load(Relaxed)))
    }
}

/// Milliseconds since 1970.
fn unix_millis() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
