//! A thread for work that would hold a worker too long, done in order of age.

use std::sync::OnceLock;

use tokio::sync::mpsc::{self, Permit};
use tokio::sync::oneshot;

/// Jobs that may wait for the thread. Further ones wait for a place in front of it.
const QUEUE: usize = 64;

type Job = Box<dyn FnOnce() + Send>;

/// One thread of lower priority than the workers, which starts with its first job and ends with the process.
#[derive(Debug)]
pub struct JobThread {
    name: &'static str,
    jobs: OnceLock<Option<mpsc::Sender<Job>>>,
}

/// A place in the thread's queue.
#[derive(Debug)]
pub struct Slot(Permit<'static, Job>);

impl JobThread {
    /// A thread of this name.
    pub const fn new(name: &'static str) -> JobThread {
        JobThread { name, jobs: OnceLock::new() }
    }

    /// A place in the queue. `None` if it is full or there is no thread: who asks then does the work itself.
    pub fn try_slot(&'static self) -> Option<Slot> {
        self.jobs()?.try_reserve().ok().map(Slot)
    }

    /// A place in the queue, as soon as there is one. `None` if there is no thread.
    pub async fn slot(&'static self) -> Option<Slot> {
        self.jobs()?.reserve().await.ok().map(Slot)
    }

    fn jobs(&self) -> Option<&mpsc::Sender<Job>> {
        self.jobs.get_or_init(|| start(self.name)).as_ref()
    }
}

impl Slot {
    /// Does some work on the thread. It is not begun if nobody waits for it any more. `work` gets a function that tells
    /// whether that has happened since. `None`: the thread has ended, which is a defect.
    pub async fn run<T: Send + 'static>(self, work: impl FnOnce(&dyn Fn() -> bool) -> T + Send + 'static) -> Option<T> {
        let (reply, done) = oneshot::channel();
        self.0.send(Box::new(move || {
            if !reply.is_closed() {
                let result = work(&|| reply.is_closed());
                let _ = reply.send(result);
            }
        }));
        done.await.ok()
    }
}

fn start(name: &'static str) -> Option<mpsc::Sender<Job>> {
    let (sender, mut jobs) = mpsc::channel::<Job>(QUEUE);
    let run = move || {
        lower_priority();
        while let Some(job) = jobs.blocking_recv() {
            job();
        }
    };
    match std::thread::Builder::new().name(name.to_owned()).spawn(run) {
        Ok(_) => Some(sender),
        Err(error) => {
            tracing::error!(%error, "no thread {name}: workers do its work");
            None
        }
    }
}

/// Lowers this thread's priority below that of the workers. On a busy core it would otherwise take turns with them, in time slices of
/// milliseconds. Linux applies niceness per thread; elsewhere it is left alone.
pub fn lower_priority() {
    #[cfg(target_os = "linux")]
    {
        const NICE: i32 = 10;
        if let Err(error) = rustix::process::nice(NICE) {
            tracing::debug!(%error, "a thread for long work runs at the priority of the workers");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn more_jobs_than_the_queue_holds_are_all_done_and_dropped_ones_are_not_begun() {
        static THREAD: JobThread = JobThread::new("test-jobs");
        static BEGUN: AtomicUsize = AtomicUsize::new(0);
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let first = THREAD.try_slot().expect("a thread").run(move |_| wait.recv());
        let slots: Vec<_> = std::iter::from_fn(|| THREAD.try_slot()).collect();
        assert_eq!(slots.len() + 1, QUEUE);
        let job = |slot: Slot, number| {
            slot.run(move |is_abandoned| {
                BEGUN.fetch_add(1, Ordering::Relaxed);
                (number, is_abandoned())
            })
        };
        let mut waiting: Vec<_> = slots.into_iter().enumerate().map(|(at, slot)| Box::pin(job(slot, at))).collect();
        let first = tokio::spawn(first);
        for job in &mut waiting {
            assert!(is_pending(job).await);
        }
        // One more waits for its place.
        let late = tokio::spawn(async { THREAD.slot().await.expect("a thread").run(|_| "late").await });
        waiting.truncate(QUEUE / 2);
        go.send(()).expect("the first job waits");
        assert_eq!(first.await.expect("it ran"), Some(Ok(())));
        for (at, job) in waiting.into_iter().enumerate() {
            assert_eq!(job.await, Some((at, false)));
        }
        assert_eq!(late.await.expect("it ran"), Some("late"));
        assert_eq!(BEGUN.load(Ordering::Relaxed), QUEUE / 2);
    }

    /// Polls once. Whether it is pending.
    async fn is_pending<F: Future + Unpin>(future: &mut F) -> bool {
        std::future::poll_fn(|cx| std::task::Poll::Ready(std::pin::Pin::new(&mut *future).poll(cx).is_pending())).await
    }
}
