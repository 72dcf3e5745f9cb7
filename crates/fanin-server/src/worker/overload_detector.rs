//! Overload detector: whether a worker gets more requests than it can start, from queueing delay and arrival rate.
//!
//! A burst is no overload, and neither is a queue that drains after a pause of the machine. The detector reports an overload in each of
//! these cases, in spans as long as the target delay:
//! - For [`SUSTAINED_SPANS`] consecutive spans about as many requests arrived as were started, or more. A burst arrives at once; an
//!   overload goes on.
//! - For [`GROWTH_SPANS`] consecutive spans clearly more arrived than were started, and the last in the queue would wait for more than
//!   [`LONG_WAIT`] times the target. The higher the overload, the sooner it is detected.
//! - For [`BURST`] times the target the queueing delay stayed above the target and did not fall.
//! - A request was refused less than [`STRICT`] times the target ago. A queue that is empty for a moment does not end an overload.
//!
//! Relatives: controlled delay (CoDel, Nichols and Jacobson) in the form for servers of Maurer's *Fail at Scale*, ACM Queue 13:8. How a
//! burst is distinguished from an overload is our own.

use std::cell::Cell;
use std::time::Duration;

use tokio::time::Instant;

/// The delay trend is evaluated after this many times the target; a request of a burst may wait as long.
pub(super) const BURST: u32 = 10;
/// For this many times the target no request may be refused before bursts are tolerated again.
const STRICT: u32 = 30;
/// Consecutive spans in which about as many requests arrive as are started.
const SUSTAINED_SPANS: u32 = 6;
/// "About as many", in percent of the started ones. Arrivals at 80 % of the capacity stay below it.
const SUSTAINED_PERCENT: usize = 95;
/// Consecutive spans in which clearly more arrive.
const GROWTH_SPANS: u32 = 3;
/// "Clearly more", in percent of the started ones.
const GROWTH_PERCENT: usize = 125;
/// A wait of this many times the target is long.
const LONG_WAIT: u32 = 5;

/// See the module.
#[derive(Debug)]
pub(super) struct OverloadDetector {
    delay: Cell<DelayTrend>,
    arrivals: Cell<ArrivalTrend>,
    /// An overload was handled lately; it counts as one until then.
    strict_until: Cell<Instant>,
}

impl OverloadDetector {
    pub(super) fn new(now: Instant) -> OverloadDetector {
        OverloadDetector {
            delay: Cell::new(DelayTrend::new(now)),
            arrivals: Cell::new(ArrivalTrend::new(now)),
            strict_until: Cell::new(now),
        }
    }

    /// Forgets both trends: the queue starts anew.
    pub(super) fn restart(&self, now: Instant) {
        self.delay.set(DelayTrend::new(now));
        self.arrivals.set(ArrivalTrend::new(now));
    }

    /// A request joins the queue.
    pub(super) fn on_arrival(&self) {
        self.arrivals.set(self.arrivals.get().arrive());
    }

    /// A request is refused.
    pub(super) fn on_refusal(&self, now: Instant, target: Duration) {
        self.strict_until.set(now + target * STRICT);
    }

    /// Follows the queue, once in each event loop iteration: how many wait, and how long the first of them has.
    pub(super) fn observe(&self, now: Instant, target: Duration, waiting: usize, oldest: Option<Duration>) {
        let (mut delay, mut arrivals) = (self.delay.get(), self.arrivals.get());
        arrivals.observe(now, target, waiting, oldest.unwrap_or_default());
        match oldest {
            Some(oldest) => delay.observe(now, target, oldest),
            None => delay = DelayTrend::new(now),
        }
        self.arrivals.set(arrivals);
        self.delay.set(delay);
    }

    /// Whether the worker is overloaded. `last_wait` is how long the last in the queue is expected to wait.
    pub(super) fn is_overloaded(
        &self,
        now: Instant,
        target: Option<Duration>,
        last_wait: impl Fn() -> Duration,
    ) -> bool {
        let arrivals = self.arrivals.get();
        let is_long = || target.is_some_and(|target| last_wait() > target * LONG_WAIT);
        let grows = arrivals.spans(GROWTH_PERCENT) >= GROWTH_SPANS && is_long();
        grows
            || arrivals.spans(SUSTAINED_PERCENT) >= SUSTAINED_SPANS
            || self.delay.get().is_sustained
            || now < self.strict_until.get()
    }

    #[cfg(test)]
    pub(super) fn set_sustained_delay(&self) {
        self.delay.set(DelayTrend { is_sustained: true, ..self.delay.get() });
    }

    #[cfg(test)]
    pub(super) fn set_arrival_spans(&self, now: Instant, spans: u32) {
        self.arrivals.set(ArrivalTrend { spans, ..ArrivalTrend::new(now) });
    }

    /// Where the two thresholds on arrivals are.
    #[cfg(test)]
    pub(super) const SPANS: (u32, u32) = (SUSTAINED_SPANS, GROWTH_SPANS);
}

/// Whether the queueing delay falls in the long run.
#[derive(Clone, Copy, Debug)]
struct DelayTrend {
    /// When the queue was empty last, or when the period before ended.
    began: Instant,
    /// The delay then; `None` if the queue was empty, from where a delay can only rise.
    at_begin: Option<Duration>,
    /// The lowest delay since.
    lowest: Duration,
    /// In the period before, it was above the target and did not fall.
    is_sustained: bool,
}

impl DelayTrend {
    fn new(now: Instant) -> DelayTrend {
        DelayTrend { began: now, at_begin: None, lowest: Duration::MAX, is_sustained: false }
    }

    /// `oldest`: how long the first in the queue has waited.
    fn observe(&mut self, now: Instant, target: Duration, oldest: Duration) {
        self.lowest = self.lowest.min(oldest);
        if now.saturating_duration_since(self.began) >= target * BURST {
            // At 90 % load the delay falls by a tenth of the time that passes, however long the queue is.
            let falls = self.at_begin.is_none_or(|at_begin| self.lowest + target < at_begin);
            let is_sustained = self.lowest > target && !falls;
            *self = DelayTrend { began: now, at_begin: Some(oldest), lowest: oldest, is_sustained };
        }
    }
}

/// Whether about as many requests arrive as are started, or more, span by span. Closed-loop clients never make the queue longer than
/// they are many, but it does not get shorter either.
#[derive(Clone, Copy, Debug)]
struct ArrivalTrend {
    span_began: Instant,
    /// How many waited then.
    waiting: usize,
    /// How long the first of them had waited then.
    oldest: Duration,
    /// Arrivals since then.
    arrived: usize,
    /// Consecutive spans in which arrivals went on and the delay did not fall.
    spans: u32,
    /// Arrivals in all of those but the first, which may hold a burst.
    arrived_in_spans: usize,
    /// And starts.
    started_in_spans: usize,
}

impl ArrivalTrend {
    fn new(now: Instant) -> ArrivalTrend {
        ArrivalTrend {
            span_began: now,
            waiting: 0,
            oldest: Duration::ZERO,
            arrived: 0,
            spans: 0,
            arrived_in_spans: 0,
            started_in_spans: 0,
        }
    }

    /// The consecutive spans, if arrivals in all of them together are at least this percentage of the starts. A single span decides
    /// little: behind a burst, a worker that has enough to do looks like one that has too much.
    fn spans(&self, percent: usize) -> u32 {
        if self.arrived_in_spans * 100 >= self.started_in_spans * percent { self.spans } else { 0 }
    }

    fn arrive(self) -> ArrivalTrend {
        ArrivalTrend { arrived: self.arrived + 1, ..self }
    }

    /// `oldest`: how long the first of the waiting requests has waited.
    fn observe(&mut self, now: Instant, span: Duration, waiting: usize, oldest: Duration) {
        if now.saturating_duration_since(self.span_began) < span {
            return;
        }
        let started = (self.waiting + self.arrived).saturating_sub(waiting);
        // After a burst hardly any request arrives.
        let goes_on = self.arrived > 0 && self.arrived * 4 >= started * 3;
        let persists = goes_on && oldest >= self.oldest && oldest > span / 2;
        let next = ArrivalTrend { span_began: now, waiting, oldest, ..ArrivalTrend::new(now) };
        *self = match (persists, self.spans) {
            (false, _) => next,
            (true, 0) => ArrivalTrend { spans: 1, ..next },
            (true, spans) => ArrivalTrend {
                spans: spans.saturating_add(1),
                arrived_in_spans: self.arrived_in_spans + self.arrived,
                started_in_spans: self.started_in_spans + started,
                ..next
            },
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_falling_delay_is_no_overload() {
        // The delay every ten milliseconds, and when it is found to be sustained.
        let found = |delay: &dyn Fn(u32) -> u32| {
            let now = Instant::now();
            let mut trend = DelayTrend::new(now);
            (1..100).find(|at| {
                trend.observe(now + at * 10 * MS, 5 * MS, delay(*at) * MS);
                trend.is_sustained
            })
        };
        assert_eq!(found(&|_| 8), Some(10), "not shorter in the second fifty milliseconds than in the first");
        assert_eq!(found(&|at| if at == 33 { 3 } else { 8 }), Some(10));
        assert_eq!(found(&|at| 5 + at / 20), Some(25), "above the target only then");
        assert_eq!(found(&|at| 300_u32.saturating_sub(at * 13)), None, "after a pause of the machine it falls");
        assert_eq!(found(&|at| if at % 4 == 0 { 4 } else { 40 }), None, "the queue is almost empty now and then");
    }

    #[test]
    fn a_burst_is_no_overload() {
        // Arrivals, waiting requests and the delay every ten milliseconds; the spans at the end.
        let spans = |observed: &[(u32, usize, u32)]| {
            let now = Instant::now();
            let mut trend = ArrivalTrend::new(now);
            for ((arrived, waiting, oldest), at) in observed.iter().zip(1..) {
                (0..*arrived).for_each(|_| trend = trend.arrive());
                trend.observe(now + at * 10 * MS, 10 * MS, *waiting, *oldest * MS);
            }
            trend.spans(SUSTAINED_PERCENT)
        };
        assert_eq!(spans(&[(80, 50, 10), (60, 80, 20), (70, 120, 30)]), 3, "it grows");
        assert_eq!(spans(&[(530, 500, 10), (29, 499, 20), (30, 498, 30)]), 3, "about as many arrive as are started");
        assert_eq!(spans(&[(256, 230, 10), (0, 200, 20), (2, 172, 30)]), 0, "a burst");
        assert_eq!(spans(&[(930, 900, 200), (29, 900, 190), (30, 900, 180)]), 0, "the delay falls and falls");
        assert_eq!(spans(&[(35, 5, 4), (30, 5, 4), (30, 5, 4)]), 0, "the delay is short");
    }
}
