//! The threads that read files, so that no worker waits for a disk.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use fanin_io::job_thread::JobThread;

/// Threads of the process. Each has a bounded queue, in front of which requests wait in the order in which they came.
static THREADS: [JobThread; 4] = [
    JobThread::new("fanin-static-0"),
    JobThread::new("fanin-static-1"),
    JobThread::new("fanin-static-2"),
    JobThread::new("fanin-static-3"),
];
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// Does some work on one of them. It is not begun if nobody waits for it any more. `None`: there is no thread.
pub(super) async fn run<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let thread = &THREADS[NEXT.fetch_add(1, Relaxed) % THREADS.len()];
    thread.slot().await?.run(move |_| work()).await
}
