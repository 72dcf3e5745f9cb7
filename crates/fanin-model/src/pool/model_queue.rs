//! A model's queue, and the thread time that the model has used.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::job::{Job, QueueSettings};

/// How much more thread time a model may have used than another one and still go first by its earlier deadline.
const MAX_TOLERANCE: Duration = Duration::from_millis(10);
/// The same as a fraction of a request's time to its deadline, so that requests with little time are not kept out by a flood.
const TOLERANCE_FRACTION: u32 = 5;

/// Nanoseconds of thread time that another model may be ahead before a request with so much time to its deadline.
pub(super) fn tolerance(time: Duration) -> u64 {
    (time / TOLERANCE_FRACTION).min(MAX_TOLERANCE).as_nanos() as u64
}

/// A model's queue.
pub(super) struct ModelQueue {
    pub settings: QueueSettings,
    /// Ordered by deadline; equal deadlines by arrival.
    pub jobs: VecDeque<Job>,
    /// Predicted nanoseconds of all waiting jobs.
    pub backlog: u64,
    /// Threads that compute its jobs.
    pub running: usize,
    /// Predicted nanoseconds of what they compute.
    pub running_time: u64,
    /// Nanoseconds of thread time used, in the virtual time that all queues share.
    pub used_time: u64,
    /// Its model is gone. The queue is removed with its last job.
    pub removed: bool,
}

impl ModelQueue {
    pub fn new(settings: QueueSettings, used_time: u64) -> ModelQueue {
        ModelQueue {
            settings,
            jobs: VecDeque::new(),
            backlog: 0,
            running: 0,
            running_time: 0,
            used_time,
            removed: false,
        }
    }

    /// The position of a job with this deadline. Mostly the end, because clients of one model tend to use one timeout.
    pub fn position(&self, deadline: Instant) -> usize {
        match self.jobs.back() {
            Some(last) if last.deadline > deadline => self.jobs.partition_point(|one| one.deadline <= deadline),
            _ => self.jobs.len(),
        }
    }

    /// Predicted nanoseconds of the first `positions` jobs.
    pub fn backlog_of(&self, positions: usize) -> u64 {
        let behind: u64 = self.jobs.iter().skip(positions).map(|job| job.predicted).sum();
        self.backlog.saturating_sub(behind)
    }

    /// Predicted nanoseconds that this queue gets before a job of another queue, which will have used `virtual_start` by then.
    pub fn time_before(&self, virtual_start: u64, deadline: Instant, tolerance: u64) -> u64 {
        if self.jobs.is_empty() {
            return 0;
        }
        // A job that starts before that moment ends half its length after it, on average.
        let half = self.backlog / self.jobs.len() as u64 / 2;
        let until = |gap: u64, backlog: u64| if gap == 0 { 0 } else { backlog.min(gap + half) };
        // While it has used much less it goes first whatever the deadlines, including jobs that arrive meanwhile.
        let gap = virtual_start.saturating_sub(tolerance).saturating_sub(self.used_time);
        let known = until(gap, self.backlog);
        let behind = known + gap.saturating_sub(known) / 2;
        // Then jobs with earlier deadlines go first, until it has used much more.
        let earlier = self.backlog_of(self.position(deadline));
        behind.max(until((virtual_start + tolerance).saturating_sub(self.used_time), earlier))
    }
}
