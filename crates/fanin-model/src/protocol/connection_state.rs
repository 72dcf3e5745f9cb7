//! State of a connection that its task, its responses and its thread share: answers that the client has not
//! read, and why it is to be closed.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::Duration;

use fanin_io::min_rate::{MinRate, Unsent};
use slab::Slab;
use tokio::time::Instant;

/// Interval of the check for slow readers and idle connections.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Why a connection is to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CloseReason {
    /// Its client reads its answers slower than the minimum rate.
    SlowReader,
    /// Its client has made no request for `models.idle_timeout`.
    Idle,
    /// The server drains.
    Drain,
}

/// What is known of a connection while it is open.
pub(super) struct ConnectionState {
    /// Bytes of answers that the client has not read.
    unsent: Unsent,
    min_read: MinRate,
    /// Requests that are being read or answered.
    requests: Cell<usize>,
    /// Checks since the last request or answer, or since the connection was opened.
    idle_checks: Cell<u32>,
    /// A connection is idle after this many checks; 0: never.
    max_idle_checks: u32,
    close: Cell<Option<CloseReason>>,
    /// Wakes the connection's task.
    waker: Cell<Option<Waker>>,
}

impl fmt::Debug for ConnectionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionState").field("unsent", &self.unsent).field("close", &self.close).finish()
    }
}

/// Counts a request of a connection until dropped.
pub(super) struct OpenRequest<'a>(&'a ConnectionState);

impl Drop for OpenRequest<'_> {
    fn drop(&mut self) {
        self.0.requests.set(self.0.requests.get() - 1);
    }
}

impl ConnectionState {
    /// A connection as it has just been accepted.
    pub fn new(config: &fanin_config::Models) -> ConnectionState {
        let checks = config.idle_timeout.as_millis().div_ceil(CHECK_INTERVAL.as_millis()) + 1;
        ConnectionState {
            unsent: Unsent::default(),
            min_read: MinRate { rate: config.min_read_rate, window: config.slow_reader_timeout },
            requests: Cell::default(),
            idle_checks: Cell::default(),
            max_idle_checks: u32::try_from(checks).unwrap_or(u32::MAX),
            close: Cell::default(),
            waker: Cell::default(),
        }
    }

    /// A request has come.
    pub fn request(&self) -> OpenRequest<'_> {
        self.requests.set(self.requests.get() + 1);
        self.idle_checks.set(0);
        OpenRequest(self)
    }

    /// An answer that is a stream begins: its request goes on until it ends.
    pub fn stream_started(&self) {
        self.requests.set(self.requests.get() + 1);
    }

    /// Such an answer has ended.
    pub fn stream_ended(&self) {
        self.requests.set(self.requests.get() - 1);
    }

    /// Whether the connection is to be closed. Registers the task to be woken if not.
    pub fn poll_close(&self, cx: &Context<'_>) -> Option<CloseReason> {
        let close = self.close.get();
        if close.is_none() {
            let waker = self.waker.take().filter(|waker| waker.will_wake(cx.waker()));
            self.waker.set(Some(waker.unwrap_or_else(|| cx.waker().clone())));
        }
        close
    }

    /// Asks the connection's task to close it.
    pub fn close(&self, why: CloseReason) {
        self.close.set(Some(why));
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Bytes that the client has not read, and requests.
    #[cfg(test)]
    pub fn counts(&self) -> (usize, usize) {
        (self.unsent.bytes(), self.requests.get())
    }

    fn check(&self, now: Instant) {
        if self.unsent.is_slow(self.min_read, now.into_std()) {
            self.close(CloseReason::SlowReader);
        }
        if self.unsent.bytes() > 0 || self.requests.get() > 0 {
            self.idle_checks.set(0);
        } else if self.max_idle_checks > 0 {
            self.idle_checks.set(self.idle_checks.get().saturating_add(1));
            if self.idle_checks.get() >= self.max_idle_checks && self.close.get().is_none() {
                self.close(CloseReason::Idle);
            }
        }
    }
}

impl AsRef<Unsent> for ConnectionState {
    fn as_ref(&self) -> &Unsent {
        &self.unsent
    }
}

/// The open connections of a thread.
#[derive(Debug, Default)]
pub(super) struct Connections(RefCell<Slab<Rc<ConnectionState>>>);

impl Connections {
    /// Adds a connection. Returns the key that [`Connections::remove`] takes.
    pub fn add(&self, state: Rc<ConnectionState>) -> usize {
        self.0.borrow_mut().insert(state)
    }

    pub fn remove(&self, key: usize) {
        self.0.borrow_mut().remove(key);
    }

    pub fn count(&self) -> usize {
        self.0.borrow().len()
    }

    /// Closes all of them gracefully.
    pub fn drain(&self) {
        self.0.borrow().iter().for_each(|(_, state)| state.close(CloseReason::Drain));
    }

    /// Checks all of them periodically for slow readers and idle ones. Ends with the thread's runtime.
    pub async fn watch(&self) {
        loop {
            tokio::time::sleep(CHECK_INTERVAL).await;
            let now = Instant::now();
            self.0.borrow().iter().for_each(|(_, state)| state.check(now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection that is checked by a clock of its own.
    struct Checked(ConnectionState, Cell<Instant>);

    impl Checked {
        fn new() -> Checked {
            let config = fanin_config::Models {
                idle_timeout: 4 * CHECK_INTERVAL,
                slow_reader_timeout: 4 * CHECK_INTERVAL,
                min_read_rate: 10,
                ..fanin_config::Models::new("")
            };
            Checked(ConnectionState::new(&config), Cell::new(Instant::now()))
        }

        fn after(&self, checks: u32) -> Option<CloseReason> {
            for _ in 0..checks {
                self.1.set(self.1.get() + CHECK_INTERVAL);
                self.0.check(self.1.get());
            }
            self.0.poll_close(&Context::from_waker(Waker::noop()))
        }
    }

    #[test]
    fn a_client_that_reads_too_slowly_is_told_from_one_that_reads() {
        let state = Checked::new();
        let unsent = &state.0.unsent;
        unsent.add(1_000);
        assert_eq!(state.after(1), None);
        for _ in 0..3 {
            unsent.take(40);
            assert_eq!(state.after(5), None);
        }
        unsent.take(880);
        // An answer that was read no longer counts.
        assert_eq!(state.after(3), None);
        unsent.add(1_000);
        unsent.take(39);
        assert_eq!(state.after(6), Some(CloseReason::SlowReader));
    }

    #[test]
    fn a_connection_is_idle_without_requests_and_answers() {
        let state = Checked::new();
        assert_eq!(state.after(4), None);
        let request = state.0.request();
        assert_eq!(state.after(100), None);
        drop(request);
        state.0.unsent.add(1);
        assert_eq!(state.after(1), None);
        state.0.unsent.take(1);
        assert_eq!(state.after(4), None);
        assert_eq!(state.after(1), Some(CloseReason::Idle));
    }
}
