//! The listeners and connections of one thread, and their drain.

use std::cell::Cell;

use tokio::sync::Notify;

use super::connection_state::Connections;

/// The listeners and connections of one thread.
#[derive(Debug, Default)]
pub struct Serving {
    pub(super) draining: Cell<bool>,
    /// Wakes listeners when draining begins.
    drain: Notify,
    pub(super) connections: Connections,
    /// Notified when a request was refused because the model queues are too long.
    pub(super) refused: Notify,
}

impl Serving {
    /// Stops accepting, and closes each connection gracefully once its requests are answered. No client sees an error.
    pub fn drain(&self) {
        self.draining.set(true);
        self.drain.notify_waiters();
        self.connections.drain();
    }

    /// OpenConnection connections of this thread.
    pub fn open(&self) -> usize {
        self.connections.count()
    }

    /// Completes when draining begins.
    pub(super) async fn drained(&self) {
        let notified = self.drain.notified();
        if !self.draining.get() {
            notified.await;
        }
    }
}
