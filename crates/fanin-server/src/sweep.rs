//! Coarse deadlines, cheap enough for each request.
//!
//! A runtime's timers are exact and cost a lock and a wheel's work each time they are set and dropped. What the server
//! bounds (a client that sends slowly, a request past its deadline) happens rarely and may be noticed some milliseconds
//! late, so here setting a deadline is a store into a table, and one task looks at the whole table once a tick while there
//! is anything in it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use slab::Slab;
use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior};

/// The deadlines of one worker. [`run`](Self::run) must run for them to fire.
#[derive(Debug)]
pub(crate) struct Sweep {
    tick: Duration,
    entries: RefCell<Slab<Entry>>,
    /// Wakes the task when the first entry comes.
    first: Notify,
}

#[derive(Debug)]
struct Entry {
    due: Instant,
    waker: Waker,
    fired: bool,
}

impl Sweep {
    /// Deadlines fire at most `tick` late.
    pub(crate) fn new(tick: Duration) -> Rc<Sweep> {
        Rc::new(Sweep { tick, entries: RefCell::default(), first: Notify::new() })
    }

    /// Wakes whoever is due, for ever.
    pub(crate) async fn run(self: Rc<Sweep>) {
        loop {
            if self.entries.borrow().is_empty() {
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

/// A deadline that enters the table only when it is first waited for: what is ready at once pays nothing.
#[derive(Debug)]
pub(crate) struct Timeout {
    sweep: Rc<Sweep>,
    due: Instant,
    key: Cell<Option<usize>>,
}

impl Timeout {
    pub(crate) fn new(sweep: &Rc<Sweep>, due: Instant) -> Timeout {
        Timeout { sweep: sweep.clone(), due, key: Cell::new(None) }
    }

    /// Ready once the deadline has passed and a tick has noticed it.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        match self.key.get() {
            Some(key) => {
                let mut entries = self.sweep.entries.borrow_mut();
                let entry = &mut entries[key];
                if entry.fired {
                    return Poll::Ready(());
                }
                entry.waker.clone_from(cx.waker());
            }
            None => {
                self.key.set(Some(self.sweep.insert(self.due, cx.waker().clone())));
            }
        }
        Poll::Pending
    }
}

impl Drop for Timeout {
    fn drop(&mut self) {
        if let Some(key) = self.key.get() {
            self.sweep.entries.borrow_mut().remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    async fn with_sweep(tick: Duration, test: impl AsyncFnOnce(Rc<Sweep>)) {
        let sweep = Sweep::new(tick);
        let local = tokio::task::LocalSet::new();
        local.spawn_local(sweep.clone().run());
        local.run_until(test(sweep)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn fires_within_a_tick_after_the_deadline() {
        with_sweep(10 * MS, async |sweep| {
            let start = Instant::now();
            for wait in [1, 10, 25, 1000] {
                let begun = Instant::now();
                let timeout = Timeout::new(&sweep, begun + wait * MS);
                poll_fn(|cx| timeout.poll(cx)).await;
                let late = begun.elapsed() - wait * MS;
                assert!(late <= 11 * MS, "{wait} ms fired {late:?} late");
            }
            assert!(start.elapsed() >= 1036 * MS);
            assert!(sweep.entries.borrow().is_empty());
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_dropped_leaves_the_table() {
        with_sweep(10 * MS, async |sweep| {
            let start = Instant::now();
            let kept = Timeout::new(&sweep, start + 200 * MS);
            let dropped = Timeout::new(&sweep, start + 20 * MS);
            let never_polled = Timeout::new(&sweep, start);
            poll_fn(|cx| {
                assert!(dropped.poll(cx).is_pending() && kept.poll(cx).is_pending());
                Poll::Ready(())
            })
            .await;
            assert_eq!(sweep.entries.borrow().len(), 2);
            drop((dropped, never_polled));
            poll_fn(|cx| kept.poll(cx)).await;
            assert!(start.elapsed() >= 200 * MS);
            drop(kept);
            assert!(sweep.entries.borrow().is_empty());
        })
        .await;
    }
}
