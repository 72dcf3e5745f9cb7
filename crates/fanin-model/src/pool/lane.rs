//! A model's queue: what waits in it, and what it has had of the threads.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::{Job, LaneSettings};

/// How much more of the threads a model may have had than another one's whose request has more time left.
const MOST_TOLERANCE: Duration = Duration::from_millis(10);
/// The same as a part of that request's time, so that short ones are not kept out by a flood of their like.
const TOLERANCE: u32 = 5;

/// Nanoseconds by which another model may be given more before a request with so much time.
pub(super) fn tolerance(time: Duration) -> u64 {
    (time / TOLERANCE).min(MOST_TOLERANCE).as_nanos() as u64
}

/// A model's queue.
pub(super) struct Lane {
    pub settings: LaneSettings,
    /// The earliest deadline first; of equal ones the first that came.
    pub jobs: VecDeque<Job>,
    /// Expected nanoseconds of all that waits.
    pub backlog: u64,
    /// Threads that compute it.
    pub running: usize,
    /// Expected nanoseconds of what they compute.
    pub running_time: u64,
    /// Nanoseconds of threads that it has had, on a clock common to all lanes.
    pub had: u64,
    /// Its model is gone; the lane goes with its last job.
    pub removed: bool,
}

impl Lane {
    pub fn new(settings: LaneSettings, had: u64) -> Lane {
        Lane { settings, jobs: VecDeque::new(), backlog: 0, running: 0, running_time: 0, had, removed: false }
    }

    /// Where a job with this deadline goes. Nearly all clients of a model wait equally long, so that this is the end as a rule.
    pub fn place(&self, deadline: Instant) -> usize {
        match self.jobs.back() {
            Some(last) if last.deadline > deadline => self.jobs.partition_point(|one| one.deadline <= deadline),
            _ => self.jobs.len(),
        }
    }

    /// Expected nanoseconds of the jobs at so many first places.
    pub fn backlog_of(&self, places: usize) -> u64 {
        let behind: u64 = self.jobs.iter().skip(places).map(|job| job.predicted).sum();
        self.backlog.saturating_sub(behind)
    }

    /// What it is expected to be given before a job of another lane which will have had `turn` at that job's turn.
    pub fn before(&self, turn: u64, deadline: Instant, tolerance: u64) -> u64 {
        if self.jobs.is_empty() {
            return 0;
        }
        // The last of its jobs begins before a moment, and ends half of itself later on the average.
        let half = self.backlog / self.jobs.len() as u64 / 2;
        let until = |gap: u64, backlog: u64| if gap == 0 { 0 } else { backlog.min(gap + half) };
        // As long as it has had much less, it goes first whatever the deadlines, and so does what it gets in the meantime.
        let gap = turn.saturating_sub(tolerance).saturating_sub(self.had);
        let known = until(gap, self.backlog);
        let behind = known + gap.saturating_sub(known) / 2;
        // Then it goes first with earlier deadlines, until it has had much more.
        let earlier = self.backlog_of(self.place(deadline));
        behind.max(until((turn + tolerance).saturating_sub(self.had), earlier))
    }
}
