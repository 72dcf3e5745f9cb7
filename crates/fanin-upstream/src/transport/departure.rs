//! When requests leave: those of one lap of the worker together.
//!
//! A request that is written as soon as it is made finds the other side asleep as a rule, since this side computes for a while
//! between any two: the kernel wakes it, which costs the sender more than the sending, and it falls asleep again before the next.
//! Written behind whatever else is ready, one after the other, most requests find it awake. Hand-written servers on hyper have this
//! by the way, because their requests pass through a queue to a connection's own task. A worker that has nothing else to do sends
//! at once: one more turn of the flow's task is all that it costs.

use std::future::poll_fn;
use std::mem;
use std::task::Poll;

use crate::limit::wake_behind;

/// Waits until the worker has run what is ready now.
pub(in crate::transport) async fn together() {
    let mut waits = true;
    poll_fn(|cx| {
        if mem::take(&mut waits) {
            wake_behind(cx.waker());
            return Poll::Pending;
        }
        Poll::Ready(())
    })
    .await;
}
