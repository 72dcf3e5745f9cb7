//! The pacer: a thread that rings when requests are due.
//!
//! The runtime's timer rounds to milliseconds, which would bunch a rate of thousands and show as latency that the server
//! does not have; a thread's own timed wait is exact to some tens of microseconds. Each ring costs the generator's core
//! several microseconds, so there are not more than [`GAP`] allows: at a high rate a ring stands for several requests.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::error::LoadError;
use crate::shape::Schedule;

/// Time between two rings, at least. What is due between them is late by up to this, which is counted as any lateness is.
const GAP: Duration = Duration::from_micros(100);

/// Rings at or soon after each moment of a schedule. Dropping it ends the thread.
#[derive(Debug)]
pub(crate) struct Pacer {
    bell: Arc<Notify>,
    stop: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Pacer {
    /// Starts the schedule at `start`.
    pub(crate) fn start(schedule: Schedule, start: Instant) -> Result<Self, LoadError> {
        let bell = Arc::new(Notify::new());
        let (stop, stopped) = sync_channel(1);
        let ours = bell.clone();
        let thread = std::thread::Builder::new()
            .name("fanin-load-pacer".into())
            .spawn(move || pace(schedule, start, &bell, &stopped))
            .map_err(LoadError::Thread)?;
        Ok(Self { bell: ours, stop: Some(stop), thread: Some(thread) })
    }

    /// Ready once it has rung since the last time.
    pub(crate) async fn rings(&self) {
        self.bell.notified().await;
    }
}

impl Drop for Pacer {
    fn drop(&mut self) {
        // Its timed wait ends.
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // It never panics, and a panic would have been printed.
            drop(thread.join());
        }
    }
}

fn pace(schedule: Schedule, start: Instant, bell: &Notify, stopped: &Receiver<()>) {
    let mut rung = start;
    for at in schedule {
        let moment = start + at;
        // The last ring was for this one, too.
        if moment <= rung && !at.is_zero() {
            continue;
        }
        let left = moment.max(rung + GAP).saturating_duration_since(Instant::now());
        if stopped.recv_timeout(left) != Err(RecvTimeoutError::Timeout) {
            return;
        }
        rung = Instant::now();
        bell.notify_one();
    }
}
