//! The pacer: a thread that hands out moments when they come.
//!
//! The runtime's timer rounds to milliseconds, which would bunch a rate of thousands and show as latency that the server
//! does not have; a thread's own timed wait is exact to some tens of microseconds.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Instant;

use tokio::sync::mpsc;

use crate::error::LoadError;
use crate::shape::Schedule;

/// Moments that may wait for the generator; it counts as late from the moment itself, so the length hides nothing.
const QUEUE: usize = 4096;

/// Gives each scheduled moment once it has come. Dropping it ends the thread.
#[derive(Debug)]
pub(crate) struct Pacer {
    due: mpsc::Receiver<Instant>,
    stop: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Pacer {
    /// Starts the schedule at `start`.
    pub(crate) fn start(schedule: Schedule, start: Instant) -> Result<Self, LoadError> {
        let (send, due) = mpsc::channel(QUEUE);
        let (stop, stopped) = sync_channel(1);
        let thread = std::thread::Builder::new()
            .name("fanin-load-pacer".into())
            .spawn(move || pace(schedule, start, &send, &stopped))
            .map_err(LoadError::Thread)?;
        Ok(Self { due, stop: Some(stop), thread: Some(thread) })
    }

    /// The next moment, once it has come; `None` after the last.
    pub(crate) async fn next(&mut self) -> Option<Instant> {
        self.due.recv().await
    }
}

impl Drop for Pacer {
    fn drop(&mut self) {
        // Both ways in which the thread can wait end: its timed wait, and a full queue.
        self.stop = None;
        self.due.close();
        if let Some(thread) = self.thread.take() {
            // It never panics, and a panic would have been printed.
            drop(thread.join());
        }
    }
}

fn pace(schedule: Schedule, start: Instant, due: &mpsc::Sender<Instant>, stopped: &Receiver<()>) {
    for at in schedule {
        let moment = start + at;
        let left = moment.saturating_duration_since(Instant::now());
        if !left.is_zero() && stopped.recv_timeout(left) != Err(RecvTimeoutError::Timeout) {
            return;
        }
        if due.blocking_send(moment).is_err() {
            return;
        }
    }
}
