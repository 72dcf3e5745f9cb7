//! A bounded pool of threads with a bounded queue.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use fanin_config::Threads;

use super::channel::Job;
use super::queue::Shared;
use super::thread;

/// The pool of one route. When it is dropped, its threads end once the queue is empty.
pub(crate) struct Pool {
    pub(crate) shared: Arc<Shared>,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refused {
    /// The queue is full.
    #[error("all threads are busy and the queue is full")]
    Full,
    /// The pool has no thread, and none can be started.
    #[error("no thread can be started")]
    NoThread,
}

impl Pool {
    pub(crate) fn new(method: String, path: String, bounds: Threads, paused: bool) -> Pool {
        let shared = Shared::new(method, path, bounds, paused);
        Pool { shared: Arc::new(shared) }
    }

    /// Whether both serve the same route with the same bounds.
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
            state.enqueue_reserved(job);
            shared.begin();
            drop(state);
            shared.ready.notify_one();
            return Ok(());
        }
        if state.threads < shared.bounds.threads {
            // The new thread needs the lock for its first request, so it finds this request.
            if thread::spawn(shared).is_ok() {
                state.threads += 1;
                state.enqueue_reserved(job);
                shared.begin();
                return Ok(());
            }
            // Without a new thread, the existing ones serve the queue.
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

    /// Removes a cancelled request from the queue, so that it does not count towards the bound.
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
