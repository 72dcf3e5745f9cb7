//! What a worker does, as other threads see it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Signs of life of one worker. Only the worker writes, so no write needs more than a relaxed store.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    /// Grows with each piece of work that begins.
    turn: AtomicU64,
    /// The worker sleeps until something happens: it cannot be held.
    parked: AtomicBool,
    /// It slept since it was asked last.
    slept: AtomicBool,
    activity: AtomicU64,
}

impl Pulse {
    /// A piece of work begins.
    #[inline]
    pub(crate) fn turn(&self) {
        self.turn.store(self.turn.load(Relaxed).wrapping_add(1), Relaxed);
    }

    pub(crate) fn park(&self) {
        self.parked.store(true, Relaxed);
    }

    pub(crate) fn unpark(&self) {
        self.parked.store(false, Relaxed);
        self.slept.store(true, Relaxed);
        self.turn();
    }

    /// Whether the worker slept since it was asked last. For the worker itself.
    #[inline]
    pub(crate) fn has_slept(&self) -> bool {
        let slept = self.slept.load(Relaxed);
        if slept {
            self.slept.store(false, Relaxed);
        }
        slept
    }

    /// The turn it is in, if it is in one.
    pub(crate) fn running(&self) -> Option<u64> {
        (!self.parked.load(Relaxed)).then(|| self.turn.load(Relaxed))
    }

    pub(crate) fn activity(&self) -> u64 {
        self.activity.load(Relaxed)
    }
}

/// Where an application says what its worker is running: one relaxed store, cheap enough for each step of a flow. When the
/// worker is held too long, the watchdog asks [`Application::describe`](crate::Application::describe) about the value.
#[derive(Clone, Debug)]
pub struct Activity(pub(crate) Arc<Pulse>);

impl Activity {
    /// An activity that no watchdog looks at, for tests.
    pub fn detached() -> Activity {
        Activity(Arc::default())
    }

    /// Says what runs now. 0 means nothing in particular.
    #[inline]
    pub fn set(&self, activity: u64) {
        self.0.activity.store(activity, Relaxed);
    }

    /// Says that nothing in particular runs.
    #[inline]
    pub fn clear(&self) {
        self.set(0);
    }
}
