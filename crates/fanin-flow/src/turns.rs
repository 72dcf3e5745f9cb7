//! Flows that compute for long take turns, so that a worker's other requests do not wait for all of them.
//!
//! A flow that has used up its steps of one turn lets its worker go on. With many such flows in the worker's run queue, whatever else
//! happens there would wait for a turn of each, and at each of its steps anew: a request read, a flow started, an answer taken up, a
//! response written. So after its first turn a flow queues here, and only who has the next turn is in the worker's run queue.
//! Between two turns the worker looks at its sockets and runs whatever else is ready. Who has computed little goes before who has
//! computed for long, but not always.
//!
//! Many flows that each compute for about a turn would still all have their first one before anything else happens. So where those
//! of a route have lately needed a good part of a turn on average, they queue for the first one too.
//!
//! A turn may take longer than it should: an operation on a large value cannot stop half-way. A request has several steps, and
//! must not wait for a long turn at each of them. So after a turn that took too long there is no other one for a time in proportion,
//! in which those who have waited come to their end; if nobody else has been there lately, nobody waits.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::task::{Poll, Waker};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// Who has computed for so long goes behind who has not.
pub(crate) const LONG: Duration = Duration::from_millis(1);

/// For so long a flow has its worker. Long against what it costs to go on with another one, short against what others notice.
pub(crate) const TURN: Duration = Duration::from_micros(200);

/// So many turns of those who have computed little come between two of the others.
const SHORT_IN_A_ROW: u32 = 3;

/// A turn that took longer than so many times what it should is too long.
const LATE: u32 = 2;

/// How much longer than a turn took too long the others are left alone.
const REST: u32 = 3;

/// Never longer than this: whoever computes has a deadline too.
const MOST_REST: Duration = Duration::from_millis(20);

/// Others are there if two of them have come in such a time. One may be who has the turn.
const LATELY: Duration = Duration::from_millis(100);

/// The flows of one worker that want another turn.
#[derive(Clone, Debug, Default)]
pub(crate) struct Turns(Rc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Who waits: those who have computed little, and those who have for long.
    queues: RefCell<[VecDeque<Rc<Ticket>>; 2]>,
    /// Who has the turn, or has it next.
    first: RefCell<Option<Rc<Ticket>>>,
    /// In the queues or first.
    tickets: Cell<usize>,
    /// Turns since the last one of who has computed for long.
    short: Cell<u32>,
    /// Flows of the worker that have not ended, those in the queue among them.
    flows: Cell<usize>,
    /// When the last two requests came whose flows hardly compute, the later first.
    came: Cell<[Option<Instant>; 2]>,
    /// Nobody has a turn before.
    rest: Cell<Option<Instant>>,
    /// Only one flow runs at a time.
    alone: bool,
}

#[derive(Debug, Default)]
struct Ticket {
    gone: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Turns {
    /// Where one flow runs at a time, and nobody else.
    pub(crate) fn alone() -> Self {
        Self(Rc::new(Inner { alone: true, ..Inner::default() }))
    }

    /// How many queue or have a turn.
    pub(crate) fn len(&self) -> usize {
        self.0.tickets.get()
    }

    /// A flow begins, whose request came then. Whether it has to queue.
    pub(crate) fn begin(&self, came: Instant, habit: &Habit) -> bool {
        self.0.flows.set(self.0.flows.get() + 1);
        if habit.is_long() {
            return self.is_busy();
        }
        self.0.came.set([Some(came), self.0.came.get()[0]]);
        false
    }

    /// A flow has ended.
    pub(crate) fn end(&self) {
        self.0.flows.set(self.0.flows.get().saturating_sub(1));
    }

    /// Whether somebody who computes for long would have to queue.
    pub(crate) fn is_busy(&self) -> bool {
        self.len() > 0 || self.0.rest.get().is_some()
    }

    /// Somebody who can take turns has had the worker for so long.
    pub(crate) fn took(&self, time: Duration) {
        if time > LATE * TURN && !self.0.alone && self.others() {
            let rest = (REST * (time - TURN)).min(MOST_REST);
            self.0.rest.set(Some(Instant::now() + rest));
        }
    }

    /// Whether there is anybody but those who compute. Who is about to be heard is no flow yet.
    fn others(&self) -> bool {
        let lately = || self.0.came.get()[1].is_some_and(|came| came.elapsed() < LATELY);
        self.0.flows.get() > self.len().max(1) || lately()
    }

    /// Ready when a flow that has computed for so long may have its next turn, which lasts until what it gets is dropped.
    pub(crate) async fn next(&self, had: Duration) -> Turn {
        let mut turn = self.enter(had >= LONG);
        poll_fn(|cx| {
            if self.is_first(&turn.ticket) {
                return Poll::Ready(());
            }
            *turn.ticket.waker.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
        if let Some(rest) = self.0.rest.get() {
            sleep_until(rest).await;
            self.0.rest.set(None);
        }
        // Comes back after the sockets have been looked at and whatever was ready has run.
        tokio::task::yield_now().await;
        turn.began = Some(Instant::now());
        turn
    }

    fn enter(&self, long: bool) -> Turn {
        let ticket = Rc::new(Ticket::default());
        self.0.queues.borrow_mut()[usize::from(long)].push_back(ticket.clone());
        self.0.tickets.set(self.0.tickets.get() + 1);
        if self.0.first.borrow().is_none() {
            self.choose();
        }
        Turn { turns: self.clone(), ticket, began: None }
    }

    fn is_first(&self, ticket: &Rc<Ticket>) -> bool {
        self.0.first.borrow().as_ref().is_some_and(|first| Rc::ptr_eq(first, ticket))
    }

    /// Gives the next turn to somebody.
    fn choose(&self) {
        let mut queues = self.0.queues.borrow_mut();
        for queue in &mut *queues {
            // Who left from the middle is dropped when its turn comes.
            while queue.front().is_some_and(|first| first.gone.get()) {
                queue.pop_front();
            }
        }
        let [short, long] = &mut *queues;
        let is_long = short.is_empty() || (!long.is_empty() && self.0.short.get() >= SHORT_IN_A_ROW);
        self.0.short.set(if is_long { 0 } else { self.0.short.get() + 1 });
        let next = if is_long { long.pop_front() } else { short.pop_front() };
        drop(queues);
        let waker = next.as_ref().and_then(|next| next.waker.take());
        *self.0.first.borrow_mut() = next;
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// A place in the queue, and once it is the first one, the turn. Dropping it gives it up.
#[derive(Debug)]
pub(crate) struct Turn {
    turns: Turns,
    ticket: Rc<Ticket>,
    began: Option<Instant>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(began) = self.began {
            self.turns.took(began.elapsed());
        }
        self.ticket.gone.set(true);
        self.turns.0.tickets.set(self.turns.0.tickets.get().saturating_sub(1));
        if self.turns.is_first(&self.ticket) {
            self.turns.choose();
        }
    }
}

/// For how long the flows of one route compute, on all workers, in microseconds: the average of the last few. A flow that
/// has not used up its first slice of steps counts as nothing.
#[derive(Debug, Default)]
pub(crate) struct Habit(AtomicU32);

impl Habit {
    /// One more flow has computed for so long.
    #[inline]
    pub(crate) fn computed(&self, time: Duration) {
        let before = self.0.load(Relaxed);
        let micros = u32::try_from(time.as_micros()).unwrap_or(u32::MAX).min(1 << 20);
        if (before, micros) != (0, 0) {
            // If another worker writes meanwhile, one flow is not counted.
            self.0.store((3 * before + micros) / 4, Relaxed);
        }
    }

    /// Whether the next one is likely to compute for so long that ten of them at once would be noticed.
    fn is_long(&self) -> bool {
        Duration::from_micros(self.0.load(Relaxed).into()) > TURN / 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs flows of so many turns each on a worker; gives who ran, in order.
    async fn run(flows: &[u32]) -> Vec<usize> {
        let (turns, ran) = (Rc::new(Turns::default()), Rc::new(RefCell::new(Vec::new())));
        let local = tokio::task::LocalSet::new();
        for (name, wanted) in flows.iter().copied().enumerate() {
            let (turns, ran) = (turns.clone(), ran.clone());
            local.spawn_local(async move {
                for _ in 0..wanted {
                    let turn = turns.next(LONG).await;
                    ran.borrow_mut().push(name);
                    drop(turn);
                }
            });
        }
        local.await;
        assert_eq!(turns.len(), 0);
        Rc::try_unwrap(ran).unwrap().into_inner()
    }

    #[tokio::test]
    async fn all_come_to_their_end_in_turn() {
        let ran = run(&[10, 10, 10]).await;
        assert_eq!(ran.len(), 30);
        assert!(ran.chunks(3).all(|round| {
            let mut round = round.to_vec();
            round.sort_unstable();
            round == [0, 1, 2]
        }));
    }

    #[tokio::test]
    async fn others_run_between_any_two_turns_of_those_that_compute_for_long() {
        let (turns, ran) = (Rc::new(Turns::default()), Rc::new(RefCell::new(Vec::new())));
        let local = tokio::task::LocalSet::new();
        for name in 0..10 {
            let (turns, ran) = (turns.clone(), ran.clone());
            local.spawn_local(async move {
                for _ in 0..20 {
                    let turn = turns.next(LONG).await;
                    ran.borrow_mut().push(name);
                    drop(turn);
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
        assert!(longest.get() <= 2, "{} turns between two of another task", longest.get());
    }

    #[tokio::test]
    async fn who_leaves_holds_nobody_up() {
        let turns = Turns::default();
        let first = turns.next(LONG).await;
        let second = turns.enter(true);
        let third = turns.enter(true);
        drop(second);
        assert!(!turns.is_first(&third.ticket));
        drop(first);
        assert!(turns.is_first(&third.ticket));
        drop(third);
        assert_eq!(turns.len(), 0);
    }

    #[test]
    fn who_has_computed_little_goes_first_but_not_always() {
        let turns = Turns::default();
        let now = turns.enter(true);
        let wanted = [("long", true), ("other long", true)].into_iter().chain((0..5).map(|_| ("short", false)));
        let mut waiting: Vec<_> = wanted.map(|(name, long)| (name, turns.enter(long))).collect();
        assert_eq!(turns.len(), 8);
        drop(now);
        let mut order = Vec::new();
        while let Some(at) = waiting.iter().position(|(_, turn)| turns.is_first(&turn.ticket)) {
            order.push(waiting.remove(at).0);
        }
        assert_eq!(order, ["short", "short", "short", "long", "short", "short", "other long"]);
        assert!(waiting.is_empty() && !turns.is_busy());
    }

    #[test]
    fn flows_of_a_route_that_mostly_computes_queue_from_their_start() {
        let (turns, habit, now) = (Turns::default(), Habit::default(), Instant::now());
        let turn = turns.enter(false);
        assert!(!turns.begin(now, &habit), "nothing is known of the route");
        for _ in 0..4 {
            habit.computed(2 * TURN);
        }
        assert!(turns.begin(now, &habit));
        drop(turn);
        assert!(!turns.begin(now, &habit), "nobody has a turn");
        // It has changed its habit.
        for _ in 0..6 {
            habit.computed(Duration::ZERO);
        }
        let turn = turns.enter(false);
        assert!(!turns.begin(now, &habit));
        drop(turn);
    }

    /// How long somebody waits for a turn that nobody else has. Tokio's timers have milliseconds.
    async fn wait(turns: &Turns) -> (Duration, Turn) {
        let before = Instant::now();
        let turn = turns.next(LONG).await;
        (before.elapsed(), turn)
    }

    fn about(wanted: Duration, got: Duration) -> bool {
        wanted <= got && got <= wanted + Duration::from_millis(2)
    }

    /// Of a route whose flows compute for long.
    fn long() -> Habit {
        let habit = Habit::default();
        habit.computed(Duration::from_secs(1));
        habit
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_long_turn_the_others_are_left_alone() {
        let turns = Turns::default();
        for _ in 0..2 {
            turns.begin(Instant::now(), &long());
        }
        let (_, turn) = wait(&turns).await;
        tokio::time::advance(10 * TURN).await;
        drop(turn);
        assert!(turns.is_busy());
        let (rest, turn) = wait(&turns).await;
        assert!(about(REST * 9 * TURN, rest), "{rest:?}");
        // As it should be: no rest.
        tokio::time::advance(TURN).await;
        drop(turn);
        let (rest, alone) = wait(&turns).await;
        assert_eq!(rest, Duration::ZERO);
        // Nobody else is there.
        turns.end();
        tokio::time::advance(10 * TURN).await;
        drop(alone);
        assert_eq!(wait(&turns).await.0, Duration::ZERO);
        // Never longer than this.
        turns.begin(Instant::now(), &long());
        turns.took(Duration::from_secs(1));
        let (rest, _) = wait(&turns).await;
        assert!(about(MOST_REST, rest), "{rest:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn whose_requests_come_now_and_then_is_left_alone_too() {
        let turns = Turns::default();
        turns.begin(Instant::now(), &long());
        for _ in 0..2 {
            turns.begin(Instant::now(), &Habit::default());
            turns.end();
            let (_, turn) = wait(&turns).await;
            tokio::time::advance(10 * TURN).await;
            drop(turn);
        }
        let (rest, _) = wait(&turns).await;
        assert!(
            about(REST * 9 * TURN, rest),
            "the first may have been the flow itself, the second is another: {rest:?}"
        );
        tokio::time::advance(LATELY).await;
        turns.took(10 * TURN);
        assert_eq!(wait(&turns).await.0, Duration::ZERO, "but not when nobody has come lately");
        let alone = Turns::alone();
        alone.begin(Instant::now(), &Habit::default());
        alone.begin(Instant::now(), &Habit::default());
        alone.took(10 * TURN);
        assert!(!alone.is_busy());
    }
}
