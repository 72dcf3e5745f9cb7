//! Wait predictor: corrects the predicted waits of the queue by those that past requests met.
//!
//! It learns two numbers. The *wait factor* is how many times longer than predicted requests have waited. The *reserve* is the
//! part of a request's time that is kept back for the way to the client. Both are shared by the models of one priority: they
//! compete for the same threads, and a model that predicted more cautiously than the others would lose its share to them.

use std::time::{Duration, Instant};

use super::job::Job;

/// Weight of a long wait in the exponentially weighted average.
const WEIGHT: f64 = 1.0 / 64.0;
/// The wait factor is bounded, so that one pause of the machine does not refuse everything.
const MAX_WAIT_FACTOR: f64 = 4.0;
/// Predicted waits below this, in nanoseconds, are dominated by the OS scheduler and teach nothing about the queue.
const MIN_TELLING: u64 = 1_000_000;
/// Predicted waits from this on, in nanoseconds, count in full. Shorter ones count less: a short pause of the machine would
/// look like a large factor.
const FULLY_TELLING: u64 = 16_000_000;

/// The reserve settles where one computed request in this many ends too late.
const ONE_LATE_IN: f64 = 64.0;
/// Growth of the reserve after a late request.
const RESERVE_STEP: f64 = 1.0 / 64.0;
/// The least reserve.
const MIN_RESERVE: f64 = 1.0 / 10.0;
/// The largest reserve: a larger one would refuse requests that can be done.
const MAX_RESERVE: f64 = 1.0 / 2.0;
/// A request ended too late if less than this fraction of its spare time is left for the way to the client.
const RETURN_FRACTION: u32 = 10;

/// How many jobs of a run ended in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RunOutcome {
    pub in_time: u32,
    pub late: u32,
}

impl RunOutcome {
    /// Counts a job that was computed, or whose deadline passed in the queue.
    pub fn count(&mut self, job: &Job, now: Instant) {
        let time = job.deadline.saturating_duration_since(job.queued + Duration::from_nanos(job.predicted));
        match job.deadline.saturating_duration_since(now) < time / RETURN_FRACTION {
            true => self.late += 1,
            false => self.in_time += 1,
        }
    }
}

/// What was learned about waiting.
pub(super) struct WaitPredictor {
    /// How many times longer than predicted requests have waited. Above 1 because threads share their cores, at least with the
    /// workers, and models of higher priority come in between.
    pub wait_factor: f64,
    /// The part of a request's spare time that its predicted wait must leave. Small, so that few requests are refused that
    /// could have been answered; raised by each answer that came too late.
    pub reserve: f64,
}

impl Default for WaitPredictor {
    fn default() -> WaitPredictor {
        WaitPredictor { wait_factor: 1.0, reserve: MIN_RESERVE }
    }
}

impl WaitPredictor {
    /// Learns from how long a job has waited; `expected` is in nanoseconds.
    pub fn record_wait(&mut self, expected: u64, waited: Duration) {
        let waited = waited.as_nanos() as f64;
        let (seen, weight) = if expected >= MIN_TELLING {
            let certainty = (expected as f64 / FULLY_TELLING as f64).min(1.0);
            ((waited / expected as f64).min(MAX_WAIT_FACTOR), WEIGHT * certainty)
        } else if waited < 2.0 * MIN_TELLING as f64 {
            // Decays towards 1: a factor learned in bad times would otherwise refuse longer waits for good.
            (1.0, WEIGHT / 8.0)
        } else {
            return;
        };
        self.wait_factor = (self.wait_factor + (seen - self.wait_factor) * weight).max(1.0);
    }

    /// Learns from the outcome of a run. The reserve settles where one job in [`ONE_LATE_IN`] is late.
    pub fn record_outcome(&mut self, outcome: RunOutcome) {
        let change = f64::from(outcome.late) - f64::from(outcome.in_time) / ONE_LATE_IN;
        self.reserve = (self.reserve + RESERVE_STEP * change).clamp(MIN_RESERVE, MAX_RESERVE);
    }
}
