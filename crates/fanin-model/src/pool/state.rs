//! The queues, and who is next.

use std::time::{Duration, Instant};

use fanin_config::Priority;
use slab::Slab;
use smallvec::SmallVec;

use super::experience::{Ends, Experience};
use super::lane::{Lane, tolerance};
use super::{Job, LaneSettings};
use crate::InferError;

pub(super) struct State {
    lanes: Slab<Lane>,
    /// What was learned from the models of each priority.
    learned: [Experience; Priority::ALL.len()],
    threads: usize,
    pub max_waiting: usize,
    waiting: usize,
    /// What the lane that was served last had had: a lane that was empty begins there, with nothing saved up.
    clock: u64,
    /// Threads that sleep.
    pub idle: usize,
    stopped: bool,
}

/// What a thread does next.
pub(super) enum Next {
    Stop,
    /// Computes these, which fit together.
    Run {
        lane: (usize, u64),
        jobs: Vec<Job>,
    },
    /// Sleeps, until then at most.
    Sleep(Option<Instant>),
}

impl State {
    pub fn new(threads: usize, max_waiting: usize) -> State {
        State {
            lanes: Slab::new(),
            learned: Default::default(),
            threads,
            max_waiting,
            waiting: 0,
            clock: 0,
            idle: 0,
            stopped: false,
        }
    }

    pub fn add(&mut self, settings: LaneSettings) -> usize {
        self.lanes.insert(Lane::new(settings, self.clock))
    }

    pub fn configure(&mut self, lane: usize, settings: LaneSettings) {
        if let Some(lane) = self.lanes.get_mut(lane) {
            lane.settings = settings;
        }
    }

    pub fn remove(&mut self, number: usize) {
        if let Some(lane) = self.lanes.get_mut(number) {
            lane.removed = true;
            self.sweep(number);
        }
    }

    fn sweep(&mut self, number: usize) {
        if self.lanes.get(number).is_some_and(|lane| lane.removed && lane.jobs.is_empty() && lane.running == 0) {
            self.lanes.remove(number);
        }
    }

    pub fn waiting(&self) -> usize {
        self.waiting
    }

    pub fn is_empty(&self, lane: usize) -> bool {
        self.lanes.get(lane).is_none_or(|lane| lane.jobs.is_empty())
    }

    pub fn stop(&mut self) -> Vec<Job> {
        self.stopped = true;
        self.waiting = 0;
        self.lanes.iter_mut().flat_map(|(_, lane)| lane.jobs.drain(..)).collect()
    }

    /// Adds a job, or refuses it. Gives a job of lower priority that had to go for it.
    pub fn push(&mut self, number: usize, mut job: Job, now: Instant) -> Result<Option<Job>, InferError> {
        if self.stopped {
            return Err(InferError::Unavailable("the server ends".to_owned()));
        }
        let Some(lane) = self.lanes.get(number) else {
            return Err(InferError::Unavailable("the model has been unloaded".to_owned()));
        };
        let priority = lane.settings.priority;
        let place = lane.place(job.deadline);
        job.expected = self.in_time(number, place, job.predicted, job.deadline, now)?;
        let mut evicted = None;
        if self.waiting >= self.max_waiting {
            // The newest of the least important, if that is less important than this one.
            let last = self.lanes.iter_mut().filter(|(_, lane)| !lane.jobs.is_empty());
            let last = last.max_by_key(|(_, lane)| lane.settings.priority).map(|(_, lane)| lane);
            match last.filter(|lane| lane.settings.priority > priority) {
                Some(lane) => {
                    evicted = lane.jobs.pop_back();
                    if let Some(evicted) = &evicted {
                        lane.backlog = lane.backlog.saturating_sub(evicted.predicted);
                        self.waiting -= 1;
                    }
                }
                None => {
                    return Err(InferError::Overloaded(format!(
                        "{} requests wait already (max_waiting)",
                        self.waiting
                    )));
                }
            }
        }
        let clock = self.clock;
        if let Some(lane) = self.lanes.get_mut(number) {
            if lane.jobs.is_empty() && lane.running == 0 {
                lane.had = lane.had.max(clock);
            }
            lane.backlog += job.predicted;
            // One that had to go is of another lane: it is less important than this one.
            lane.jobs.insert(place, job);
            self.waiting += 1;
        }
        Ok(evicted)
    }

    /// Refuses a job that [`State::push`] would refuse for its time.
    pub fn could_be_in_time(
        &self,
        number: usize,
        predicted: u64,
        deadline: Instant,
        now: Instant,
    ) -> Result<(), InferError> {
        let place = self.lanes.get(number).map_or(0, |lane| lane.place(deadline));
        self.in_time(number, place, predicted, deadline, now).map(|_| ())
    }

    /// Refuses what is not expected to be done in time at this place of its lane. Gives the wait by prediction alone.
    fn in_time(
        &self,
        number: usize,
        place: usize,
        predicted: u64,
        deadline: Instant,
        now: Instant,
    ) -> Result<u64, InferError> {
        let Some(lane) = self.lanes.get(number) else { return Ok(0) };
        let expected = self.wait(number, lane, place, deadline, now);
        let learned = &self.learned[lane.settings.priority as usize];
        let wait = Duration::from_nanos((expected as f64 * learned.stretch) as u64);
        let left = deadline.saturating_duration_since(now);
        // A queue that is just as long as the deadline makes all of it late by the way back, and computes it for nobody.
        let takes = Duration::from_nanos(predicted);
        let room = left.checked_sub(takes).map(|room| room.mul_f64(1.0 - learned.reserve));
        if room.is_none_or(|room| wait > room) {
            return Err(InferError::Overloaded(format!(
                "the request would wait {wait:.1?} and take {takes:.1?}, its deadline is in {left:.1?}"
            )));
        }
        Ok(expected)
    }

    /// How long the threads have to do, by what is expected of all that waits.
    pub fn backlog(&self) -> Duration {
        let all: u64 = self.lanes.iter().map(|(_, lane)| lane.backlog).sum();
        Duration::from_nanos(all / self.threads as u64)
    }

    /// Nanoseconds that a job at this place of this lane is expected to wait for a thread.
    fn wait(&self, number: usize, lane: &Lane, place: usize, deadline: Instant, now: Instant) -> u64 {
        let busy: usize = self.lanes.iter().map(|(_, lane)| lane.running).sum();
        if lane.jobs.is_empty() && busy < self.threads && lane.running < self.limit(lane) {
            return 0;
        }
        let backlog = lane.backlog_of(place);
        let idle = lane.jobs.is_empty() && lane.running == 0;
        let had = if idle { lane.had.max(self.clock) } else { lane.had };
        // What the lane will have had when it is this job's turn.
        let turn = had + backlog;
        let tolerance = tolerance(deadline.saturating_duration_since(now));
        let mut ahead = 0_u64;
        for (other, one) in &self.lanes {
            ahead += one.running_time / 2;
            ahead += if other == number {
                backlog
            } else {
                match one.settings.priority.cmp(&lane.settings.priority) {
                    std::cmp::Ordering::Less => one.backlog,
                    std::cmp::Ordering::Equal => one.before(turn, deadline, tolerance),
                    std::cmp::Ordering::Greater => 0,
                }
            };
        }
        let by_all = ahead / self.threads as u64;
        let by_own = (backlog + lane.running_time / 2) / self.limit(lane) as u64;
        by_all.max(by_own)
    }

    fn limit(&self, lane: &Lane) -> usize {
        match lane.settings.limit {
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
        let mut ready: SmallVec<[(usize, &Lane, &Job); 16]> = SmallVec::new();
        for (number, lane) in &self.lanes {
            let Some(first) = lane.jobs.front() else { continue };
            if lane.running >= self.limit(lane) {
                continue;
            }
            if lane.settings.max_batch > 1 {
                let full = lane.jobs.iter().map(|job| job.rows).sum::<usize>() >= lane.settings.max_batch;
                // Of the one that has waited longest, which need not be the next one.
                let first = lane.jobs.iter().map(|job| job.queued).min().unwrap_or(now);
                let due = first + lane.settings.max_delay;
                if !full && due > now {
                    wake = Some(wake.map_or(due, |wake| wake.min(due)));
                    continue;
                }
            }
            ready.push((number, lane, first));
        }
        let first = first_of(&ready);
        drop(ready);
        let Some(number) = first else { return Next::Sleep(wake) };
        let lane = &mut self.lanes[number];
        let mut jobs: Vec<Job> = Vec::new();
        let mut rows = 0;
        let mut time = 0;
        while let Some(job) = lane.jobs.front() {
            let fits =
                jobs.is_empty() || rows + job.rows <= lane.settings.max_batch && super::batch::together(&jobs[0], job);
            if !fits {
                break;
            }
            // It is there, as the condition of the loop says.
            let Some(job) = lane.jobs.pop_front() else { break };
            rows += job.rows;
            time += job.predicted;
            jobs.push(job);
        }
        // What waits for others to be computed with waits of its own accord.
        let waited =
            (lane.settings.max_batch <= 1).then(|| (jobs[0].expected, now.saturating_duration_since(jobs[0].queued)));
        self.waiting -= jobs.len();
        self.clock = self.clock.max(lane.had);
        lane.had += time;
        lane.backlog = lane.backlog.saturating_sub(time);
        lane.running += 1;
        lane.running_time += time;
        if let Some((expected, waited)) = waited {
            self.learned[lane.settings.priority as usize].waited(expected, waited);
        }
        Next::Run { lane: (number, time), jobs }
    }

    /// A thread has ended a run. Tells whether the lane may go on where it could not before.
    pub fn done(&mut self, (number, time): (usize, u64), ends: Ends) -> bool {
        let Some(lane) = self.lanes.get_mut(number) else { return false };
        lane.running -= 1;
        lane.running_time = lane.running_time.saturating_sub(time);
        self.learned[lane.settings.priority as usize].ended(ends);
        let more = !lane.jobs.is_empty();
        self.sweep(number);
        more
    }
}

/// Who is next: of the most important the earliest deadline, but nobody who has had much more than one that waits. So models
/// that together need less than there is do not overtake each other, and what was predicted comes true; and a flood of one
/// delays the others by the tolerance at most.
fn first_of(ready: &[(usize, &Lane, &Job)]) -> Option<usize> {
    let priority = ready.iter().map(|(_, lane, _)| lane.settings.priority).min()?;
    let equals = || ready.iter().filter(move |(_, lane, _)| lane.settings.priority == priority);
    let least = equals().map(|(_, lane, _)| lane.had).min()?;
    let tolerated = equals().map(|(_, _, job)| tolerance(job.deadline.saturating_duration_since(job.queued))).min()?;
    let near = equals().filter(|(_, lane, _)| lane.had <= least + tolerated);
    near.min_by_key(|(_, lane, job)| (job.deadline, lane.had)).map(|(number, _, _)| *number)
}

#[cfg(test)]
mod load_tests;
#[cfg(test)]
mod tests;
