//! Write coalescing of requests, see [`fanin_io::write_coalescing`]: those of one event loop iteration are written together.
//!
//! A short request over plain TCP is handed over as bytes ([`push`]); its call need not be polled for the write. Other requests wait
//! as calls ([`after_ready_tasks`]) and are written when their flow's task runs again.

use std::future::poll_fn;
use std::mem;
use std::rc::Rc;
use std::task::{Poll, Waker};

use fanin_io::write_coalescing::{BatchTarget, WriteBatch};

use crate::limiter::wake_after_poll;

/// Wakes whoever awaits the answer to a written request.
pub(in crate::transport) struct AnswerWaker(pub(in crate::transport) Waker);

thread_local! {
    /// The requests of this thread.
    static BATCH: Rc<WriteBatch<AnswerWaker>> = Rc::default();
}

/// Waits until the worker has run what is ready now.
pub(in crate::transport) async fn after_ready_tasks() {
    let mut waits = true;
    poll_fn(|cx| {
        if mem::take(&mut waits) {
            wake_after_poll(cx.waker());
            return Poll::Pending;
        }
        Poll::Ready(())
    })
    .await;
}

/// Has `bytes` written to `target` once the worker has run what is ready now. To be called where `spawn_local` works.
pub(in crate::transport) fn push(target: Rc<dyn BatchTarget<AnswerWaker>>, bytes: &[u8], waker: &Waker) {
    BATCH.with(|batch| {
        batch.append(target, AnswerWaker(waker.clone()), |pending| {
            pending.extend_from_slice(bytes);
            true
        });
        if !batch.has_writer() {
            tokio::task::spawn_local(batch.writer());
        }
    });
}

/// From now on `waker` is the one of the pending write to `target`.
#[cold]
pub(in crate::transport) fn set_waker(target: &Rc<dyn BatchTarget<AnswerWaker>>, waker: &Waker) {
    BATCH.with(|batch| batch.update_context(target, |pending| pending.0.clone_from(waker)));
}

/// Drops the pending write to `target`.
#[cold]
pub(in crate::transport) fn withdraw(target: &Rc<dyn BatchTarget<AnswerWaker>>) {
    BATCH.with(|batch| batch.withdraw(target));
}
