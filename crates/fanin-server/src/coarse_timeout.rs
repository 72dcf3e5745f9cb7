//! Coarse timeouts, cheap enough for each request.
//!
//! A runtime's timers are exact and cost a lock and work on a timer wheel whenever they are set or dropped. The server's timeouts (a
//! client that sends slowly, a request past its deadline) rarely fire and may fire some milliseconds late. So setting one here is a
//! store into a table, and one task scans the whole table once a tick while it has entries.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use slab::Slab;
use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior};

/// Entries of a table that is kept when it becomes empty. A larger one is that of a burst.
const KEPT: usize = 256;

/// The coarse timeouts of one worker. [`run`](Self::run) must run for them to fire.
#[derive(Debug)]
pub(crate) struct CoarseTimeouts {
    tick: Duration,
    entries: RefCell<Slab<Entry>>,
    /// Wakes the task when the table gets its first entry.
    first: Notify,
}

#[derive(Debug)]
struct Entry {
    due: Instant,
    waker: Waker,
    fired: bool,
}

impl CoarseTimeouts {
    /// Timeouts fire at most `tick` late.
    pub(crate) fn new(tick: Duration) -> Rc<CoarseTimeouts> {
        Rc::new(CoarseTimeouts { tick, entries: RefCell::default(), first: Notify::new() })
    }

    /// Wakes the tasks whose timeout has passed. Never ends.
    pub(crate) async fn run(self: Rc<CoarseTimeouts>) {
        loop {
            if self.entries.borrow().is_empty() {
                if self.entries.borrow().capacity() > KEPT {
                    self.entries.take();
                }
                self.first.notified().await;
                continue;
            }
            let mut ticks = tokio::time::interval(self.tick);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            // The first tick is at once.
            ticks.tick().await;
            while !self.entries.borrow().is_empty() {
                ticks.tick().await;
                let now = Instant::now();
                for (_, entry) in self.entries.borrow_mut().iter_mut() {
                    if entry.due <= now && !entry.fired {
                        entry.fired = true;
                        entry.waker.wake_by_ref();
                    }
                }
            }
        }
    }

    fn insert(&self, due: Instant, waker: Waker) -> usize {
        let mut entries = self.entries.borrow_mut();
        if entries.is_empty() {
            self.first.notify_one();
        }
        entries.insert(Entry { due, waker, fired: false })
    }
}

/// A timeout that enters the table only when it is first polled: a request that is ready at once pays nothing.
#[derive(Debug)]
pub(crate) struct Timeout {
    timeouts: Rc<CoarseTimeouts>,
    key: Cell<Option<usize>>,
}

impl Timeout {
    pub(crate) fn new(timeouts: &Rc<CoarseTimeouts>) -> Timeout {
        Timeout { timeouts: timeouts.clone(), key: Cell::new(None) }
    }

    /// Ready once `due` has passed and a tick has noticed it. `due` may change from poll to poll.
    pub(crate) fn poll(&self, due: Instant, cx: &mut Context<'_>) -> Poll<()> {
        match self.key.get() {
            Some(key) => {
                let mut entries = self.timeouts.entries.borrow_mut();
                let entry = &mut entries[key];
                if entry.fired && entry.due >= due {
                    return Poll::Ready(());
                }
                entry.fired &= entry.due == due;
                entry.due = due;
                entry.waker.clone_from(cx.waker());
            }
            None => {
                self.key.set(Some(self.timeouts.insert(due, cx.waker().clone())));
            }
        }
        Poll::Pending
    }
}

impl Drop for Timeout {
    fn drop(&mut self) {
        if let Some(key) = self.key.get() {
            self.timeouts.entries.borrow_mut().remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    async fn with_sweep(tick: Duration, test: impl AsyncFnOnce(Rc<CoarseTimeouts>)) {
        let timeouts = CoarseTimeouts::new(tick);
        let local = tokio::task::LocalSet::new();
        local.spawn_local(timeouts.clone().run());
        local.run_until(test(timeouts)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn fires_within_a_tick() {
        with_sweep(10 * MS, async |timeouts| {
            let start = Instant::now();
            for wait in [1, 10, 25, 1000] {
                let begin = Instant::now();
                let timeout = Timeout::new(&timeouts);
                poll_fn(|cx| timeout.poll(begin + wait * MS, cx)).await;
                let late = begin.elapsed() - wait * MS;
                assert!(late <= 11 * MS, "{wait} ms fired {late:?} late");
            }
            assert!(start.elapsed() >= 1036 * MS);
            assert!(timeouts.entries.borrow().is_empty());
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_timeout_leaves_the_table() {
        with_sweep(10 * MS, async |timeouts| {
            let start = Instant::now();
            let kept = Timeout::new(&timeouts);
            let dropped = Timeout::new(&timeouts);
            let never_polled = Timeout::new(&timeouts);
            poll_fn(|cx| {
                assert!(dropped.poll(start + 20 * MS, cx).is_pending() && kept.poll(start + 200 * MS, cx).is_pending());
                Poll::Ready(())
            })
            .await;
            assert_eq!(timeouts.entries.borrow().len(), 2);
            drop((dropped, never_polled));
            poll_fn(|cx| kept.poll(start + 200 * MS, cx)).await;
            assert!(start.elapsed() >= 200 * MS);
            drop(kept);
            assert!(timeouts.entries.borrow().is_empty());
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_table_of_a_burst_is_released_when_it_is_empty() {
        with_sweep(10 * MS, async |timeouts| {
            let due = Instant::now() + 1000 * MS;
            let timeout = || {
                let timeout = Timeout::new(&timeouts);
                let mut cx = Context::from_waker(Waker::noop());
                assert!(timeout.poll(due, &mut cx).is_pending());
                timeout
            };
            let all: Vec<_> = (0..5 * KEPT).map(|_| timeout()).collect();
            assert!(timeouts.entries.borrow().capacity() >= 5 * KEPT);
            drop(all);
            tokio::time::sleep(100 * MS).await;
            assert_eq!(timeouts.entries.borrow().capacity(), 0);
            let next = timeout();
            poll_fn(|cx| next.poll(due, cx)).await;
            assert!(Instant::now() >= due);
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn its_time_may_change() {
        with_sweep(10 * MS, async |timeouts| {
            let start = Instant::now();
            let timeout = Timeout::new(&timeouts);
            poll_fn(|cx| timeout.poll(start + 50 * MS, cx)).await;
            let again = start.elapsed();
            poll_fn(|cx| timeout.poll(start + 300 * MS, cx)).await;
            assert!(again < 100 * MS && start.elapsed() >= 300 * MS);
            poll_fn(|cx| timeout.poll(start + 200 * MS, cx)).await;
            assert!(start.elapsed() < 400 * MS);
        })
        .await;
    }
}
