//! The scheduler: admits jobs to the queues of their models, and picks the next one.

use std::time::{Duration, Instant};

use fanin_config::Priority;
use slab::Slab;
use smallvec::SmallVec;

use super::job::{Job, QueueSettings};
use super::model_queue::{ModelQueue, tolerance};
use super::wait_predictor::{RunOutcome, WaitPredictor};
use crate::InferError;

pub(super) struct Scheduler {
    queues: Slab<ModelQueue>,
    /// One for each priority.
    predictors: [WaitPredictor; Priority::ALL.len()],
    threads: usize,
    pub max_waiting: usize,
    waiting: usize,
    /// `used_time` of the queue served last. An idle queue starts from here: it cannot save up unused time.
    virtual_time: u64,
    /// Idle threads.
    pub idle: usize,
    stopped: bool,
}

/// What a thread is to do next.
pub(super) enum Next {
    Stop,
    /// Compute these jobs as one batch. `queue`: the queue and the predicted time, for [`Scheduler::done`].
    Run {
        queue: (usize, u64),
        jobs: Vec<Job>,
    },
    /// Sleep, at most until then.
    Sleep(Option<Instant>),
}

impl Scheduler {
    pub fn new(threads: usize, max_waiting: usize) -> Scheduler {
        Scheduler {
            queues: Slab::new(),
            predictors: Default::default(),
            threads,
            max_waiting,
            waiting: 0,
            virtual_time: 0,
            idle: 0,
            stopped: false,
        }
    }

    pub fn add(&mut self, settings: QueueSettings) -> usize {
        self.queues.insert(ModelQueue::new(settings, self.virtual_time))
    }

    pub fn configure(&mut self, queue: usize, settings: QueueSettings) {
        if let Some(queue) = self.queues.get_mut(queue) {
            queue.settings = settings;
        }
    }

    pub fn remove(&mut self, number: usize) {
        if let Some(queue) = self.queues.get_mut(number) {
            queue.removed = true;
            self.remove_if_drained(number);
        }
    }

    fn remove_if_drained(&mut self, number: usize) {
        if self.queues.get(number).is_some_and(|queue| queue.removed && queue.jobs.is_empty() && queue.running == 0) {
            self.queues.remove(number);
        }
    }

    pub fn waiting(&self) -> usize {
        self.waiting
    }

    pub fn is_empty(&self, queue: usize) -> bool {
        self.queues.get(queue).is_none_or(|queue| queue.jobs.is_empty())
    }

    pub fn stop(&mut self) -> Vec<Job> {
        self.stopped = true;
        self.waiting = 0;
        self.queues.iter_mut().flat_map(|(_, queue)| queue.jobs.drain(..)).collect()
    }

    /// Adds a job, or refuses it. Returns a job of lower priority that was evicted for it.
    pub fn push(&mut self, number: usize, mut job: Job, now: Instant) -> Result<Option<Job>, InferError> {
        if self.stopped {
            return Err(InferError::Unavailable("the server is shutting down".to_owned()));
        }
        let Some(queue) = self.queues.get(number) else {
            return Err(InferError::Unavailable("the model has been unloaded".to_owned()));
        };
        let priority = queue.settings.priority;
        let position = queue.position(job.deadline);
        job.expected = self.admit_at(number, position, job.predicted, job.deadline, now)?;
        let mut evicted = None;
        if self.waiting >= self.max_waiting {
            // Evicts the latest deadline of the lowest priority, if that is below this one's.
            let last = self.queues.iter_mut().filter(|(_, queue)| !queue.jobs.is_empty());
            let last = last.max_by_key(|(_, queue)| queue.settings.priority).map(|(_, queue)| queue);
            match last.filter(|queue| queue.settings.priority > priority) {
                Some(queue) => {
                    evicted = queue.jobs.pop_back();
                    if let Some(evicted) = &evicted {
                        queue.backlog = queue.backlog.saturating_sub(evicted.predicted);
                        self.waiting -= 1;
                    }
                }
                None => {
                    return Err(InferError::Overloaded(format!(
                        "{} requests are already waiting (max_waiting)",
                        self.waiting
                    )));
                }
            }
        }
        let virtual_time = self.virtual_time;
        if let Some(queue) = self.queues.get_mut(number) {
            if queue.jobs.is_empty() && queue.running == 0 {
                queue.used_time = queue.used_time.max(virtual_time);
            }
            queue.backlog += job.predicted;
            // An evicted job was of another queue, since its priority is lower: the position still holds.
            queue.jobs.insert(position, job);
            self.waiting += 1;
        }
        Ok(evicted)
    }

    /// Refuses a job that [`Scheduler::push`] would refuse for its deadline.
    pub fn check_deadline(
        &self,
        number: usize,
        predicted: u64,
        deadline: Instant,
        now: Instant,
    ) -> Result<(), InferError> {
        let position = self.queues.get(number).map_or(0, |queue| queue.position(deadline));
        self.admit_at(number, position, predicted, deadline, now).map(|_| ())
    }

    /// Refuses a job that is not expected to meet its deadline at this position. Returns the uncorrected wait in nanoseconds.
    fn admit_at(
        &self,
        number: usize,
        position: usize,
        predicted: u64,
        deadline: Instant,
        now: Instant,
    ) -> Result<u64, InferError> {
        let Some(queue) = self.queues.get(number) else { return Ok(0) };
        let expected = self.wait(number, queue, position, deadline, now);
        let predictors = &self.predictors[queue.settings.priority as usize];
        let wait = Duration::from_nanos((expected as f64 * predictors.wait_factor) as u64);
        let left = deadline.saturating_duration_since(now);
        // A wait that uses up the whole deadline would make every answer late by the way to the client.
        let compute = Duration::from_nanos(predicted);
        let spare = left.checked_sub(compute).map(|spare| spare.mul_f64(1.0 - predictors.reserve));
        if spare.is_none_or(|spare| wait > spare) {
            return Err(InferError::Overloaded(format!(
                "the request would wait {wait:.1?} and take {compute:.1?}, its deadline is in {left:.1?}"
            )));
        }
        Ok(expected)
    }

    /// Predicted time until the threads have computed everything that waits.
    pub fn backlog(&self) -> Duration {
        let all: u64 = self.queues.iter().map(|(_, queue)| queue.backlog).sum();
        Duration::from_nanos(all / self.threads as u64)
    }

    /// Predicted nanoseconds that a job at this position waits for a thread.
    fn wait(&self, number: usize, queue: &ModelQueue, position: usize, deadline: Instant, now: Instant) -> u64 {
        let busy: usize = self.queues.iter().map(|(_, queue)| queue.running).sum();
        if queue.jobs.is_empty() && busy < self.threads && queue.running < self.limit(queue) {
            return 0;
        }
        let backlog = queue.backlog_of(position);
        let idle = queue.jobs.is_empty() && queue.running == 0;
        let used_time = if idle { queue.used_time.max(self.virtual_time) } else { queue.used_time };
        // What the queue will have used when this job starts.
        let virtual_start = used_time + backlog;
        let tolerance = tolerance(deadline.saturating_duration_since(now));
        let mut ahead = 0_u64;
        for (other, one) in &self.queues {
            ahead += one.running_time / 2;
            ahead += if other == number {
                backlog
            } else {
                match one.settings.priority.cmp(&queue.settings.priority) {
                    std::cmp::Ordering::Less => one.backlog,
                    std::cmp::Ordering::Equal => one.time_before(virtual_start, deadline, tolerance),
                    std::cmp::Ordering::Greater => 0,
                }
            };
        }
        let by_all = ahead / self.threads as u64;
        let by_own = (backlog + queue.running_time / 2) / self.limit(queue) as u64;
        by_all.max(by_own)
    }

    fn limit(&self, queue: &ModelQueue) -> usize {
        match queue.settings.limit {
            0 => (self.threads - 1).max(1),
            limit => limit.min(self.threads),
        }
    }

    /// What a thread does next.
    pub fn next(&mut self, now: Instant) -> Next {
        if self.stopped {
            return Next::Stop;
        }
        let mut wake: Option<Instant> = None;
        let mut ready: SmallVec<[(usize, &ModelQueue, &Job); 16]> = SmallVec::new();
        for (number, queue) in &self.queues {
            let Some(first) = queue.jobs.front() else { continue };
            if queue.running >= self.limit(queue) {
                continue;
            }
            if queue.settings.max_batch > 1 {
                let full = queue.jobs.iter().map(|job| job.rows).sum::<usize>() >= queue.settings.max_batch;
                // The oldest one, which need not be the next one: jobs are ordered by deadline.
                let first = queue.jobs.iter().map(|job| job.queued).min().unwrap_or(now);
                let due = first + queue.settings.max_delay;
                if !full && due > now {
                    wake = Some(wake.map_or(due, |wake| wake.min(due)));
                    continue;
                }
            }
            ready.push((number, queue, first));
        }
        let first = pick(&ready);
        drop(ready);
        let Some(number) = first else { return Next::Sleep(wake) };
        let queue = &mut self.queues[number];
        let mut jobs: Vec<Job> = Vec::new();
        let mut rows = 0;
        let mut time = 0;
        while let Some(job) = queue.jobs.front() {
            let fits = jobs.is_empty()
                || rows + job.rows <= queue.settings.max_batch && super::batch::can_batch(&jobs[0], job);
            if !fits {
                break;
            }
            // `front` has just returned it.
            let Some(job) = queue.jobs.pop_front() else { break };
            rows += job.rows;
            time += job.predicted;
            jobs.push(job);
        }
        // With batching a request waits on purpose, which says nothing about predictions.
        let waited =
            (queue.settings.max_batch <= 1).then(|| (jobs[0].expected, now.saturating_duration_since(jobs[0].queued)));
        self.waiting -= jobs.len();
        self.virtual_time = self.virtual_time.max(queue.used_time);
        queue.used_time += time;
        queue.backlog = queue.backlog.saturating_sub(time);
        queue.running += 1;
        queue.running_time += time;
        if let Some((expected, waited)) = waited {
            self.predictors[queue.settings.priority as usize].record_wait(expected, waited);
        }
        Next::Run { queue: (number, time), jobs }
    }

    /// A thread has ended a run. Returns whether the queue has further jobs.
    pub fn done(&mut self, (number, time): (usize, u64), outcome: RunOutcome) -> bool {
        let Some(queue) = self.queues.get_mut(number) else { return false };
        queue.running -= 1;
        queue.running_time = queue.running_time.saturating_sub(time);
        self.predictors[queue.settings.priority as usize].record_outcome(outcome);
        let more = !queue.jobs.is_empty();
        self.remove_if_drained(number);
        more
    }
}

/// Picks the queue to serve: the earliest deadline of the highest priority, among models that have not used much more thread
/// time than another one that waits. Below saturation this is plain EDF, so predictions hold. A flood of one model delays
/// the others by the tolerance at most.
fn pick(ready: &[(usize, &ModelQueue, &Job)]) -> Option<usize> {
    let priority = ready.iter().map(|(_, queue, _)| queue.settings.priority).min()?;
    let equals = || ready.iter().filter(move |(_, queue, _)| queue.settings.priority == priority);
    let least = equals().map(|(_, queue, _)| queue.used_time).min()?;
    let tolerated = equals().map(|(_, _, job)| tolerance(job.deadline.saturating_duration_since(job.queued))).min()?;
    let near = equals().filter(|(_, queue, _)| queue.used_time <= least + tolerated);
    near.min_by_key(|(_, queue, job)| (job.deadline, queue.used_time)).map(|(number, _, _)| *number)
}

#[cfg(test)]
mod load_tests;
#[cfg(test)]
mod tests;
