//! One thread for conversions that would hold a worker too long: large gRPC messages, large compressed answers.

use fanin_io::job_thread::{JobThread, Slot};

use crate::error::Failure;

static THREAD: JobThread = JobThread::new("fanin-offload");

/// A slot in the queue. `None` if it is full or there is no thread: the worker then does the work itself, in steps.
pub(crate) fn slot() -> Option<Slot> {
    THREAD.try_slot()
}

/// A slot in the queue, as soon as there is one. `None` if there is no thread.
pub(crate) async fn next_slot() -> Option<Slot> {
    THREAD.slot().await
}

/// Does some work on the thread. `work` gets a function that tells whether nobody waits for it any more.
pub(crate) async fn run<T: Send + 'static>(
    slot: Slot,
    work: impl FnOnce(&dyn Fn() -> bool) -> T + Send + 'static,
) -> Result<T, Failure> {
    slot.run(work).await.ok_or_else(|| Failure::ours("the thread for large conversions has ended"))
}
