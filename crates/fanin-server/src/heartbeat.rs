//! What a worker does, as other threads see it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Signs of life of one worker. Only the worker writes, so a relaxed store is enough.
#[derive(Debug, Default)]
pub(crate) struct Heartbeat {
    /// Grows with each piece of work that begins.
    beats: AtomicU64,
    /// The worker sleeps until an event: it cannot be stalled.
    parked: AtomicBool,
    /// It slept since [`take_slept`](Self::take_slept) was called last.
    slept: AtomicBool,
    activity: AtomicU64,
}

impl Heartbeat {
    /// A piece of work begins.
    #[inline]
    pub(crate) fn beat(&self) {
        self.beats.store(self.beats.load(Relaxed).wrapping_add(1), Relaxed);
    }

    pub(crate) fn park(&self) {
        self.parked.store(true, Relaxed);
    }

    pub(crate) fn unpark(&self) {
        self.parked.store(false, Relaxed);
        self.slept.store(true, Relaxed);
        self.beat();
    }

    /// Whether the worker slept since the last call. For the worker itself.
    #[inline]
    pub(crate) fn take_slept(&self) -> bool {
        let slept = self.slept.load(Relaxed);
        if slept {
            self.slept.store(false, Relaxed);
        }
        slept
    }

    /// The present beat, unless the worker sleeps.
    pub(crate) fn awake_beat(&self) -> Option<u64> {
        (!self.parked.load(Relaxed)).then(|| self.beats.load(Relaxed))
    }

    pub(crate) fn activity(&self) -> u64 {
        self.activity.load(Relaxed)
    }
}

/// Where an application records what its worker is running: one relaxed store, cheap enough for each step of a flow. If the worker
/// stalls, the watchdog passes the value to [`Application::describe`](crate::Application::describe).
#[derive(Clone, Debug)]
pub struct Activity(pub(crate) Arc<Heartbeat>);

impl Activity {
    /// An activity that no watchdog reads, for tests.
    pub fn detached() -> Activity {
        Activity(Arc::default())
    }

    /// Records what runs now. 0 means nothing in particular.
    #[inline]
    pub fn set(&self, activity: u64) {
        self.0.activity.store(activity, Relaxed);
    }

    /// Records that nothing in particular runs.
    #[inline]
    pub fn clear(&self) {
        self.set(0);
    }
}
