//! Requests in progress: those waiting for a connection, those sent, those to be retried. Records how each ended.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::attempt::AttemptResult;
use crate::outcome::Progress;
use crate::plan::Plan;
use crate::record::{Done, End, Record};

/// Beyond any moment of a run, yet small enough to be added to one: ten years in nanoseconds.
const DISTANT: u64 = 10 * 365 * 24 * 3600 * 1_000_000_000;

/// A request that is due.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    /// When it was due, from the start.
    since: Duration,
    /// How much later than its moment the generator handled it.
    lag: Duration,
    retried: u32,
}

/// Requests in progress: those that wait for a connection, those sent, those to be retried.
#[derive(Debug)]
pub(crate) struct Dispatch {
    start: Instant,
    timeout: Duration,
    max_in_flight: usize,
    retries: u32,
    retry_pause: Duration,
    /// Wakes the run: nothing is in flight, or a request is due.
    pub(crate) wake: Notify,
    /// When the next request is due, nanoseconds from the start.
    pub(crate) next: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) record: Record,
    pub(crate) in_flight: usize,
    /// Requests that wait for a connection, by due time except retries.
    waiting: VecDeque<Job>,
    /// Requests to be retried, and when.
    retries: Vec<(Instant, Job)>,
    /// Connections that wait for a request, the last used on top.
    idle: Vec<(usize, Waker)>,
    connections: usize,
}

impl Dispatch {
    pub(crate) fn new(plan: &Plan, start: Instant) -> Dispatch {
        let state = State {
            record: Record::new(plan),
            in_flight: 0,
            waiting: VecDeque::new(),
            retries: Vec::new(),
            idle: Vec::new(),
            connections: 0,
        };
        Dispatch {
            start,
            timeout: plan.timeout,
            max_in_flight: plan.max_in_flight,
            retries: plan.retries,
            retry_pause: plan.retry_pause,
            wake: Notify::new(),
            next: AtomicU64::new(0),
            state: Mutex::new(state),
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        // A poisoned lock is usable: no holder panics while the state is inconsistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request has become due. `None`: too many are in flight, and it is counted as unsent.
    pub(crate) fn offer(&self, since: Duration, now: Instant) -> Option<Job> {
        let mut state = self.state();
        let lag = now.saturating_duration_since(self.start + since);
        state.record.offered(since, lag);
        if state.in_flight >= self.max_in_flight {
            state.record.done(Done { due: since, latency: Duration::ZERO, lag, retried: 0, end: End::Unsent });
            return None;
        }
        state.in_flight += 1;
        state.record.most_in_flight = state.record.most_in_flight.max(state.in_flight);
        Some(Job { since, lag, retried: 0 })
    }

    /// When it times out.
    pub(crate) fn deadline(&self, job: &Job) -> Instant {
        self.start + job.since + self.timeout
    }

    /// The next waiting request for an idle connection.
    pub(crate) fn poll_job(&self, connection: usize, cx: &mut Context<'_>) -> Poll<Job> {
        let mut state = self.state();
        if let Some(at) = state.idle.iter().rposition(|(number, _)| *number == connection) {
            state.idle.remove(at);
        }
        match state.waiting.pop_front() {
            Some(job) => Poll::Ready(job),
            None => {
                state.idle.push((connection, cx.waker().clone()));
                Poll::Pending
            }
        }
    }

    /// A request ended, or is to be retried.
    pub(crate) fn ends(&self, job: Job, end: End) {
        let now = Instant::now();
        let mut state = self.state();
        let good = matches!(end, End::Sent(AttemptResult::Answer { status: 200..300, .. }));
        if !good && job.retried < self.retries && end != End::Timeout {
            let again = now + self.retry_pause.mul_f64(fastrand::f64());
            state.retries.push((again, Job { retried: job.retried + 1, ..job }));
            return;
        }
        self.done(&mut state, job, end, now);
    }

    fn done(&self, state: &mut State, job: Job, end: End, now: Instant) {
        let latency = now.saturating_duration_since(self.start + job.since);
        state.record.done(Done { due: job.since, latency, lag: job.lag, retried: job.retried, end });
        state.in_flight -= 1;
        // The pacer's thread may be waiting for this core, so a request that is due is not left to it.
        let due = self.start + Duration::from_nanos(self.next.load(Ordering::Relaxed).min(DISTANT)) <= now;
        if due || state.in_flight == 0 {
            self.wake.notify_one();
        }
    }

    /// Times out requests that waited too long. Returns those to be retried now.
    pub(crate) fn expire(&self, now: Instant) -> Vec<Job> {
        let mut state = self.state();
        while let Some(job) = state.waiting.front().copied().filter(|job| self.deadline(job) <= now) {
            state.waiting.pop_front();
            self.done(&mut state, job, End::Timeout, now);
        }
        let mut due = Vec::new();
        let mut at = 0;
        while let Some((again, job)) = state.retries.get(at).copied() {
            if self.deadline(&job) <= now {
                state.retries.swap_remove(at);
                self.done(&mut state, job, End::Timeout, now);
            } else if again <= now {
                state.retries.swap_remove(at);
                due.push(job);
            } else {
                at += 1;
            }
        }
        due
    }

    pub(crate) fn progress(&self, elapsed: Duration, duration: Duration) -> Progress {
        let mut state = self.state();
        let in_flight = state.in_flight;
        state.record.progress(elapsed, duration, in_flight)
    }
}

impl Dispatch {
    /// Adds a request for an HTTP/1.1 connection and wakes an idle one. Returns the number of the connection to open if none is
    /// idle and fewer than `max_connections` are open.
    pub(crate) fn enqueue(&self, job: Job, max_connections: usize) -> Option<usize> {
        let mut state = self.state();
        state.waiting.push_back(job);
        if let Some((_, waker)) = state.idle.pop() {
            drop(state);
            waker.wake();
            return None;
        }
        if state.connections >= max_connections {
            return None;
        }
        state.connections += 1;
        Some(state.connections - 1)
    }
}
