//! One thread for conversions that would hold a worker too long: large gRPC messages, large compressed answers.

use std::sync::OnceLock;

use tokio::sync::mpsc::{self, Permit};
use tokio::sync::oneshot;

use crate::error::Failure;

/// Conversions that may wait for the thread.
const QUEUE: usize = 64;

type Job = Box<dyn FnOnce() + Send>;

/// A slot in the thread's queue.
pub(crate) struct Slot(Permit<'static, Job>);

/// A slot in the queue. `None` if it is full or there is no thread: the worker then does the work itself, in steps.
pub(crate) fn slot() -> Option<Slot> {
    thread()?.try_reserve().ok().map(Slot)
}

/// A slot in the queue, as soon as there is one. `None` if there is no thread.
pub(crate) async fn next_slot() -> Option<Slot> {
    thread()?.reserve().await.ok().map(Slot)
}

impl Slot {
    /// Does some work on the thread. It is not begun if nobody waits for it any more. `work` gets a function that tells
    /// whether that has happened since.
    pub async fn run<T: Send + 'static>(
        self,
        work: impl FnOnce(&dyn Fn() -> bool) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let (reply, done) = oneshot::channel();
        self.0.send(Box::new(move || {
            if !reply.is_closed() {
                let result = work(&|| reply.is_closed());
                let _ = reply.send(result);
            }
        }));
        done.await.map_err(|_| Failure::ours("the thread for large conversions has ended"))
    }
}

/// Lowers this thread's priority below that of the workers, for whole conversions would otherwise take turns with them on a busy core,
/// in time slices of milliseconds. Linux applies niceness per thread; elsewhere it is left alone.
pub fn lower_priority() {
    #[cfg(target_os = "linux")]
    {
        const NICE: i32 = 10;
        if let Err(error) = rustix::process::nice(NICE) {
            tracing::debug!(%error, "large conversions run at the priority of the workers");
        }
    }
}

fn thread() -> Option<&'static mpsc::Sender<Job>> {
    static THREAD: OnceLock<Option<mpsc::Sender<Job>>> = OnceLock::new();
    let sender = THREAD.get_or_init(|| {
        let (sender, mut jobs) = mpsc::channel::<Job>(QUEUE);
        let run = move || {
            lower_priority();
            while let Some(job) = jobs.blocking_recv() {
                job();
            }
        };
        match std::thread::Builder::new().name("fanin-offload".to_owned()).spawn(run) {
            Ok(_) => Some(sender),
            Err(error) => {
                tracing::error!(%error, "no thread for large conversions: workers do them");
                None
            }
        }
    });
    sender.as_ref()
}
