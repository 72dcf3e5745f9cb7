//! The pacer: a thread that notifies the generator when requests are due.
//!
//! The runtime's timer rounds to milliseconds. That would bunch requests at high rates and show up as latency which the server
//! does not have. A thread's timed wait is exact to some tens of microseconds. Notifications are at least [`MIN_GAP`] apart, so
//! at high rates one stands for several requests.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::error::LoadError;
use crate::shape::Schedule;

/// Least time between two notifications. Requests due in between are late by up to this, which counts as lag.
const MIN_GAP: Duration = Duration::from_micros(100);

/// Notifies at or soon after each moment of a schedule. Dropping it ends the thread.
#[derive(Debug)]
pub(crate) struct Pacer {
    notify: Arc<Notify>,
    stop: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Pacer {
    /// Starts the schedule at `start`.
    pub(crate) fn start(schedule: Schedule, start: Instant) -> Result<Self, LoadError> {
        let notify = Arc::new(Notify::new());
        let (stop, stopped) = sync_channel(1);
        let ours = notify.clone();
        let thread = std::thread::Builder::new()
            .name("fanin-load-pacer".into())
            .spawn(move || run(schedule, start, &notify, &stopped))
            .map_err(LoadError::Thread)?;
        Ok(Self { notify: ours, stop: Some(stop), thread: Some(thread) })
    }

    /// Completes once a request has become due since the last call.
    pub(crate) async fn due(&self) {
        self.notify.notified().await;
    }
}

impl Drop for Pacer {
    fn drop(&mut self) {
        // Ends its timed wait.
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // It never panics, and a panic would have been printed.
            drop(thread.join());
        }
    }
}

fn run(schedule: Schedule, start: Instant, notify: &Notify, stopped: &Receiver<()>) {
    let mut last = start;
    for at in schedule {
        let moment = start + at;
        // The last notification covered this one.
        if moment <= last && !at.is_zero() {
            continue;
        }
        let left = moment.max(last + MIN_GAP).saturating_duration_since(Instant::now());
        if stopped.recv_timeout(left) != Err(RecvTimeoutError::Timeout) {
            return;
        }
        last = Instant::now();
        notify.notify_one();
    }
}
