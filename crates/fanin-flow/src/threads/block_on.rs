//! Runs a future on a thread, which parks while the future is pending.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use super::quiescence::Quiescence;

/// The waker of the thread that runs a request. Each request has its own.
pub(super) struct Wakeup {
    thread: Thread,
    woken: AtomicBool,
    /// In paused time: counts this thread while it is active, and once more between a wake-up and the end of its parking.
    quiescence: Option<Arc<Quiescence>>,
}

impl Wakeup {
    /// For the current thread.
    pub(super) fn new(quiescence: Option<Arc<Quiescence>>) -> Arc<Wakeup> {
        Arc::new(Wakeup { thread: std::thread::current(), woken: AtomicBool::new(false), quiescence })
    }

    /// Wakes the thread, or makes its next `park` return at once.
    pub(super) fn wake_thread(&self) {
        if !self.woken.load(Ordering::Acquire) {
            // Before the flag is set, so that the pool never counts as idle in between.
            if let Some(quiescence) = &self.quiescence {
                quiescence.begin();
            }
            if self.woken.swap(true, Ordering::AcqRel) {
                self.end();
            } else {
                self.thread.unpark();
            }
        }
    }

    /// Blocks until the next wake-up. Returns at once if there has been one.
    fn park(&self) {
        self.end();
        while !self.woken.swap(false, Ordering::AcqRel) {
            std::thread::park();
        }
    }

    /// The request has ended: later wake-ups have no effect.
    fn close(&self) {
        if self.woken.swap(true, Ordering::AcqRel) {
            self.end();
        }
    }

    fn end(&self) {
        if let Some(quiescence) = &self.quiescence {
            quiescence.end();
        }
    }
}

impl Wake for Wakeup {
    fn wake(self: Arc<Self>) {
        self.wake_thread();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.wake_thread();
    }
}

/// Polls the future until it is ready. `None` if `ended` was set before: its outcome is not needed. Parks in between.
pub(super) fn block_on<F: Future>(
    wakeup: &Arc<Wakeup>,
    mut future: Pin<&mut F>,
    ended: &AtomicBool,
) -> Option<F::Output> {
    let _close = CloseOnDrop(wakeup);
    let waker = Waker::from(wakeup.clone());
    let mut context = Context::from_waker(&waker);
    loop {
        if ended.load(Ordering::Acquire) {
            return None;
        }
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
        wakeup.park();
    }
}

/// Closes the wake-up, also when the flow panics.
struct CloseOnDrop<'b>(&'b Wakeup);

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}
