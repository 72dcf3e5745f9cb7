//! What was learned from requests about waiting: how much longer than predicted it takes, and how much time to keep back.
//!
//! It is common to the models of one priority. They stand in one queue nearly, and were one of them more careful than the
//! others, these would take all places before it.

use std::time::{Duration, Instant};

use super::Job;

/// How much of what a wait was longer than expected goes into the next expectations, if it was long enough to tell.
const LEARNS: f64 = 1.0 / 64.0;
/// A wait is never expected to be more than so many times what predictions say, whatever a pause of the machine did.
const MOST_STRETCH: f64 = 4.0;
/// Shorter waits say more about the scheduler than about the queue.
const TELLING: u64 = 1_000_000;
/// Waits of this length tell all there is to know; shorter ones count less, or each short pause of the machine would look as if
/// long waits were several times as long.
const TELLS_ALL: u64 = 16_000_000;

/// Of the requests that are computed one in so many may be done too late for the way back.
const LATE: f64 = 64.0;
/// How much more of its time is kept back after a request that was too late.
const CAUTION: f64 = 1.0 / 64.0;
/// The part of a request's time that is always kept back, for the way back.
const LEAST_RESERVE: f64 = 1.0 / 10.0;
/// The most that is: more would refuse what can be done, whatever the machine does.
const MOST_RESERVE: f64 = 1.0 / 2.0;
/// A request is too late if at its end less than one in so many parts of the time that computing leaves is left for the way back.
const WAY_BACK: u32 = 10;

/// How the jobs of a run ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ends {
    pub in_time: u32,
    pub late: u32,
}

impl Ends {
    /// A job that is done, or whose time was up when its turn came.
    pub fn count(&mut self, job: &Job, now: Instant) {
        let time = job.deadline.saturating_duration_since(job.queued + Duration::from_nanos(job.predicted));
        match job.deadline.saturating_duration_since(now) < time / WAY_BACK {
            true => self.late += 1,
            false => self.in_time += 1,
        }
    }
}

/// What is known about waiting.
pub(super) struct Experience {
    /// How many times longer than predicted requests have waited: threads share their cores, at the least with the workers, and
    /// more important models come in between.
    pub stretch: f64,
    /// The part of the time that computing leaves to a request which must stay, for the way back and for what cannot be predicted.
    /// So small that hardly any is refused that could be answered, and raised by each that was computed for nobody.
    pub reserve: f64,
}

impl Default for Experience {
    fn default() -> Experience {
        Experience { stretch: 1.0, reserve: LEAST_RESERVE }
    }
}

impl Experience {
    /// Learns from how long a job has waited.
    pub fn waited(&mut self, expected: u64, waited: Duration) {
        let waited = waited.as_nanos() as f64;
        let (seen, weight) = if expected >= TELLING {
            let telling = (expected as f64 / TELLS_ALL as f64).min(1.0);
            ((waited / expected as f64).min(MOST_STRETCH), LEARNS * telling)
        } else if waited < 2.0 * TELLING as f64 {
            // Short waits are short: what was learned in worse times is forgotten, or it would keep longer ones out for good.
            (1.0, LEARNS / 8.0)
        } else {
            return;
        };
        self.stretch = (self.stretch + (seen - self.stretch) * weight).max(1.0);
    }

    /// Learns from how a run has ended: the reserve comes to rest where one in [`LATE`] is too late.
    pub fn ended(&mut self, ends: Ends) {
        let change = f64::from(ends.late) - f64::from(ends.in_time) / LATE;
        self.reserve = (self.reserve + CAUTION * change).clamp(LEAST_RESERVE, MOST_RESERVE);
    }
}
