//! State of a connection that its task, its responses and its thread share: pending answers, and why it is to be closed.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::Duration;

use slab::Slab;

/// Interval of the check for stalled readers.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// A connection whose pending answers did not advance during this many checks is closed: after 30 to 35 seconds.
const MAX_STALLED_CHECKS: u32 = 7;

/// Why a connection is to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CloseReason {
    /// Its client stopped reading an answer.
    StalledReader,
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
    close: Cell<Option<CloseReason>>,
    /// Wakes the connection's task.
    waker: Cell<Option<Waker>>,
}

impl fmt::Debug for ConnectionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionState").field("pending", &self.pending_answers).field("close", &self.close).finish()
    }
}

impl ConnectionState {
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

    fn check(&self) {
        if self.pending_answers.get() > 0 {
            self.stalled_checks.set(self.stalled_checks.get() + 1);
            if self.stalled_checks.get() >= MAX_STALLED_CHECKS {
                self.close(CloseReason::StalledReader);
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

    /// Checks all of them periodically for stalled readers. Ends with the thread's runtime.
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
}
