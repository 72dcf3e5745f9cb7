//! Run queue: parsed requests whose flow has not started, in front of a worker that cannot keep up.
//!
//! A worker that sleeps now and then keeps up; each flow starts as soon as its head is parsed. After some time without sleep, requests
//! queue here, and one task starts a few flows in each event loop iteration. So answers that arrive, heads to parse and refusals never
//! wait for more than an iteration (about a millisecond), however many requests there are. The queueing delay is this process's own:
//! a slow upstream leaves the worker asleep.
//!
//! A request that waits too long is refused. What is too long depends on the [`OverloadDetector`]:
//! - Without overload, a request may wait for [`BURST`] times the target delay (`[server] queueing`).
//! - Under overload, a request is refused at once if its expected wait exceeds the target. The estimate is not exact: a queued request
//!   may wait for [`ESTIMATE_MARGIN`] times the target before it is refused after all.
//!
//! Higher priority starts first.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::mem;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::overload_detector::{BURST, OverloadDetector};
use crate::Priority;

#[cfg(test)]
mod tests;

/// Under overload a queued request may wait for this many times the target.
const ESTIMATE_MARGIN: u32 = 2;
/// The target length of an event loop iteration. A longer one lowers the number of starts in the next, one of half the length raises it.
const ITERATION: Duration = Duration::from_millis(1);
/// Most flows started in one iteration.
const MAX_STARTS: usize = 64;
/// Fewest, however long the iteration was: other work on this worker may be long by itself.
const MIN_STARTS: usize = 2;

/// The run queue of one worker.
#[derive(Debug)]
pub(crate) struct RunQueue {
    /// The target delay, `[server] queueing`. `None`: requests never queue here.
    target: Cell<Option<Duration>>,
    /// `[server] max_waiting` bounds this queue too.
    max_waiting: Cell<usize>,
    /// Requests queue.
    is_active: Cell<bool>,
    wake: Notify,
    /// When the first request since the worker's last sleep arrived.
    busy_since: Cell<Instant>,
    queues: RefCell<[VecDeque<Rc<Waiter>>; Priority::ALL.len()]>,
    /// How many wait, by priority. Those that left stay in `queues` until they come to the front.
    waiting: [Cell<usize>; Priority::ALL.len()],
    detector: OverloadDetector,
    /// Time between two starts, smoothed; zero while unknown.
    start_interval: Cell<Duration>,
}

#[derive(Debug)]
struct Waiter {
    since: Instant,
    state: Cell<State>,
    waker: RefCell<Option<Waker>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    Granted,
    Refused,
    Left,
}

/// The request would wait too long, or has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueTimeout;

impl RunQueue {
    pub(crate) fn new(target: Option<Duration>, max_waiting: usize) -> Rc<RunQueue> {
        let now = Instant::now();
        Rc::new(RunQueue {
            target: Cell::new(target),
            max_waiting: Cell::new(max_waiting),
            is_active: Cell::new(false),
            wake: Notify::new(),
            busy_since: Cell::new(now),
            queues: RefCell::default(),
            waiting: Default::default(),
            detector: OverloadDetector::new(now),
            start_interval: Cell::default(),
        })
    }

    /// Takes over the configuration of a reload.
    pub(crate) fn set(&self, target: Option<Duration>, max_waiting: usize) {
        self.target.set(target);
        self.max_waiting.set(max_waiting);
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.iter().map(Cell::get).sum()
    }

    /// Whether requests have to queue.
    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.is_active.get()
    }

    /// A request has arrived. `slept`: the worker slept since the one before.
    #[inline]
    pub(crate) fn on_request(&self, now: Instant, slept: bool) {
        if slept {
            self.busy_since.set(now);
        } else if !self.is_active.get() {
            self.activate_if_busy(now);
        }
    }

    fn activate_if_busy(&self, now: Instant) {
        if let Some(target) = self.target.get()
            && now.saturating_duration_since(self.busy_since.get()) > target / 2
        {
            self.is_active.set(true);
            self.detector.restart(now);
            self.wake.notify_one();
        }
    }

    /// Joins the queue, unless the wait would be too long.
    pub(crate) fn enqueue(
        self: &Rc<RunQueue>,
        priority: Priority,
        now: Instant,
    ) -> Result<QueuedRequest, QueueTimeout> {
        if self.refuses(priority, now) {
            return Err(QueueTimeout);
        }
        self.detector.on_arrival();
        let waiter = Rc::new(Waiter { since: now, state: Cell::new(State::Waiting), waker: RefCell::default() });
        self.queues.borrow_mut()[priority as usize].push_back(waiter.clone());
        let waiting = &self.waiting[priority as usize];
        waiting.set(waiting.get() + 1);
        Ok(QueuedRequest { queue: self.clone(), waiter, priority })
    }

    /// Whether a request that arrives now would wait too long. The caller must refuse it then.
    pub(crate) fn refuses(&self, priority: Priority, now: Instant) -> bool {
        let ahead: usize = self.waiting[..=priority as usize].iter().map(Cell::get).sum();
        let wait = self.expected_wait(ahead);
        // A burst may arrive at once; how long it takes is known only after some of it has been started.
        let too_late = self.is_overloaded(now) && self.target.get().is_some_and(|target| wait > target);
        let refuses = too_late || ahead >= self.max_waiting.get();
        if refuses {
            self.on_refusal(now);
        }
        refuses
    }

    fn is_overloaded(&self, now: Instant) -> bool {
        self.detector.is_overloaded(now, self.target.get(), || self.expected_wait(self.len()))
    }

    /// How long it will take to start this many.
    fn expected_wait(&self, ahead: usize) -> Duration {
        self.start_interval.get().saturating_mul(u32::try_from(ahead).unwrap_or(u32::MAX))
    }

    fn on_refusal(&self, now: Instant) {
        if let Some(target) = self.target.get() {
            self.detector.on_refusal(now, target);
        }
    }

    /// How long a request may wait now.
    fn max_delay(&self, now: Instant) -> Option<Duration> {
        let target = self.target.get()?;
        Some(target * if self.is_overloaded(now) { ESTIMATE_MARGIN } else { BURST })
    }

    /// Starts flows as long as the server lives. Each iteration, `observe` is given how many wait, and returns how many of the
    /// worker's flows are CPU-bound. Of those, one gets a time slice in each iteration.
    pub(crate) async fn run(self: Rc<RunQueue>, observe: impl Fn(usize) -> usize) {
        loop {
            self.wake.notified().await;
            let mut last = Instant::now();
            let mut starts = MIN_STARTS;
            // How many may be started now; fractions add up over iterations.
            let mut allowed = 0.0;
            // Since the last start: beside CPU-bound flows there are iterations without one.
            let mut since_start = Duration::ZERO;
            loop {
                // Resumes after whatever is ready has run and the sockets have been polled.
                tokio::task::yield_now().await;
                let now = Instant::now();
                let iteration = now.saturating_duration_since(last);
                last = now;
                let cpu_bound = observe(self.len());
                // Iterations are short as well while CPU-bound flows wait for their time slices.
                if self.len() == 0 && iteration < ITERATION && cpu_bound < MIN_STARTS {
                    self.deactivate(now);
                    break;
                }
                starts = match iteration {
                    iteration if iteration > ITERATION => (starts / 2).max(MIN_STARTS),
                    iteration if iteration < ITERATION / 2 => (starts * 2).min(MAX_STARTS),
                    _ => starts,
                };
                // While each CPU-bound flow gets one time slice, start at most as many flows as otherwise in one iteration: the new
                // ones may be CPU-bound too.
                allowed = match cpu_bound {
                    0..MIN_STARTS => starts as f64,
                    _ => (allowed + MIN_STARTS as f64 / cpu_bound as f64).min(MIN_STARTS as f64),
                };
                let granted = self.start_waiting(now, allowed as usize);
                allowed -= granted as f64;
                since_start += iteration;
                if granted > 0 {
                    let interval = mem::take(&mut since_start) / u32::try_from(granted).unwrap_or(u32::MAX);
                    if self.len() > 0 {
                        self.smooth_start_interval(interval);
                    }
                }
            }
        }
    }

    fn deactivate(&self, now: Instant) {
        self.queues.borrow_mut().iter_mut().for_each(VecDeque::clear);
        self.is_active.set(false);
        // Whether the worker keeps up is measured anew.
        self.busy_since.set(now);
    }

    fn smooth_start_interval(&self, interval: Duration) {
        let before = self.start_interval.get();
        // An iteration in which the system ran something else proves little: it counts for twice the usual at most.
        let next = if before.is_zero() { interval } else { (before * 7 + interval.min(before * 2)) / 8 };
        self.start_interval.set(next.max(Duration::from_micros(1)));
    }

    /// Starts up to `starts` waiting requests, and refuses those that have waited too long. Returns how many were started.
    fn start_waiting(&self, now: Instant, starts: usize) -> usize {
        let max_delay = self.max_delay(now);
        // The first in the queue is started even if it is late, as after a pause of the whole process, but not at any age.
        let longest = self.target.get().map(|target| target * BURST);
        let mut granted = 0;
        let mut queues = self.queues.borrow_mut();
        for (queue, waiting) in queues.iter_mut().zip(&self.waiting) {
            while let Some(first) = queue.front() {
                let age = now.saturating_duration_since(first.since);
                let state = match first.state.get() {
                    State::Waiting if granted < starts && longest.is_none_or(|longest| age <= longest) => {
                        State::Granted
                    }
                    State::Waiting if max_delay.is_some_and(|max_delay| age > max_delay) => State::Refused,
                    State::Waiting => break,
                    left => left,
                };
                if first.state.get() == State::Waiting {
                    granted += usize::from(state == State::Granted);
                    waiting.set(waiting.get() - 1);
                    first.state.set(state);
                    if state == State::Refused {
                        self.on_refusal(now);
                    }
                    if let Some(waker) = first.waker.take() {
                        waker.wake();
                    }
                }
                queue.pop_front();
            }
        }
        if let Some(target) = self.target.get() {
            let since = queues.iter().filter_map(|queue| queue.front()).map(|first| first.since).min();
            let oldest = since.map(|since| now.saturating_duration_since(since));
            self.detector.observe(now, target, self.len(), oldest);
        }
        granted
    }
}

/// A request in the queue. Dropping it leaves the queue.
#[derive(Debug)]
pub(crate) struct QueuedRequest {
    queue: Rc<RunQueue>,
    waiter: Rc<Waiter>,
    priority: Priority,
}

impl QueuedRequest {
    /// Ready when the flow is to start, or the request is refused.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<Result<(), QueueTimeout>> {
        match self.waiter.state.get() {
            State::Granted => Poll::Ready(Ok(())),
            State::Refused => Poll::Ready(Err(QueueTimeout)),
            State::Waiting | State::Left => {
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

impl Drop for QueuedRequest {
    fn drop(&mut self) {
        if self.waiter.state.get() == State::Waiting {
            self.waiter.state.set(State::Left);
            let waiting = &self.queue.waiting[self.priority as usize];
            waiting.set(waiting.get() - 1);
        }
    }
}
