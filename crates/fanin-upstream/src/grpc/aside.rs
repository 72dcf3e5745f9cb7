//! Large messages are converted on a thread of their own, so that no worker is held for them.

use std::sync::OnceLock;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};

use tokio::sync::oneshot;

use crate::error::Failure;

/// Messages of more bytes than this take longer to convert than a worker should be held.
const LARGE: usize = 256 << 10;

/// Conversions that may wait for the thread; beyond it workers do them themselves.
const QUEUE: usize = 64;

type Job = Box<dyn FnOnce() + Send>;

/// Does some work on so many bytes, here or aside. What nobody waits for any more is not begun.
pub(crate) async fn aside<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    if bytes <= LARGE {
        return Ok(work());
    }
    let (reply, done) = oneshot::channel();
    let job: Job = Box::new(move || {
        if !reply.is_closed() {
            let _ = reply.send(work());
        }
    });
    match thread().map(|thread| thread.try_send(job)) {
        Some(Ok(())) => {}
        Some(Err(TrySendError::Full(job) | TrySendError::Disconnected(job))) => job(),
        None => {}
    }
    done.await.map_err(|_| Failure::ours("the thread that converts messages is not there"))
}

fn thread() -> Option<&'static SyncSender<Job>> {
    static THREAD: OnceLock<Option<SyncSender<Job>>> = OnceLock::new();
    let made = THREAD.get_or_init(|| {
        let (sender, jobs) = sync_channel::<Job>(QUEUE);
        let run = move || jobs.into_iter().for_each(|job| job());
        match std::thread::Builder::new().name("fanin-grpc".to_owned()).spawn(run) {
            Ok(_) => Some(sender),
            Err(error) => {
                tracing::error!(%error, "no thread for large gRPC messages");
                None
            }
        }
    });
    made.as_ref()
}
