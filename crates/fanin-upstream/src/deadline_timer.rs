//! One timer for all deadlines of a worker's calls.
//!
//! A timer of the runtime takes a lock and changes the timer wheel, both when it is set and when it is dropped. Here a
//! deadline is an entry in a table of the worker, and one timer of the runtime waits for the earliest deadline. When it
//! fires, it wakes the calls that are due and is set to the earliest deadline left. A call that ends in time only
//! removes its entry, so the timer may fire once for nothing.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use slab::Slab;
use tokio::time::{Instant, Sleep, sleep_until};

/// Scanning the table takes some nanoseconds for each entry. After a scan the timer rests for sixteen times as long, so
/// that deadlines of a very full table may be noticed some milliseconds late.
const REST_FOR_16: Duration = Duration::from_micros(1);

/// The table of deadlines and its timer.
#[derive(Debug, Default)]
pub(crate) struct DeadlineTimer {
    entries: RefCell<Slab<Entry>>,
    /// When the timer fires: at the earliest deadline, or later if [`REST_FOR_16`] delays it.
    next: Cell<Option<Instant>>,
    /// All deadlines up to this have passed.
    passed: Cell<Option<Instant>>,
    task: RefCell<TimerTask>,
}

#[derive(Debug)]
struct Entry {
    due: Instant,
    waker: Waker,
}

/// The task with the timer. It ends when the table is empty, or with its runtime. The next entry starts another.
#[derive(Debug, Default)]
enum TimerTask {
    #[default]
    None,
    Started,
    Sleeping(Waker),
}

impl DeadlineTimer {
    fn insert(self: &Rc<Self>, due: Instant, waker: Waker) -> usize {
        let key = self.entries.borrow_mut().insert(Entry { due, waker });
        if self.next.get().is_none_or(|next| due < next) {
            self.next.set(Some(due));
            self.set_timer(due);
        }
        key
    }

    fn set_timer(self: &Rc<Self>, due: Instant) {
        let task = &mut *self.task.borrow_mut();
        match task {
            TimerTask::None => {
                *task = TimerTask::Started;
                tokio::task::spawn_local(RunTimer { timers: Rc::downgrade(self), timer: Box::pin(sleep_until(due)) });
            }
            // It has not run yet. It reads the next deadline when it does.
            TimerTask::Started => {}
            TimerTask::Sleeping(waker) => waker.wake_by_ref(),
        }
    }

    /// Wakes the calls that are due, and finds the next deadline.
    fn fire(&self, now: Instant) {
        self.passed.set(Some(now));
        let mut earliest: Option<Instant> = None;
        let entries = self.entries.borrow();
        for (_, entry) in entries.iter() {
            if entry.due <= now {
                entry.waker.wake_by_ref();
            } else if earliest.is_none_or(|earliest| entry.due < earliest) {
                earliest = Some(entry.due);
            }
        }
        let rest = REST_FOR_16 * u32::try_from(entries.len() / 16).unwrap_or(u32::MAX);
        self.next.set(earliest.map(|earliest| earliest.max(now + rest)));
    }
}

struct RunTimer {
    timers: Weak<DeadlineTimer>,
    timer: Pin<Box<Sleep>>,
}

impl Future for RunTimer {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let Some(timers) = this.timers.upgrade() else { return Poll::Ready(()) };
        loop {
            let Some(next) = timers.next.get() else { return Poll::Ready(()) };
            if this.timer.deadline() != next {
                this.timer.as_mut().reset(next);
            }
            if this.timer.as_mut().poll(cx).is_pending() {
                break;
            }
            timers.fire(Instant::now());
        }
        let mut task = timers.task.borrow_mut();
        if !matches!(&*task, TimerTask::Sleeping(waker) if waker.will_wake(cx.waker())) {
            *task = TimerTask::Sleeping(cx.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for RunTimer {
    /// The task or its runtime has ended: entries that are left need another task.
    fn drop(&mut self) {
        if let Some(timers) = self.timers.upgrade() {
            *timers.task.borrow_mut() = TimerTask::None;
            timers.next.set(None);
        }
    }
}

/// A deadline. It enters the table when it is first polled.
#[derive(Debug)]
pub(crate) struct Deadline<'a> {
    of: &'a Rc<DeadlineTimer>,
    due: Instant,
    key: Option<usize>,
}

impl<'a> Deadline<'a> {
    pub fn new(of: &'a Rc<DeadlineTimer>, due: Instant) -> Deadline<'a> {
        Deadline { of, due, key: None }
    }

    /// Ready once the deadline has passed.
    pub fn poll(&mut self, cx: &Context<'_>) -> Poll<()> {
        let Some(key) = self.key else {
            self.key = Some(self.of.insert(self.due, cx.waker().clone()));
            return Poll::Pending;
        };
        if self.of.passed.get().is_some_and(|passed| self.due <= passed) {
            return Poll::Ready(());
        }
        self.of.entries.borrow_mut()[key].waker.clone_from(cx.waker());
        Poll::Pending
    }
}

impl Drop for Deadline<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            let entry = self.of.entries.borrow_mut().remove(key);
            // Dropped outside of the borrow: dropping a waker may drop its task.
            drop(entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::task::{LocalSet, spawn_local, yield_now};

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    async fn wait(timers: &Rc<DeadlineTimer>, due: Instant) {
        let mut deadline = Deadline::new(timers, due);
        poll_fn(|cx| deadline.poll(cx)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn deadlines_pass_in_time_in_any_order() {
        let timers = Rc::new(DeadlineTimer::default());
        let begin = Instant::now();
        let run = async {
            let waits = [50, 10, 1000, 30, 30, 1].map(|wait| wait * MS);
            let tasks = waits.map(|after| {
                let timers = timers.clone();
                spawn_local(async move {
                    wait(&timers, begin + after).await;
                    assert_eq!(begin.elapsed(), after);
                })
            });
            yield_now().await;
            assert_eq!(timers.entries.borrow().len(), waits.len());
            for task in tasks {
                task.await.unwrap();
            }
        };
        LocalSet::new().run_until(run).await;
        assert!(timers.entries.borrow().is_empty());
        assert_eq!(timers.next.get(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_ends_in_time_leaves_at_most_one_firing() {
        let timers = Rc::new(DeadlineTimer::default());
        let begin = Instant::now();
        let run = async {
            for _ in 0..100 {
                let mut deadline = Deadline::new(&timers, Instant::now() + 1000 * MS);
                assert!(poll_fn(|cx| Poll::Ready(deadline.poll(cx))).await.is_pending());
                tokio::time::sleep(MS).await;
            }
            assert!(timers.entries.borrow().is_empty());
            assert_eq!(timers.next.get(), Some(begin + 1000 * MS), "it is not set anew each time");
            wait(&timers, begin + 500 * MS).await;
            assert_eq!(begin.elapsed(), 500 * MS, "but for one that is earlier");
            wait(&timers, begin + 3000 * MS).await;
            assert_eq!(begin.elapsed(), 3000 * MS);
        };
        LocalSet::new().run_until(run).await;
    }

    #[tokio::test(start_paused = true)]
    async fn many_deadlines_pass_nearly_in_time() {
        let timers = Rc::new(DeadlineTimer::default());
        let run = async {
            let begin = Instant::now();
            let tasks = (0..20_000).map(|at| {
                let timers = timers.clone();
                spawn_local(async move {
                    let due = begin + MS * (at % 100);
                    wait(&timers, due).await;
                    assert!(due.elapsed() <= 3 * MS, "{:?}", due.elapsed());
                })
            });
            for task in tasks.collect::<Vec<_>>() {
                task.await.unwrap();
            }
        };
        LocalSet::new().run_until(run).await;
    }

    #[test]
    fn the_next_runtime_has_a_timer_of_its_own() {
        let timers = Rc::new(DeadlineTimer::default());
        for _ in 0..2 {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
            LocalSet::new().block_on(&runtime, async {
                let kept = timers.clone();
                spawn_local(async move { wait(&kept, Instant::now() + 60_000 * MS).await });
                let begin = Instant::now();
                wait(&timers, begin + 5 * MS).await;
                assert_eq!(begin.elapsed(), 5 * MS);
            });
            assert!(timers.entries.borrow().is_empty());
        }
    }
}
