//! Virtual time that is exact to the microsecond.
//!
//! The runtime's own timers fire at whole milliseconds, in the server as here. What was measured, such as when an answer came, is finer. So
//! the timeline wakes it itself: when everything waits, it advances the clock to what comes first, but never over a whole
//! millisecond, where timers of the runtime may have to fire before.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::task::LocalSet;
use tokio::time::{Instant, Sleep};

const TICK: u64 = 1_000_000;

/// What happens at which time.
pub(crate) struct Timeline {
    /// When the runtime's clock began: its timers fire at whole milliseconds after this.
    origin: Instant,
    sleepers: RefCell<BinaryHeap<Reverse<Sleeper>>>,
    order: Cell<u64>,
}

struct Sleeper {
    at: Instant,
    order: u64,
    waker: Waker,
}

impl PartialEq for Sleeper {
    fn eq(&self, other: &Sleeper) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}

impl Eq for Sleeper {}

impl PartialOrd for Sleeper {
    fn partial_cmp(&self, other: &Sleeper) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Sleeper {
    fn cmp(&self, other: &Sleeper) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// What begins by itself, one after another.
pub(crate) trait Arrivals {
    /// When the next one is due; `None` if there is none.
    fn next(&self) -> Option<Instant>;
    /// Begins the next one.
    fn begin(&mut self, local: &LocalSet);
    /// Whether all that matters has ended.
    fn are_done(&self) -> bool;
}

impl Timeline {
    /// To be made first thing in a runtime.
    pub(crate) fn new(runtime: &Runtime) -> Rc<Timeline> {
        let _entered = runtime.enter();
        Rc::new(Timeline { origin: Instant::now(), sleepers: RefCell::default(), order: Cell::new(0) })
    }

    /// Waits until then.
    pub(crate) fn until(self: &Rc<Self>, at: Instant) -> Until {
        Until { timeline: self.clone(), at, waker: None }
    }

    fn next(&self) -> Option<Instant> {
        self.sleepers.borrow().peek().map(|Reverse(sleeper)| sleeper.at)
    }

    /// Wakes what is due. Whether anything was.
    fn wake(&self, now: Instant) -> bool {
        let mut woken = false;
        loop {
            // Waking runs other code, which may come back here.
            let mut sleepers = self.sleepers.borrow_mut();
            if sleepers.peek().is_none_or(|Reverse(sleeper)| sleeper.at > now) {
                return woken;
            }
            let Some(Reverse(sleeper)) = sleepers.pop() else { return woken };
            drop(sleepers);
            sleeper.waker.wake();
            woken = true;
        }
    }

    /// How far a time is above a whole millisecond.
    fn above_tick(&self, time: Instant) -> Duration {
        Duration::from_nanos((time.saturating_duration_since(self.origin).as_nanos() % u128::from(TICK)) as u64)
    }

    /// Runs until all arrivals are done.
    pub(crate) fn run(self: &Rc<Self>, runtime: &Runtime, local: &mut LocalSet, arrivals: &mut dyn Arrivals) {
        runtime.block_on(async {
            let mut timer = pin!(tokio::time::sleep(Duration::ZERO));
            let mut idle: Option<Arc<Idle>> = None;
            poll_fn(|context| {
                let idle = idle.get_or_insert_with(|| Idle::new(context.waker()));
                self.step(context, idle, local, arrivals, timer.as_mut())
            })
            .await;
        });
    }

    fn step(
        &self,
        context: &mut Context<'_>,
        idle: &Arc<Idle>,
        local: &mut LocalSet,
        arrivals: &mut dyn Arrivals,
        mut timer: Pin<&mut Sleep>,
    ) -> Poll<()> {
        let waker = Waker::from(idle.clone());
        loop {
            idle.is_inside.store(true, Relaxed);
            loop {
                idle.is_woken.store(false, Relaxed);
                let _ = Pin::new(&mut *local).poll(&mut Context::from_waker(&waker));
                if !idle.is_woken.load(Relaxed) {
                    break;
                }
            }
            idle.is_inside.store(false, Relaxed);
            if arrivals.are_done() {
                return Poll::Ready(());
            }
            let now = Instant::now();
            let arrival = arrivals.next();
            if arrival.is_some_and(|at| at <= now) {
                arrivals.begin(local);
                continue;
            }
            if self.wake(now) {
                continue;
            }
            let next = [arrival, self.next()].into_iter().flatten().min();
            let above = self.above_tick(now);
            let to_tick = Duration::from_nanos(TICK) - above;
            match next {
                Some(at) if at < now + to_tick => {
                    advance(at - now);
                    continue;
                }
                _ if !above.is_zero() => {
                    // At a whole millisecond the runtime's timers come first.
                    advance(to_tick);
                    context.waker().wake_by_ref();
                }
                Some(at) => {
                    timer.as_mut().reset(at - self.above_tick(at));
                    if timer.as_mut().poll(context).is_ready() {
                        context.waker().wake_by_ref();
                    }
                }
                // Timers of the runtime are all that is left.
                None => {}
            }
            return Poll::Pending;
        }
    }
}

/// Advances the paused clock, now.
fn advance(by: Duration) {
    // The first poll advances; what it waits for then is that others run, which the caller sees to.
    let _ = pin!(tokio::time::advance(by)).poll(&mut Context::from_waker(Waker::noop()));
}

/// Tells whether something can run.
struct Idle {
    is_woken: AtomicBool,
    is_inside: AtomicBool,
    outer: Waker,
}

impl Idle {
    fn new(outer: &Waker) -> Arc<Idle> {
        Arc::new(Idle { is_woken: false.into(), is_inside: false.into(), outer: outer.clone() })
    }
}

impl Wake for Idle {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Relaxed);
        if !self.is_inside.load(Relaxed) {
            self.outer.wake_by_ref();
        }
    }
}

/// See [`Timeline::until`].
pub(crate) struct Until {
    timeline: Rc<Timeline>,
    at: Instant,
    waker: Option<Waker>,
}

impl Future for Until {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.at <= Instant::now() {
            return Poll::Ready(());
        }
        if !self.waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            let order = self.timeline.order.get();
            self.timeline.order.set(order + 1);
            let sleeper = Sleeper { at: self.at, order, waker: context.waker().clone() };
            self.timeline.sleepers.borrow_mut().push(Reverse(sleeper));
            self.waker = Some(context.waker().clone());
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Done once five things have been seen.
    struct UntilFive(Rc<RefCell<Vec<(&'static str, u128)>>>);

    impl Arrivals for UntilFive {
        fn next(&self) -> Option<Instant> {
            None
        }

        fn begin(&mut self, _: &LocalSet) {}

        fn are_done(&self) -> bool {
            self.0.borrow().len() == 5
        }
    }

    #[test]
    fn its_times_are_exact_and_the_timers_of_the_runtime_fire_between() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let timeline = Timeline::new(&runtime);
        let mut local = LocalSet::new();
        let seen = Rc::new(RefCell::new(Vec::new()));
        let start = timeline.origin;
        for (name, micros) in [("b", 1300), ("a", 300), ("c", 5_000_700)] {
            let (timeline, seen) = (timeline.clone(), seen.clone());
            local.spawn_local(async move {
                timeline.until(start + Duration::from_micros(micros)).await;
                seen.borrow_mut().push((name, start.elapsed().as_micros()));
            });
        }
        for (name, millis) in [("timer", 1), ("late timer", 6000)] {
            let seen = seen.clone();
            local.spawn_local(async move {
                tokio::time::sleep(Duration::from_millis(millis)).await;
                seen.borrow_mut().push((name, start.elapsed().as_micros()));
            });
        }
        timeline.run(&runtime, &mut local, &mut UntilFive(seen.clone()));
        let expected = [("a", 300), ("timer", 1000), ("b", 1300), ("c", 5_000_700), ("late timer", 6_000_000)];
        assert_eq!(*seen.borrow(), expected);
    }
}
