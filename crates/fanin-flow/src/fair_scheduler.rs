//! Flows that compute for long take turns, so that a worker's other requests do not wait for all of them.
//!
//! A flow that has used up its steps of one turn lets its worker go on. With many such flows in the worker's run queue, whatever else
//! happens there would wait for a turn of each, and at each of its steps anew: a request read, a flow started, an answer taken up, a
//! response written. So after its first turn a flow queues here, and only who is first in this queue is in the
//! worker's. Between two turns the worker looks at its sockets and runs whatever else is ready.
//!
//! Who is first stays it until it has computed for a while, so that flows of a millisecond or two, which most are that queue at all,
//! come to their end one after the other: in turns they would all end late. Who computes for longer goes to the end.
//!
//! A turn may take longer than it should: an operation on a large value cannot stop half-way. A request has several such steps, and
//! must not wait for a long turn at each of them. So after a turn that took too long there is no other one for a time in proportion,
//! in which those who have waited come to their end; if nobody else is there, nobody waits.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// For so long a flow that is first has one turn after the other.
const SHORT_FLOW: Duration = Duration::from_millis(2);

/// For so long a flow has its worker before it queues: while many come that compute for hardly longer, each of their firsts is in the
/// others' way.
pub(crate) const FIRST_SLICE: Duration = Duration::from_micros(100);

/// For so long a flow has its worker in a turn. Long against what it costs to go on with another one, short against what others notice.
pub(crate) const SLICE: Duration = Duration::from_micros(200);

/// A turn that took longer than so many times what it should is too long.
const OVERRUN_FACTOR: u32 = 2;

/// How much longer than a turn took too long the others are left alone.
const COOLDOWN_FACTOR: u32 = 3;

/// Never longer than this: whoever computes has a deadline too.
const MAX_COOLDOWN: Duration = Duration::from_millis(20);

/// The flows of one worker that want another turn.
#[derive(Clone, Debug, Default)]
pub(crate) struct FairScheduler(Rc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    queue: RefCell<VecDeque<Rc<QueueEntry>>>,
    /// Flows of the worker that have not ended, those in the queue among them.
    flows: Cell<usize>,
    /// Nobody has a turn before.
    cooldown_until: Cell<Option<Instant>>,
}

#[derive(Debug, Default)]
struct QueueEntry {
    left: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl FairScheduler {
    /// How many queue.
    pub(crate) fn queued(&self) -> usize {
        self.0.queue.borrow().len()
    }

    /// A flow begins.
    pub(crate) fn flow_started(&self) {
        self.0.flows.set(self.0.flows.get() + 1);
    }

    /// A flow has ended.
    pub(crate) fn flow_ended(&self) {
        self.0.flows.set(self.0.flows.get().saturating_sub(1));
    }

    /// Somebody who can take turns has had the worker for so long.
    pub(crate) fn record(&self, computed: Duration) {
        if computed > OVERRUN_FACTOR * SLICE && self.0.flows.get() > self.queued().max(1) {
            let cooldown = (COOLDOWN_FACTOR * (computed - SLICE)).min(MAX_COOLDOWN);
            self.0.cooldown_until.set(Some(Instant::now() + cooldown));
        }
    }

    /// Ready when a flow that has computed for so long, the turn `before` at last, may have its next turn, which lasts until what it
    /// gets is dropped.
    pub(crate) async fn next_slice(&self, computed: Duration, previous: Option<TimeSlice>) -> TimeSlice {
        let mut slice = match previous {
            Some(mut previous) if computed < SHORT_FLOW => {
                previous.finish();
                previous
            }
            previous => {
                // The next is woken by the one that goes.
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
        // Comes back after the sockets have been looked at and whatever was ready has run.
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

/// A place in the queue, and once it is the first one, the turn. Dropping it gives it up.
#[derive(Debug)]
pub(crate) struct TimeSlice {
    scheduler: FairScheduler,
    entry: Rc<QueueEntry>,
    began: Option<Instant>,
}

impl TimeSlice {
    /// The place is kept.
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
        // Who left from the middle is dropped when its turn comes.
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

    /// Runs flows of so many turns each on a worker; gives who ran, in order.
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
    async fn short_flows_end_one_after_the_other_and_long_ones_in_turn() {
        // Less than two milliseconds, of which the first turn was before they queued.
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
        // A short one waits for no more than that of a long one.
        let ran = run(&[40, 3]).await;
        assert_eq!(ran[9..13], [1, 1, 1, 0]);
    }

    #[tokio::test]
    async fn others_run_between_any_two_turns_of_those_that_compute_for_long() {
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
        let most = longest.clone();
        local.spawn_local(async move {
            while done.borrow().len() < 200 {
                let now = done.borrow().len();
                most.set(most.get().max(now - other.replace(now)));
                tokio::task::yield_now().await;
            }
        });
        local.await;
        assert!(longest.get() <= 2, "another task waited for {} slices", longest.get());
    }

    #[tokio::test]
    async fn who_leaves_holds_nobody_up() {
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
    async fn after_a_long_turn_the_others_are_left_alone() {
        let scheduler = FairScheduler::default();
        for _ in 0..2 {
            scheduler.flow_started();
        }
        let long = scheduler.next_slice(SLICE, None).await;
        tokio::time::advance(10 * SLICE).await;
        drop(long);
        let before = Instant::now();
        let next = scheduler.next_slice(SLICE, None).await;
        // Tokio's timers have milliseconds.
        let about = |wanted: Duration, got: Duration| wanted <= got && got <= wanted + Duration::from_millis(2);
        assert!(about(COOLDOWN_FACTOR * 9 * SLICE, before.elapsed()), "{:?}", before.elapsed());
        // As it should be: no rest.
        tokio::time::advance(SLICE).await;
        drop(next);
        let before = Instant::now();
        let alone = scheduler.next_slice(SLICE, None).await;
        assert_eq!(before.elapsed(), Duration::ZERO);
        // Nobody else is there.
        scheduler.flow_ended();
        tokio::time::advance(10 * SLICE).await;
        drop(alone);
        let before = Instant::now();
        drop(scheduler.next_slice(SLICE, None).await);
        assert_eq!(before.elapsed(), Duration::ZERO);
        // Never longer than this.
        scheduler.flow_started();
        scheduler.record(Duration::from_secs(1));
        let before = Instant::now();
        drop(scheduler.next_slice(SLICE, None).await);
        assert!(about(MAX_COOLDOWN, before.elapsed()), "{:?}", before.elapsed());
    }
}
