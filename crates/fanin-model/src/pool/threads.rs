//! The pool's threads.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::batch;
use super::job::{Job, QueueSettings};
use super::scheduler::{Next, Scheduler};
use crate::InferError;

/// The pool. Its owner calls [`Pool::stop`] to end the threads.
pub(crate) struct Pool {
    inner: Arc<Inner>,
    threads: usize,
}

struct Inner {
    scheduler: Mutex<Scheduler>,
    work: Condvar,
    /// Jobs waiting. A copy of the scheduler's count that is read without the lock.
    waiting: AtomicUsize,
}

impl Inner {
    /// A poisoned lock is usable: each method leaves the scheduler consistent, and no engine runs under the lock.
    fn lock(&self) -> MutexGuard<'_, Scheduler> {
        self.scheduler.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pool {
    pub fn start(threads: usize, max_waiting: usize) -> io::Result<Pool> {
        let inner = Arc::new(Inner {
            scheduler: Mutex::new(Scheduler::new(threads, max_waiting)),
            work: Condvar::new(),
            waiting: AtomicUsize::new(0),
        });
        for number in 0..threads {
            let inner = inner.clone();
            std::thread::Builder::new().name(format!("model-{number}")).spawn(move || run(&inner))?;
        }
        Ok(Pool { inner, threads })
    }

    /// Adds a queue for a model.
    pub fn add(&self, settings: QueueSettings) -> usize {
        self.inner.lock().add(settings)
    }

    pub fn configure(&self, queue: usize, settings: QueueSettings) {
        self.inner.lock().configure(queue, settings);
    }

    /// Removes a model's queue once it is empty: waiting requests hold their version and are still computed.
    pub fn remove(&self, queue: usize) {
        self.inner.lock().remove(queue);
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

    /// Predicted time until the threads have computed everything that waits.
    pub fn backlog(&self) -> Duration {
        if self.waiting() == 0 { Duration::ZERO } else { self.inner.lock().backlog() }
    }

    /// Whether no request of a model waits, so that one may be computed inline.
    pub fn is_free(&self, queue: usize) -> bool {
        self.waiting() == 0 || self.inner.lock().is_empty(queue)
    }

    /// Refuses a request that [`Pool::submit`] would refuse for its deadline. Needs no inputs.
    pub fn check_deadline(&self, queue: usize, predicted: u64, deadline: Instant) -> Result<(), InferError> {
        if self.waiting() == 0 {
            return Ok(());
        }
        self.inner.lock().check_deadline(queue, predicted, deadline, Instant::now())
    }

    /// Adds a job to its queue.
    pub fn submit(&self, queue: usize, job: Job) -> Result<(), InferError> {
        let mut scheduler = self.inner.lock();
        let evicted = scheduler.push(queue, job, Instant::now())?;
        self.inner.waiting.store(scheduler.waiting(), Relaxed);
        let wake = scheduler.idle > 0;
        drop(scheduler);
        if wake {
            self.inner.work.notify_one();
        }
        if let Some(evicted) = evicted {
            evicted.refuse(InferError::Overloaded("evicted by a request of higher priority".to_owned()));
        }
        Ok(())
    }

    /// Ends the threads after their current jobs. Refuses what waits.
    pub fn stop(&self) {
        let jobs = self.inner.lock().stop();
        self.inner.work.notify_all();
        for job in jobs {
            job.refuse(InferError::Unavailable("the server is shutting down".to_owned()));
        }
    }
}

/// A thread of the pool.
fn run(inner: &Inner) {
    let mut scheduler = inner.lock();
    loop {
        let now = Instant::now();
        match scheduler.next(now) {
            Next::Stop => return,
            Next::Run { queue, jobs } => {
                inner.waiting.store(scheduler.waiting(), Relaxed);
                drop(scheduler);
                let outcome = batch::run(jobs, now);
                scheduler = inner.lock();
                if scheduler.done(queue, outcome) && scheduler.idle > 0 {
                    // The queue was at its limit: an idle thread may take its next job.
                    inner.work.notify_one();
                }
            }
            Next::Sleep(until) => {
                scheduler.idle += 1;
                scheduler = match until {
                    Some(until) => {
                        let timeout = until.saturating_duration_since(now);
                        inner.work.wait_timeout(scheduler, timeout).unwrap_or_else(PoisonError::into_inner).0
                    }
                    None => inner.work.wait(scheduler).unwrap_or_else(PoisonError::into_inner),
                };
                scheduler.idle -= 1;
            }
        }
    }
}
