//! Runs a future on a thread that blocks while it waits.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use super::quiescence::Motion;

/// Wakes the thread that runs a request. One for each request, rung by whatever its flow waits for.
pub(super) struct Bell {
    thread: Thread,
    rung: AtomicBool,
    /// In paused time: counts this thread while it moves, and once more while the bell has rung and it has not heard it.
    motion: Option<Arc<Motion>>,
}

impl Bell {
    /// A bell of the current thread.
    pub(super) fn new(motion: Option<Arc<Motion>>) -> Arc<Bell> {
        Arc::new(Bell { thread: std::thread::current(), rung: AtomicBool::new(false), motion })
    }

    /// Wakes the thread, or keeps it from blocking the next time.
    pub(super) fn ring(&self) {
        if !self.rung.load(Ordering::Acquire) {
            // Before it can be heard, so that nobody finds all still in between.
            if let Some(motion) = &self.motion {
                motion.begin();
            }
            if self.rung.swap(true, Ordering::AcqRel) {
                self.end();
            } else {
                self.thread.unpark();
            }
        }
    }

    /// Blocks until the bell rings, or goes on at once if it has.
    fn hear(&self) {
        self.end();
        while !self.rung.swap(false, Ordering::AcqRel) {
            std::thread::park();
        }
    }

    /// The request has ended: who rings now rings for nobody.
    fn close(&self) {
        if self.rung.swap(true, Ordering::AcqRel) {
            self.end();
        }
    }

    fn end(&self) {
        if let Some(motion) = &self.motion {
            motion.end();
        }
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.ring();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ring();
    }
}

/// Polls until the future ends, or until `ended` says that nobody wants its outcome: `None`. Blocks in between.
pub(super) fn block_on<F: Future>(bell: &Arc<Bell>, mut future: Pin<&mut F>, ended: &AtomicBool) -> Option<F::Output> {
    let _closes = Closes(bell);
    let waker = Waker::from(bell.clone());
    let mut context = Context::from_waker(&waker);
    loop {
        if ended.load(Ordering::Acquire) {
            return None;
        }
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
        bell.hear();
    }
}

/// Closes a bell also when the flow panics.
struct Closes<'b>(&'b Bell);

impl Drop for Closes<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}
