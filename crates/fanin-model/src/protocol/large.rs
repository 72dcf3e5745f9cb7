//! A thread for the messages of clients that are large: whole, they would hold a worker too long.

use fanin_io::job_thread::JobThread;
use tokio::time::{Instant, timeout_at};

use super::status::{Code, Status};

static THREAD: JobThread = JobThread::new("fanin-tensors");

/// Work on more bytes is done on the thread. The slowest takes some 50 ns a byte.
pub(super) const LARGE: usize = 64 << 10;

/// Does some work on so many bytes: at once if they are few, on the thread otherwise, in order of age.
///
/// # Errors
/// The deadline passes before that.
pub(super) async fn off_worker<T: Send + 'static>(
    bytes: usize,
    deadline: Instant,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Status> {
    if bytes <= LARGE {
        return Ok(work());
    }
    let on_thread = async {
        match THREAD.slot().await {
            Some(slot) => slot.run(|_| work()).await,
            None => Some(work()),
        }
    };
    let late = |_| Status::new(Code::DeadlineExceeded, "the deadline passed while the message was converted");
    let done = timeout_at(deadline, on_thread).await.map_err(late)?;
    done.ok_or_else(|| Status::new(Code::Internal, "the thread for large messages has ended"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn small_work_stays_and_large_work_is_bounded_by_its_deadline() {
        let here = std::thread::current().id();
        let place = || std::thread::current().id();
        let far = Instant::now() + Duration::from_secs(60);
        assert_eq!(off_worker(LARGE, far, place).await.ok(), Some(here));
        let there = off_worker(LARGE + 1, far, place).await.expect("it is done");
        assert_ne!(there, here);
        // What is in front holds the thread until this test has seen its deadline.
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let front = tokio::spawn(off_worker(LARGE + 1, far, move || wait.recv()));
        tokio::task::yield_now().await;
        let soon = Instant::now() + Duration::from_millis(20);
        let late = off_worker(LARGE + 1, soon, place).await.expect_err("it waits for the one in front");
        assert_eq!(late.code, Code::DeadlineExceeded);
        go.send(()).expect("the work in front waits");
        assert_eq!(front.await.expect("no panic").ok(), Some(Ok(())));
    }
}
