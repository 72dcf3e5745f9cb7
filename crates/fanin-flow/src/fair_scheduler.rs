//! Fair scheduling of CPU-bound flows by time slices, so that a worker's other requests do not wait for all of them.
//!
//! After its first time slice, a CPU-bound flow enters the scheduler's queue. Only the first flow of this queue is scheduled on the
//! event loop. Without the queue, every step of another request (reading, starting, an answer, writing) would wait for one slice
//! of each CPU-bound flow. Between two slices the worker polls its sockets and runs all other ready tasks.
//!
//! The first flow keeps its position until it has computed for [`SHORT_FLOW`], so that short flows end one after another instead
//! of all late. Longer flows then go to the end of the queue (round robin).
//!
//! An operation on a large value cannot be interrupted, so a slice may overrun. After an overrun no slice starts for a time in
//! proportion (the cooldown), in which other requests can finish. Without other flows there is no cooldown.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// Computing time up to which the first flow keeps its position.
const SHORT_FLOW: Duration = Duration::from_millis(2);

/// Computing time before a flow enters the queue. Shorter than [`SLICE`], because first slices are not scheduled: many flows that
/// need little more than one would delay each other.
pub(crate) const FIRST_SLICE: Duration = Duration::from_micros(100);

/// Length of a time slice: long compared with the cost of switching, short compared with a noticeable delay.
pub(crate) const SLICE: Duration = Duration::from_micros(200);

/// A slice longer than this multiple of [`SLICE`] is an overrun.
const OVERRUN_FACTOR: u32 = 2;

/// Length of the cooldown, as a multiple of the overrun.
const COOLDOWN_FACTOR: u32 = 3;

/// Bound of the cooldown, because CPU-bound flows have deadlines, too.
const MAX_COOLDOWN: Duration = Duration::from_millis(20);

/// The queue of one worker's CPU-bound flows.
#[derive(Clone, Debug, Default)]
pub(crate) struct FairScheduler(Rc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    queue: RefCell<VecDeque<Rc<QueueEntry>>>,
    /// Running flows of the worker, including those in the queue.
    flows: Cell<usize>,
    /// No slice starts before.
    cooldown_until: Cell<Option<Instant>>,
}

#[derive(Debug, Default)]
struct QueueEntry {
    left: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl FairScheduler {
    /// Flows in the queue.
    pub(crate) fn queued(&self) -> usize {
        self.0.queue.borrow().len()
    }

    /// Counts a flow that starts.
    pub(crate) fn flow_started(&self) {
        self.0.flows.set(self.0.flows.get() + 1);
    }

    /// Counts a flow that has ended.
    pub(crate) fn flow_ended(&self) {
        self.0.flows.set(self.0.flows.get().saturating_sub(1));
    }

    /// Records how long a CPU-bound flow held the worker. An overrun starts a cooldown.
    pub(crate) fn record(&self, computed: Duration) {
        if computed > OVERRUN_FACTOR * SLICE && self.0.flows.get() > self.queued().max(1) {
            let cooldown = (COOLDOWN_FACTOR * (computed - SLICE)).min(MAX_COOLDOWN);
            self.0.cooldown_until.set(Some(Instant::now() + cooldown));
        }
    }

    /// The next time slice of a flow that has computed for `computed` in all. `previous` is its last slice. The slice lasts until
    /// it is dropped or passed in again.
    pub(crate) async fn next_slice(&self, computed: Duration, previous: Option<TimeSlice>) -> TimeSlice {
        let mut slice = match previous {
            Some(mut previous) if computed < SHORT_FLOW => {
                previous.finish();
                previous
            }
            previous => {
                // Wakes the next flow.
                drop(previous);
                self.enqueue()
            }
        };
        poll_fn(|cx| {
            if self.is_first(&slice.entry) {
                return Poll::Ready(());
            }
            *slice.entry.waker.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
        if let Some(end) = self.0.cooldown_until.take() {
            sleep_until(end).await;
        }
        // Resumes after the event loop has polled its sockets and run all ready tasks.
        tokio::task::yield_now().await;
        slice.began = Some(Instant::now());
        slice
    }

    fn enqueue(&self) -> TimeSlice {
        let entry = Rc::new(QueueEntry::default());
        self.0.queue.borrow_mut().push_back(entry.clone());
        TimeSlice { scheduler: self.clone(), entry, began: None }
    }

    fn is_first(&self, entry: &Rc<QueueEntry>) -> bool {
        self.0.queue.borrow().front().is_some_and(|first| Rc::ptr_eq(first, entry))
    }
}

/// An entry of the queue and, once it is the first, the right to compute. Dropping it leaves the queue.
#[derive(Debug)]
pub(crate) struct TimeSlice {
    scheduler: FairScheduler,
    entry: Rc<QueueEntry>,
    began: Option<Instant>,
}

impl TimeSlice {
    /// Ends the slice but keeps the position in the queue.
    fn finish(&mut self) {
        if let Some(began) = self.began.take() {
            self.scheduler.record(began.elapsed());
        }
    }
}

impl Drop for TimeSlice {
    fn drop(&mut self) {
        self.finish();
        self.entry.left.set(true);
        let mut queue = self.scheduler.0.queue.borrow_mut();
        let was_first = queue.front().is_some_and(|first| first.left.get());
        // Entries that left from the middle are removed once they are the first.
        while queue.front().is_some_and(|first| first.left.get()) {
            queue.pop_front();
        }
        let next = queue.front().filter(|_| was_first).and_then(|first| first.waker.take());
        drop(queue);
        if let Some(next) = next {
            next.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs flows of this many slices each; returns the order in which they ran.
    async fn run(flows: &[u32]) -> Vec<usize> {
        let (scheduler, ran) = (Rc::new(FairScheduler::default()), Rc::new(RefCell::new(Vec::new())));
        let local = tokio::task::LocalSet::new();
        for (name, wanted) in flows.iter().copied().enumerate() {
            let (scheduler, ran) = (scheduler.clone(), ran.clone());
            local.spawn_local(async move {
                let mut slice = None;
                for at in 1..=wanted {
                    slice = Some(scheduler.next_slice(SLICE * at, slice).await);
                    ran.borrow_mut().push(name);
                }
            });
        }
        local.await;
        assert_eq!(scheduler.queued(), 0);
        Rc::try_unwrap(ran).unwrap().into_inner()
    }

    #[tokio::test]
    async fn short_flows_run_to_their_end_and_long_ones_alternate() {
        // Under two milliseconds each, including the first slice before they queue.
        let ran = run(&[8, 8, 8]).await;
        assert_eq!(ran, [0; 8].into_iter().chain([1; 8]).chain([2; 8]).collect::<Vec<_>>());
        let ran = run(&[29, 29, 29]).await;
        assert_eq!(ran.len(), 3 * 29);
        let (short, long) = ran.split_at(3 * 9);
        assert_eq!(short, [0; 9].into_iter().chain([1; 9]).chain([2; 9]).collect::<Vec<_>>());
        assert!(long.chunks(3).all(|round| {
            let mut round = round.to_vec();
            round.sort_unstable();
            round == [0, 1, 2]
        }));
        // A short flow waits at most for the SHORT_FLOW time of a long one.
        let ran = run(&[40, 3]).await;
        assert_eq!(ran[9..13], [1, 1, 1, 0]);
    }

    #[tokio::test]
    async fn other_tasks_run_between_any_two_slices() {
        let (scheduler, ran) = (Rc::new(FairScheduler::default()), Rc::new(RefCell::new(Vec::new())));
        let local = tokio::task::LocalSet::new();
        for name in 0..10 {
            let (scheduler, ran) = (scheduler.clone(), ran.clone());
            local.spawn_local(async move {
                let mut slice = None;
                for at in 1..=20 {
                    slice = Some(scheduler.next_slice(SLICE * at, slice).await);
                    ran.borrow_mut().push(name);
                }
            });
        }
        let (done, seen) = (ran.clone(), Rc::new(Cell::new(0)));
        let (longest, other) = (Rc::new(Cell::new(0)), seen.clone());
        let max_gap = longest.clone();
        local.spawn_local(async move {
            while done.borrow().len() < 200 {
                let now = done.borrow().len();
                max_gap.set(max_gap.get().max(now - other.replace(now)));
                tokio::task::yield_now().await;
            }
        });
        local.await;
        assert!(longest.get() <= 2, "another task waited for {} slices", longest.get());
    }

    #[tokio::test]
    async fn cancelled_flow_leaves_the_queue() {
        let scheduler = FairScheduler::default();
        let first = scheduler.next_slice(SLICE, None).await;
        let second = scheduler.enqueue();
        let third = scheduler.enqueue();
        drop(second);
        assert!(!scheduler.is_first(&third.entry));
        drop(first);
        assert!(scheduler.is_first(&third.entry));
        drop(third);
        assert_eq!(scheduler.queued(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn cooldown_after_an_overrun() {
        let scheduler = FairScheduler::default();
        for _ in 0..2 {
            scheduler.flow_started();
        }
        let long = scheduler.next_slice(SLICE, None).await;
        tokio::time::advance(10 * SLICE).await;
        drop(long);
        let before = Instant::now();
        let next = scheduler.next_slice(SLICE, None).await;
        // Tokio's timers have a resolution of a millisecond.
        let about = |wanted: Duration, got: Duration| wanted <= got && got <= wanted + Duration::from_millis(2);
        assert!(about(COOLDOWN_FACTOR * 9 * SLICE, before.elapsed()), "{:?}", before.elapsed());
        // No overrun: no cooldown.
        tokio::time::advance(SLICE).await;
        drop(next);
        let before = Instant::now();
        let alone = scheduler.next_slice(SLICE, None).await;
        assert_eq!(before.elapsed(), Duration::ZERO);
        // No other flow: no cooldown.
        scheduler.flow_ended();
        tokio::time::advance(10 * SLICE).await;
        drop(alone);
        let before = Instant::now();
        drop(scheduler.next_slice(SLICE, None).await);
        assert_eq!(before.elapsed(), Duration::ZERO);
        // The cooldown is bounded.
        scheduler.flow_started();
        scheduler.record(Duration::from_secs(1));
        let before = Instant::now();
        drop(scheduler.next_slice(SLICE, None).await);
        assert!(about(MAX_COOLDOWN, before.elapsed()), "{:?}", before.elapsed());
    }
}
