//! The queue in front of a worker that cannot keep up: parsed requests whose flow has not started.
//!
//! While the worker sleeps now and then, it keeps up, and a request's flow starts as soon as its head is parsed. Once it has
//! not slept for a while, requests queue here, and a task starts their flows, a few each lap of the worker's run queue. So a
//! flow whose answer has arrived, a head that waits to be parsed and a refusal never wait for more than a lap (about a
//! millisecond), however many requests there are, and what a request waits here is known exactly: it is our own queueing and
//! nothing else. A slow upstream leaves the worker asleep.
//!
//! Who waits too long is refused. How long is too long depends on whether the queue *stands*. A burst may wait ten times the bound,
//! and a queue that gets shorter, as after a moment in which the machine ran something else, is left to end by itself. Each request
//! only gets the bound once about as many have come as were started for six times the bound without a break (a burst comes at once,
//! an overload goes on), or clearly more for three times, if the queue is longer than five times the bound by then (the more comes,
//! the sooner it is known); or once for ten times the bound the first in the queue has always waited for longer than the bound, and
//! hardly less at any time than at the begin. That lasts until nobody has been refused for a while: an overload does not end because the queue was empty for a moment.
//! Who was let in may then wait twice as long: what a wait will be is a guess, and who is let in and then refused has waited for
//! nothing. (Nichols and Jacobson's controlled delay, in the form for servers of Maurer's *Fail at Scale*, ACM Queue 13:8; what ends
//! a burst is ours.) Who would have to wait longer as things stand is refused at once. The more important goes first.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::mem;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::Priority;
use standing::{Drains, Growth};

mod standing;
#[cfg(test)]
mod tests;

/// How much longer than the bound a request may wait while the queue does not stand.
const BURST: u32 = 10;
/// And while it stands: the wait that was foreseen is at most the bound, but not exact.
const GUESS: u32 = 2;
/// For so many times the bound nobody has to be refused before bursts are let in again.
const STRICT: u32 = 30;
/// An overload: in so many spans of the bound in a row about as many requests came as could be started, or more.
const GOES_ON: u32 = 6;
/// "About as many", in hundredths of what was started. What comes at 80 % of what can be done stays below it.
const AS_MANY: usize = 95;
/// In so many, if the last of the queue would have to wait for [`LONG`] times the bound, and clearly more came.
const GROWS: u32 = 3;
const MORE: usize = 125;
const LONG: u32 = 5;
/// A lap that is longer starts fewer flows the next time, one of half the length more.
const LAP: Duration = Duration::from_millis(1);
/// Flows started in a lap, at most.
const MOST_A_LAP: usize = 64;
/// And at least, however long the lap was: what else runs here may be long by itself.
const LEAST_A_LAP: usize = 2;

/// See the module.
#[derive(Debug)]
pub(crate) struct ReadyQueue {
    /// `[server] queueing`.
    bound: Cell<Option<Duration>>,
    /// `[server] max_waiting`: no more wait here either, however short they would.
    most: Cell<usize>,
    /// Requests queue.
    on: Cell<bool>,
    wake: Notify,
    /// The first request since the worker slept last came then.
    busy_since: Cell<Instant>,
    queues: RefCell<[VecDeque<Rc<Waiter>>; Priority::ALL.len()]>,
    /// Who waits, by priority. Who has left meanwhile is still in `queues` until its turn comes.
    waiting: [Cell<usize>; Priority::ALL.len()],
    drains: Cell<Drains>,
    growth: Cell<Growth>,
    /// Until then each request gets the bound only.
    strict_until: Cell<Instant>,
    /// How long it takes until one more has been started, smoothed; zero while it is not known.
    each: Cell<Duration>,
}

#[derive(Debug)]
struct Waiter {
    since: Instant,
    state: Cell<State>,
    waker: RefCell<Option<Waker>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waits,
    Granted,
    Refused,
    Gone,
}

/// The worker has more to do than it can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLate;

impl ReadyQueue {
    pub(crate) fn new(bound: Option<Duration>, most: usize) -> Rc<ReadyQueue> {
        let now = Instant::now();
        Rc::new(ReadyQueue {
            bound: Cell::new(bound),
            most: Cell::new(most),
            on: Cell::new(false),
            wake: Notify::new(),
            busy_since: Cell::new(now),
            queues: RefCell::default(),
            waiting: Default::default(),
            drains: Cell::new(Drains::new(now)),
            growth: Cell::new(Growth::new(now)),
            strict_until: Cell::new(now),
            each: Cell::default(),
        })
    }

    /// Follows a reload.
    pub(crate) fn set(&self, bound: Option<Duration>, most: usize) {
        self.bound.set(bound);
        self.most.set(most);
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.iter().map(Cell::get).sum()
    }

    /// Whether requests have to queue.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.on.get()
    }

    /// A request has come. `slept`: the worker slept since the one before.
    #[inline]
    pub(crate) fn request_comes(&self, now: Instant, slept: bool) {
        if slept {
            self.busy_since.set(now);
        } else if !self.on.get() {
            self.turn_on_if_late(now);
        }
    }

    fn turn_on_if_late(&self, now: Instant) {
        if let Some(bound) = self.bound.get()
            && now.saturating_duration_since(self.busy_since.get()) > bound / 2
        {
            self.on.set(true);
            self.drains.set(Drains::new(now));
            self.growth.set(Growth::new(now));
            self.wake.notify_one();
        }
    }

    /// Queues, unless the wait would be too long.
    pub(crate) fn enqueue(self: &Rc<ReadyQueue>, priority: Priority, now: Instant) -> Result<Ready, TooLate> {
        if self.refuses_one(priority, now) {
            return Err(TooLate);
        }
        self.growth.set(self.growth.get().comes());
        let waiter = Rc::new(Waiter { since: now, state: Cell::new(State::Waits), waker: RefCell::default() });
        self.queues.borrow_mut()[priority as usize].push_back(waiter.clone());
        let waiting = &self.waiting[priority as usize];
        waiting.set(waiting.get() + 1);
        Ok(Ready { queue: self.clone(), waiter, priority })
    }

    /// Whether a request that comes now would wait too long. Who is told so is refused.
    pub(crate) fn refuses_one(&self, priority: Priority, now: Instant) -> bool {
        let ahead: usize = self.waiting[..=priority as usize].iter().map(Cell::get).sum();
        let wait = self.wait_behind(ahead);
        // A burst may come at once; how long it will take is known only after some of it has been started.
        let too_late = self.stands(now) && self.bound.get().is_some_and(|bound| wait > bound);
        let refuses = too_late || ahead >= self.most.get();
        if refuses {
            self.refuses(now);
        }
        refuses
    }

    /// Whether more comes than the worker can do, or has lately.
    fn stands(&self, now: Instant) -> bool {
        let growth = self.growth.get();
        let is_long = || self.bound.get().is_some_and(|bound| self.wait_behind(self.len()) > bound * LONG);
        let grows = growth.spans(MORE) >= GROWS && is_long();
        grows || growth.spans(AS_MANY) >= GOES_ON || self.drains.get().stands || now < self.strict_until.get()
    }

    /// How long it will take until so many have been started.
    fn wait_behind(&self, ahead: usize) -> Duration {
        self.each.get().saturating_mul(u32::try_from(ahead).unwrap_or(u32::MAX))
    }

    /// Somebody is refused.
    fn refuses(&self, now: Instant) {
        if let Some(bound) = self.bound.get() {
            self.strict_until.set(now + bound * STRICT);
        }
    }

    /// How long a request may wait now.
    fn patience(&self, now: Instant) -> Option<Duration> {
        let bound = self.bound.get()?;
        Some(bound * if self.stands(now) { GUESS } else { BURST })
    }

    /// Starts flows as long as the server lives. `observe` is told each lap how many wait, and says how many of the worker's flows
    /// compute for long, which have a turn each lap, one of them.
    pub(crate) async fn run(self: Rc<ReadyQueue>, observe: impl Fn(usize) -> usize) {
        loop {
            self.wake.notified().await;
            let mut last = Instant::now();
            let mut starts = LEAST_A_LAP;
            // What may be started, in parts of one flow.
            let mut allowed = 0.0;
            // Since somebody was started last: while others compute, there are laps between.
            let mut passed = Duration::ZERO;
            loop {
                // Comes back after whatever is ready has run and the sockets have been looked at.
                tokio::task::yield_now().await;
                let now = Instant::now();
                let lap = now.saturating_duration_since(last);
                last = now;
                let computing = observe(self.len());
                // Laps are short as well while flows queue for their turns.
                if self.len() == 0 && lap < LAP && computing < LEAST_A_LAP {
                    self.queues.borrow_mut().iter_mut().for_each(VecDeque::clear);
                    self.on.set(false);
                    // Whether the worker keeps up is to be seen anew.
                    self.busy_since.set(now);
                    break;
                }
                starts = match lap {
                    lap if lap > LAP => (starts / 2).max(LEAST_A_LAP),
                    lap if lap < LAP / 2 => (starts * 2).min(MOST_A_LAP),
                    _ => starts,
                };
                // While all of those have had a turn, at most as many flows start as else in a lap: they might be such flows too.
                allowed = match computing {
                    0..LEAST_A_LAP => starts as f64,
                    _ => (allowed + LEAST_A_LAP as f64 / computing as f64).min(LEAST_A_LAP as f64),
                };
                let granted = self.turn(now, allowed as usize);
                allowed -= granted as f64;
                passed += lap;
                if granted > 0 {
                    let each = mem::take(&mut passed) / u32::try_from(granted).unwrap_or(u32::MAX);
                    if self.len() == 0 {
                        continue;
                    }
                    let before = self.each.get();
                    // A lap in which the system ran something else says little: it counts for twice the usual at most.
                    let next = if before.is_zero() { each } else { (before * 7 + each.min(before * 2)) / 8 };
                    self.each.set(next.max(Duration::from_micros(1)));
                }
            }
        }
    }

    /// Starts so many of those who wait, and refuses who has waited too long then. Gives how many were started.
    fn turn(&self, now: Instant, starts: usize) -> usize {
        let patience = self.patience(now);
        // Who is first is started even if it is late, as after a pause of the whole process, but not at any age.
        let longest = self.bound.get().map(|bound| bound * BURST);
        let mut granted = 0;
        let mut queues = self.queues.borrow_mut();
        for (queue, waiting) in queues.iter_mut().zip(&self.waiting) {
            while let Some(first) = queue.front() {
                let age = now.saturating_duration_since(first.since);
                let state = match first.state.get() {
                    State::Waits if granted < starts && longest.is_none_or(|longest| age <= longest) => State::Granted,
                    State::Waits if patience.is_some_and(|patience| age > patience) => State::Refused,
                    State::Waits => break,
                    gone => gone,
                };
                if first.state.get() == State::Waits {
                    granted += usize::from(state == State::Granted);
                    waiting.set(waiting.get() - 1);
                    first.state.set(state);
                    if state == State::Refused {
                        self.refuses(now);
                    }
                    if let Some(waker) = first.waker.take() {
                        waker.wake();
                    }
                }
                queue.pop_front();
            }
        }
        if let Some(bound) = self.bound.get() {
            let (mut growth, mut drains) = (self.growth.get(), self.drains.get());
            let since = queues.iter().filter_map(|queue| queue.front()).map(|first| first.since).min();
            let oldest = since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
            growth.turn(now, bound, self.len(), oldest);
            self.growth.set(growth);
            match since {
                Some(_) => drains.turn(now, bound, oldest),
                None => drains = Drains::new(now),
            }
            self.drains.set(drains);
        }
        granted
    }
}

/// A place in the queue. Dropping it gives it up.
#[derive(Debug)]
pub(crate) struct Ready {
    queue: Rc<ReadyQueue>,
    waiter: Rc<Waiter>,
    priority: Priority,
}

impl Ready {
    /// Ready when the flow is to start, or not to.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<Result<(), TooLate>> {
        match self.waiter.state.get() {
            State::Granted => Poll::Ready(Ok(())),
            State::Refused => Poll::Ready(Err(TooLate)),
            State::Waits | State::Gone => {
                let mut waker = self.waiter.waker.borrow_mut();
                match &mut *waker {
                    Some(waker) => waker.clone_from(cx.waker()),
                    None => *waker = Some(cx.waker().clone()),
                }
                Poll::Pending
            }
        }
    }
}

impl Drop for Ready {
    fn drop(&mut self) {
        if self.waiter.state.get() == State::Waits {
            self.waiter.state.set(State::Gone);
            let waiting = &self.queue.waiting[self.priority as usize];
            waiting.set(waiting.get() - 1);
        }
    }
}
