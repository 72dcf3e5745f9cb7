//! State of a connection that its task, its responses and its thread share: pending answers, and why it is to be closed.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::Duration;

use slab::Slab;

/// Interval of the check for stalled readers and idle connections.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// A connection whose pending answers did not advance during this many checks is closed: after 30 to 35 seconds.
const MAX_STALLED_CHECKS: u32 = 7;

/// Why a connection is to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CloseReason {
    /// Its client stopped reading an answer.
    StalledReader,
    /// Its client has made no request for `models.idle_timeout`.
    Idle,
    /// The server drains.
    Drain,
}

/// What is known of a connection while it is open.
#[derive(Default)]
pub(super) struct ConnectionState {
    /// Answers that have not been handed to the connection in full.
    pending_answers: Cell<usize>,
    /// Checks since a part of an answer was handed over.
    stalled_checks: Cell<u32>,
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
        f.debug_struct("ConnectionState").field("pending", &self.pending_answers).field("close", &self.close).finish()
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
    /// A connection that may be idle for this long.
    pub fn new(idle_timeout: Duration) -> ConnectionState {
        let checks = idle_timeout.as_millis().div_ceil(CHECK_INTERVAL.as_millis()) + 1;
        ConnectionState { max_idle_checks: u32::try_from(checks).unwrap_or(u32::MAX), ..ConnectionState::default() }
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

    /// An answer begins to go out on the connection.
    pub fn answer_started(&self) {
        self.pending_answers.set(self.pending_answers.get() + 1);
        self.answer_progressed();
    }

    /// An answer was handed over in full, or dropped.
    pub fn answer_ended(&self) {
        self.pending_answers.set(self.pending_answers.get() - 1);
    }

    /// The connection had room for a part of an answer.
    pub fn answer_progressed(&self) {
        self.stalled_checks.set(0);
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

    /// Pending answers, and requests.
    #[cfg(test)]
    pub fn counts(&self) -> (usize, usize) {
        (self.pending_answers.get(), self.requests.get())
    }

    fn check(&self) {
        if self.pending_answers.get() > 0 {
            self.stalled_checks.set(self.stalled_checks.get() + 1);
            if self.stalled_checks.get() >= MAX_STALLED_CHECKS {
                self.close(CloseReason::StalledReader);
            }
        }
        if self.pending_answers.get() > 0 || self.requests.get() > 0 {
            self.idle_checks.set(0);
        } else if self.max_idle_checks > 0 {
            self.idle_checks.set(self.idle_checks.get().saturating_add(1));
            if self.idle_checks.get() >= self.max_idle_checks && self.close.get().is_none() {
                self.close(CloseReason::Idle);
            }
        }
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

    /// Checks all of them periodically for stalled readers and idle ones. Ends with the thread's runtime.
    pub async fn watch(&self) {
        loop {
            tokio::time::sleep(CHECK_INTERVAL).await;
            self.0.borrow().iter().for_each(|(_, state)| state.check());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stalled_reader_is_told_from_a_slow_one() {
        let state = ConnectionState::default();
        let checks = |count| (0..count).for_each(|_| state.check());
        let cx = Context::from_waker(Waker::noop());
        // No answer is pending.
        checks(2 * MAX_STALLED_CHECKS);
        assert_eq!(state.poll_close(&cx), None);
        state.answer_started();
        for _ in 0..3 {
            checks(MAX_STALLED_CHECKS - 1);
            assert_eq!(state.poll_close(&cx), None);
            state.answer_progressed();
        }
        // An answer that was read or dropped no longer counts.
        state.answer_ended();
        checks(2 * MAX_STALLED_CHECKS);
        assert_eq!(state.poll_close(&cx), None);
        state.answer_started();
        checks(MAX_STALLED_CHECKS);
        assert_eq!(state.poll_close(&cx), Some(CloseReason::StalledReader));
    }

    #[test]
    fn a_connection_is_idle_without_requests_and_answers() {
        let state = ConnectionState::new(4 * CHECK_INTERVAL);
        let checks = |count| (0..count).for_each(|_| state.check());
        let cx = Context::from_waker(Waker::noop());
        checks(4);
        let request = state.request();
        checks(100);
        drop(request);
        state.answer_started();
        checks(1);
        state.answer_ended();
        checks(4);
        assert_eq!(state.poll_close(&cx), None);
        checks(1);
        assert_eq!(state.poll_close(&cx), Some(CloseReason::Idle));
    }
}
