//! The compute pool: a fixed number of threads, and in front of them a queue for each model.
//!
//! What waits is bounded by count, and by time: a request that is not expected to be done within its deadline, given what
//! waits in front of it, is refused at once instead of being computed for nobody. Among models of one priority the earliest
//! deadline goes first, as long as none has had much more of the threads than another one that waits: one model's flood delays
//! its own requests, and those of others by that much at most. Besides, a model may hold no more than its limit of threads.

mod batch;
mod experience;
mod lane;
mod state;

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fanin_config::Priority;
use tokio::sync::oneshot;

use crate::repository::Version;
use crate::{InferError, Tensor};
use state::{Next, State};

/// A request on its way through the pool.
pub(crate) struct Job {
    pub version: Arc<Version>,
    pub inputs: Vec<Tensor>,
    /// A bit for each wanted output.
    pub wanted: u64,
    pub rows: usize,
    /// Expected nanoseconds of computing.
    pub predicted: u64,
    pub deadline: Instant,
    pub queued: Instant,
    /// How long it was expected to wait, nanoseconds, were all predictions exact; set by the queue.
    pub expected: u64,
    pub reply: oneshot::Sender<Result<Vec<Tensor>, InferError>>,
}

impl Job {
    fn refuse(self, error: InferError) {
        // The one who asked may have gone.
        let _ = self.reply.send(Err(error));
    }
}

/// What a model may do in the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LaneSettings {
    pub priority: Priority,
    /// Threads at a time; 0 is all but one.
    pub limit: usize,
    /// Rows computed together.
    pub max_batch: usize,
    /// How long the first of them waits for others.
    pub max_delay: Duration,
}

/// The pool.
pub(crate) struct Pool {
    inner: Arc<Inner>,
    threads: usize,
}

struct Inner {
    state: Mutex<State>,
    work: Condvar,
    /// Jobs waiting, for a look without the lock.
    waiting: AtomicUsize,
}

impl Inner {
    /// The state is changed in steps that leave it whole, and no code of a model runs under the lock.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pool {
    pub fn start(threads: usize, max_waiting: usize) -> io::Result<Pool> {
        let inner = Arc::new(Inner {
            state: Mutex::new(State::new(threads, max_waiting)),
            work: Condvar::new(),
            waiting: AtomicUsize::new(0),
        });
        for number in 0..threads {
            let inner = inner.clone();
            std::thread::Builder::new().name(format!("model-{number}")).spawn(move || run(&inner))?;
        }
        Ok(Pool { inner, threads })
    }

    /// A lane for a model.
    pub fn add(&self, settings: LaneSettings) -> usize {
        self.inner.lock().add(settings)
    }

    pub fn configure(&self, lane: usize, settings: LaneSettings) {
        self.inner.lock().configure(lane, settings);
    }

    /// The model of a lane is gone: what waits in it is still computed, for it holds its version.
    pub fn remove(&self, lane: usize) {
        self.inner.lock().remove(lane);
    }

    pub fn set_max_waiting(&self, max_waiting: usize) {
        self.inner.lock().max_waiting = max_waiting;
    }

    pub fn waiting(&self) -> usize {
        self.inner.waiting.load(Relaxed)
    }

    /// Threads that compute.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// How long the threads have to do, by what is expected of all that waits.
    pub fn backlog(&self) -> Duration {
        if self.waiting() == 0 { Duration::ZERO } else { self.inner.lock().backlog() }
    }

    /// Whether nothing of a lane's model waits, so that a request may be computed where it is.
    pub fn is_free(&self, lane: usize) -> bool {
        self.waiting() == 0 || self.inner.lock().is_empty(lane)
    }

    /// Refuses a request that [`Pool::submit`] would refuse for its time, before its inputs are read.
    pub fn in_time(&self, lane: usize, predicted: u64, deadline: Instant) -> Result<(), InferError> {
        if self.waiting() == 0 {
            return Ok(());
        }
        self.inner.lock().could_be_in_time(lane, predicted, deadline, Instant::now())
    }

    /// Puts a job into its lane.
    pub fn submit(&self, lane: usize, job: Job) -> Result<(), InferError> {
        let mut state = self.inner.lock();
        let evicted = state.push(lane, job, Instant::now())?;
        self.inner.waiting.store(state.waiting(), Relaxed);
        let wake = state.idle > 0;
        drop(state);
        if wake {
            self.inner.work.notify_one();
        }
        if let Some(evicted) = evicted {
            evicted.refuse(InferError::Overloaded("a request of higher priority took its place".to_owned()));
        }
        Ok(())
    }

    /// Ends the threads when they have computed what they compute; what waits is refused.
    pub fn stop(&self) {
        let jobs = self.inner.lock().stop();
        self.inner.work.notify_all();
        for job in jobs {
            job.refuse(InferError::Unavailable("the server ends".to_owned()));
        }
    }
}

/// A thread of the pool.
fn run(inner: &Inner) {
    let mut state = inner.lock();
    loop {
        let now = Instant::now();
        match state.next(now) {
            Next::Stop => return,
            Next::Run { lane, jobs } => {
                inner.waiting.store(state.waiting(), Relaxed);
                drop(state);
                let ends = batch::run(jobs, now);
                state = inner.lock();
                if state.done(lane, ends) && state.idle > 0 {
                    // The lane was at its limit, and a thread that sleeps may take its next job.
                    inner.work.notify_one();
                }
            }
            Next::Sleep(until) => {
                state.idle += 1;
                state = match until {
                    Some(until) => {
                        let timeout = until.saturating_duration_since(now);
                        inner.work.wait_timeout(state, timeout).unwrap_or_else(PoisonError::into_inner).0
                    }
                    None => inner.work.wait(state).unwrap_or_else(PoisonError::into_inner),
                };
                state.idle -= 1;
            }
        }
    }
}

/// Computes a request on this thread.
pub(crate) fn compute(
    version: &Version,
    inputs: &[Tensor],
    wanted: u64,
    rows: usize,
) -> Result<Vec<Tensor>, InferError> {
    let started = Instant::now();
    let outputs = guarded(version, inputs, wanted)?;
    let took = started.elapsed();
    version.observe(rows, took);
    version.stats().executed(rows, took);
    version.stats().success(Duration::ZERO, took);
    Ok(outputs)
}

/// The engine's answer; a panic of it is an error of this request alone.
fn guarded(version: &Version, inputs: &[Tensor], wanted: u64) -> Result<Vec<Tensor>, InferError> {
    // Nothing of an engine changes when it computes, so that there is nothing to be left half done.
    let infer = || version.engine().infer(inputs, wanted);
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(infer)).unwrap_or_else(|_| {
        tracing::error!("{version:?}: the engine panicked");
        Err(InferError::Engine("the engine panicked".to_owned()))
    })
}
