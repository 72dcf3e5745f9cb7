//! The bounded queue of a pool, and the state that its threads share.

use std::collections::VecDeque;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use fanin_config::Threads;

use super::channel::Job;
use super::quiescence::Quiescence;
use super::wait_histogram::WaitHistogram;
use crate::log::FailureLog;

/// The state that a pool's threads share.
pub(crate) struct Shared {
    /// Method and path, for metrics.
    pub(super) method: String,
    pub(super) path: String,
    pub(super) bounds: Threads,
    state: Mutex<State>,
    pub(super) ready: Condvar,
    /// Refused because the queue was full.
    pub(super) refused: AtomicU64,
    /// How long requests waited for a thread.
    pub(super) waits: WaitHistogram,
    pub(super) log: Arc<FailureLog>,
    pub(crate) quiescence: Option<Arc<Quiescence>>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) queue: VecDeque<Arc<Job>>,
    /// Existing threads.
    pub(super) threads: usize,
    /// Threads that wait for a request.
    pub(super) idle: usize,
    /// Requests in the queue for which a thread has been woken or started. They do not count as waiting.
    reserved: usize,
    pub(super) closed: bool,
}

/// The current gauges of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PoolGauges {
    pub(super) threads: usize,
    pub(super) busy: usize,
    pub(super) waiting: usize,
}

impl State {
    pub(super) fn enqueue_reserved(&mut self, job: &Arc<Job>) {
        self.reserved += 1;
        self.queue.push_back(job.clone());
    }

    /// Requests that wait for a thread to become free.
    pub(super) fn waiting(&self) -> usize {
        // A withdrawn request leaves its reservation behind.
        self.queue.len().saturating_sub(self.reserved)
    }
}

impl Shared {
    pub(super) fn new(method: String, path: String, bounds: Threads, paused: bool) -> Shared {
        Shared {
            method,
            path,
            bounds,
            state: Mutex::default(),
            ready: Condvar::new(),
            refused: AtomicU64::new(0),
            waits: WaitHistogram::default(),
            log: Arc::new(FailureLog::new()),
            quiescence: paused.then(Arc::default),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // No code that can panic runs under this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn begin(&self) {
        if let Some(quiescence) = &self.quiescence {
            quiescence.begin();
        }
    }

    /// The first request of a new thread, the oldest of the queue. Then as [`next`](Self::next).
    pub(super) fn first(&self) -> Option<Arc<Job>> {
        let mut state = self.lock();
        if state.reserved == 0 {
            // Another thread that became idle took the request for which this one was started, and this one counts as idle.
            return self.wait(state, true);
        }
        state.reserved -= 1;
        match state.queue.pop_front() {
            Some(job) => Some(job),
            None => self.wait(state, false),
        }
    }

    /// The next request of a thread that has ended one, oldest first; blocks while there is none. `None` ends the thread.
    pub(super) fn next(&self) -> Option<Arc<Job>> {
        let mut state = self.lock();
        if state.waiting() > 0 {
            return state.queue.pop_front();
        }
        self.wait(state, false)
    }

    /// `idle`: the thread counts as idle already.
    fn wait(&self, mut state: MutexGuard<'_, State>, mut idle: bool) -> Option<Arc<Job>> {
        loop {
            if !std::mem::take(&mut idle) {
                if let Some(quiescence) = &self.quiescence {
                    quiescence.end();
                }
                state.idle += 1;
            }
            let waits = |state: &mut State| state.reserved == 0 && !state.closed;
            state = self.ready.wait_while(state, waits).unwrap_or_else(PoisonError::into_inner);
            if state.reserved == 0 {
                state.idle -= 1;
                state.threads -= 1;
                return None;
            }
            state.reserved -= 1;
            if let Some(job) = state.queue.pop_front() {
                return Some(job);
            }
        }
    }

    pub(super) fn gauges(&self) -> PoolGauges {
        let state = self.lock();
        PoolGauges { threads: state.threads, busy: state.threads - state.idle, waiting: state.waiting() }
    }
}
