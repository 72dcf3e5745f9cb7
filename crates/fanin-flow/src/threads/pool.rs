//! A bounded pool of threads with a bounded queue before it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use fanin_config::Threads;

use super::link::Job;
use super::metrics::Waits;
use super::motion::Motion;
use super::thread;
use crate::log::FailureLog;

/// The threads of one route. When it is dropped, they end as soon as the queue is empty.
pub(crate) struct Pool {
    pub(crate) shared: Arc<Shared>,
}

/// What the threads of a pool share.
pub(crate) struct Shared {
    /// Method and path, for metrics.
    pub(super) method: String,
    pub(super) path: String,
    pub(super) bounds: Threads,
    state: Mutex<State>,
    ready: Condvar,
    /// Refused because the queue was full.
    pub(super) refused: AtomicU64,
    /// How long requests waited for a thread.
    pub(super) waits: Waits,
    pub(super) log: Arc<FailureLog>,
    pub(crate) motion: Option<Arc<Motion>>,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Arc<Job>>,
    /// Threads there are.
    threads: usize,
    /// Threads that wait for a request.
    idle: usize,
    /// Threads that have been woken, or made, for a request that is still in the queue. It does not wait for another's end.
    promised: usize,
    closed: bool,
}

/// A pool's numbers now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Numbers {
    pub(super) threads: usize,
    pub(super) busy: usize,
    pub(super) waiting: usize,
}

/// Why a request gets no thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refused {
    /// As many wait as may.
    #[error("all threads are busy, and as many requests wait as may")]
    Full,
    /// There is not one thread, and none can be made.
    #[error("no thread can be made")]
    NoThread,
}

impl Pool {
    pub(crate) fn new(method: String, path: String, bounds: Threads, paused: bool) -> Pool {
        let shared = Shared {
            method,
            path,
            bounds,
            state: Mutex::default(),
            ready: Condvar::new(),
            refused: AtomicU64::new(0),
            waits: Waits::default(),
            log: Arc::new(FailureLog::new()),
            motion: paused.then(Arc::default),
        };
        Pool { shared: Arc::new(shared) }
    }

    /// Whether this is the pool that such a route needs.
    pub(crate) fn serves(&self, other: &Pool) -> bool {
        let (a, b) = (&self.shared, &other.shared);
        a.method == b.method && a.path == b.path && a.bounds == b.bounds
    }

    /// Gives a request to an idle thread, to a new one, or puts it into the queue.
    pub(super) fn offer(&self, job: &Arc<Job>) -> Result<(), Refused> {
        let shared = &self.shared;
        let mut state = shared.lock();
        if state.idle > 0 {
            state.idle -= 1;
            state.promise(job);
            shared.begin();
            drop(state);
            shared.ready.notify_one();
            return Ok(());
        }
        if state.threads < shared.bounds.threads {
            // The new thread needs the lock for its first request, so it finds this one.
            if thread::spawn(shared).is_ok() {
                state.threads += 1;
                state.promise(job);
                shared.begin();
                return Ok(());
            }
            // That no more threads can be made is no reason to fail while others serve the queue.
            if state.threads == 0 {
                return Err(Refused::NoThread);
            }
        }
        if state.waiting() >= shared.bounds.waiting {
            drop(state);
            shared.refused.fetch_add(1, Relaxed);
            return Err(Refused::Full);
        }
        state.queue.push_back(job.clone());
        Ok(())
    }

    /// Takes a request out of the queue again: it does not hold a place while nobody waits for it.
    pub(super) fn withdraw(&self, job: &Arc<Job>) {
        self.shared.lock().queue.retain(|other| !Arc::ptr_eq(other, job));
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.ready.notify_all();
    }
}

impl State {
    fn promise(&mut self, job: &Arc<Job>) {
        self.promised += 1;
        self.queue.push_back(job.clone());
    }

    /// Requests that wait for a thread to become free.
    fn waiting(&self) -> usize {
        // Withdrawn ones leave the promises of their threads behind.
        self.queue.len().saturating_sub(self.promised)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No code that can panic runs under this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self) {
        if let Some(motion) = &self.motion {
            motion.begin();
        }
    }

    /// The first request of a new thread, the oldest of the queue. Then as [`next`](Self::next).
    pub(super) fn first(&self) -> Option<Arc<Job>> {
        let mut state = self.lock();
        if state.promised == 0 {
            // A thread that had just become free took the request for which this one was made, and counts as idle for it.
            return self.wait(state, true);
        }
        state.promised -= 1;
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

    /// `idle`: the thread counts as such already.
    fn wait(&self, mut state: MutexGuard<'_, State>, mut idle: bool) -> Option<Arc<Job>> {
        loop {
            if !std::mem::take(&mut idle) {
                if let Some(motion) = &self.motion {
                    motion.end();
                }
                state.idle += 1;
            }
            let waits = |state: &mut State| state.promised == 0 && !state.closed;
            state = self.ready.wait_while(state, waits).unwrap_or_else(PoisonError::into_inner);
            if state.promised == 0 {
                state.idle -= 1;
                state.threads -= 1;
                return None;
            }
            state.promised -= 1;
            if let Some(job) = state.queue.pop_front() {
                return Some(job);
            }
        }
    }

    pub(super) fn numbers(&self) -> Numbers {
        let state = self.lock();
        Numbers { threads: state.threads, busy: state.threads - state.idle, waiting: state.waiting() }
    }
}
