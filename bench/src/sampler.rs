//! A thread on one core that takes a sample at even intervals.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::process;

/// Samples taken so far. Dropping it ends the thread.
#[derive(Debug)]
pub struct Sampler<T> {
    samples: Arc<Mutex<Vec<T>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl<T: Send + 'static> Sampler<T> {
    /// Starts the thread. On it, `prepare` makes the function that is called with the moment at which the thread was to wake
    /// up. That function returns a sample to keep, or `Err` to end the sampling.
    ///
    /// If the thread cannot be pinned or prepared, there are no samples.
    pub fn start<S>(
        core: usize,
        interval: Duration,
        prepare: impl FnOnce() -> Option<S> + Send + 'static,
    ) -> io::Result<Sampler<T>>
    where
        S: FnMut(Instant) -> Result<Option<T>, ()>,
    {
        let (samples, stop) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (kept, stopped) = (samples.clone(), stop.clone());
        let run = move || {
            if process::pin(core).is_err() {
                return;
            }
            let Some(mut sample) = prepare() else { return };
            while !stopped.load(Relaxed) {
                let due = Instant::now() + interval;
                process::pause(interval);
                match sample(due) {
                    // Pushing leaves the list consistent, so a poisoned lock is usable.
                    Ok(Some(sample)) => kept.lock().unwrap_or_else(PoisonError::into_inner).push(sample),
                    Ok(None) => {}
                    Err(()) => return,
                }
            }
        };
        let thread = std::thread::Builder::new().name(format!("sampler-{core}")).spawn(run)?;
        Ok(Sampler { samples, stop, thread: Some(thread) })
    }

    pub fn samples(&self) -> MutexGuard<'_, Vec<T>> {
        self.samples.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Drop for Sampler<T> {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        // A panic of the thread has been printed.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
