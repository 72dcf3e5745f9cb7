//! How a publisher wakes a worker: once for any number of events and subscribers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

/// The channels of one worker that have new events.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    /// Each channel is in it at most once, so the worker's number of channels bounds it.
    changed: Mutex<Vec<Arc<Listener>>>,
    notify: Notify,
}

/// A channel's subscribers on one worker.
#[derive(Debug)]
pub(crate) struct Listener {
    mailbox: Arc<Mailbox>,
    /// The channel as its worker numbers it.
    pub(crate) channel: usize,
    is_listed: AtomicBool,
}

impl Listener {
    pub(crate) fn new(mailbox: &Arc<Mailbox>, channel: usize) -> Listener {
        Listener { mailbox: mailbox.clone(), channel, is_listed: AtomicBool::new(false) }
    }

    /// The channel has a new event.
    pub(crate) fn wake(self: &Arc<Self>) {
        if !self.is_listed.swap(true, Ordering::AcqRel) {
            // Neither adding nor taking can leave the list half changed.
            self.mailbox.changed.lock().unwrap_or_else(PoisonError::into_inner).push(self.clone());
            self.mailbox.notify.notify_one();
        }
    }
}

impl Mailbox {
    /// Waits until a channel has new events.
    pub(crate) async fn changed(&self) {
        self.notify.notified().await;
    }

    /// The channels with new events. An event from now on lists its channel again.
    pub(crate) fn take(&self) -> Vec<Arc<Listener>> {
        let changed = std::mem::take(&mut *self.changed.lock().unwrap_or_else(PoisonError::into_inner));
        changed.iter().for_each(|listener| listener.is_listed.store(false, Ordering::Release));
        changed
    }
}
