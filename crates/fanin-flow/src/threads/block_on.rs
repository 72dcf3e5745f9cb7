//! Runs a future on a thread that blocks while it waits.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use super::quiescence::Quiescence;

/// Wakes the thread that runs a request. One for each request, rung by whatever its flow waits for.
pub(super) struct Wakeup {
    thread: Thread,
    woken: AtomicBool,
    /// In paused time: counts this thread while it moves, and once more while the bell has rung and it has not heard it.
    quiescence: Option<Arc<Quiescence>>,
}

impl Wakeup {
    /// A bell of the current thread.
    pub(super) fn new(quiescence: Option<Arc<Quiescence>>) -> Arc<Wakeup> {
        Arc::new(Wakeup { thread: std::thread::current(), woken: AtomicBool::new(false), quiescence })
    }

    /// Wakes the thread, or keeps it from blocking the next time.
    pub(super) fn wake_thread(&self) {
        if !self.woken.load(Ordering::Acquire) {
            // Before it can be heard, so that nobody finds all still in between.
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

    /// Blocks until the bell rings, or goes on at once if it has.
    fn park(&self) {
        self.end();
        while !self.woken.swap(false, Ordering::AcqRel) {
            std::thread::park();
        }
    }

    /// The request has ended: who rings now rings for nobody.
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

/// Polls until the future ends, or until `ended` says that nobody wants its outcome: `None`. Blocks in between.
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

/// Closes a bell also when the flow panics.
struct CloseOnDrop<'b>(&'b Wakeup);

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}
