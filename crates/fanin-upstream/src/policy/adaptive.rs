//! Adaptive limit: it grows while the upstream's latency stays as it is without load, and shrinks as soon as calls
//! queue there.
//!
//! It follows the gradient limits of Netflix's concurrency-limits and of Envoy. Recent latency is compared with the
//! latency at half the limit. The ratio, between 0.5 and 1, multiplies the limit, and the square root of the limit is
//! added so that it grows while nothing queues. Averages over windows are compared, because single calls may differ
//! tenfold. A limit that is not used does not grow.
//!
//! The latency without load is measured, not remembered. A long moving average would include the queue that the limit
//! itself has caused, and the limit would grow without a bound. So a window runs at half the limit every ten seconds.
//!
//! A timeout shrinks the limit too, at most once a round trip: an upstream that hangs shows no latency.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Bounds of an adaptive limit.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AdaptiveLimit {
    /// Fewest calls in flight that are allowed.
    pub min: usize,
    /// Most calls in flight that are allowed.
    pub max: usize,
}

impl AdaptiveLimit {
    pub fn of(limit: fanin_config::Limit) -> Option<AdaptiveLimit> {
        match limit {
            fanin_config::Limit::Fixed(_) => None,
            fanin_config::Limit::Adaptive { min, max } => Some(AdaptiveLimit { min, max }),
        }
    }
}

/// Growth of latency that does not count as queueing.
const TOLERANCE: f64 = 1.5;
/// Answers in a window: half the limit, within these bounds.
const WINDOW: (u32, u32) = (10, 100);
/// How often the latency without load is measured.
const MEASURE_EVERY: Duration = Duration::from_secs(10);
/// The factor by which a timeout shrinks the limit.
const BACK_OFF: f64 = 0.9;

/// The state of one upstream's limit. Shared by all workers.
#[derive(Debug)]
pub(crate) struct Gradient(Mutex<State>);

#[derive(Debug)]
struct State {
    limit: f64,
    /// Latency without load in seconds; 0 if it is not known.
    base: f64,
    sum: f64,
    samples: u32,
    most_in_flight: u32,
    /// The running window is at half the limit.
    measuring: bool,
    measured: Instant,
    shrunk: Instant,
}

impl Gradient {
    pub fn new(bounds: &AdaptiveLimit) -> Gradient {
        let now = Instant::now();
        Gradient(Mutex::new(State {
            limit: (bounds.min * 4).clamp(bounds.min, bounds.max.max(bounds.min)) as f64,
            base: 0.0,
            sum: 0.0,
            samples: 0,
            most_in_flight: 0,
            measuring: false,
            measured: now,
            shrunk: now,
        }))
    }

    pub fn limit(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).effective()
    }

    /// Records a call's latency and the calls in flight. Returns the limit if it has changed. Skipped if another worker
    /// holds the lock: there are enough samples.
    pub fn answered(&self, latency: Duration, in_flight: u32, now: Instant, bounds: &AdaptiveLimit) -> Option<usize> {
        let mut state = self.0.try_lock().ok()?;
        state.sum += latency.as_secs_f64();
        state.samples += 1;
        state.most_in_flight = state.most_in_flight.max(in_flight);
        if state.samples < (state.effective() as u32 / 2).clamp(WINDOW.0, WINDOW.1) {
            return None;
        }
        let before = state.effective();
        state.window_ends(now, bounds);
        let after = state.effective();
        (after != before).then_some(after)
    }

    /// Records a timeout. Returns the limit if it has changed.
    pub fn timed_out(&self, now: Instant, bounds: &AdaptiveLimit) -> Option<usize> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let round_trip = Duration::from_secs_f64(state.base.clamp(0.01, 10.0));
        if now.saturating_duration_since(state.shrunk) < round_trip {
            return None;
        }
        state.shrunk = now;
        let before = state.effective();
        let limit = state.limit * BACK_OFF;
        state.set(limit, bounds);
        let after = state.effective();
        (after != before).then_some(after)
    }
}

impl State {
    fn effective(&self) -> usize {
        if self.measuring { (self.limit / 2.0) as usize } else { self.limit as usize }.max(1)
    }

    fn window_ends(&mut self, now: Instant, bounds: &AdaptiveLimit) {
        let latency = (self.sum / f64::from(self.samples)).max(1e-6);
        let used = f64::from(self.most_in_flight) >= self.effective() as f64 / 2.0;
        (self.sum, self.samples, self.most_in_flight) = (0.0, 0, 0);
        if self.measuring || self.base == 0.0 {
            self.measuring = false;
            self.measured = now;
            self.base = latency;
            return;
        }
        if latency < self.base {
            self.base += (latency - self.base) * 0.2;
        }
        if used {
            let gradient = (TOLERANCE * self.base / latency).clamp(0.5, 1.0);
            let wanted = self.limit * gradient + self.limit.sqrt();
            // Half of the way, because windows vary.
            self.set((self.limit + wanted) / 2.0, bounds);
        }
        if now.saturating_duration_since(self.measured) >= MEASURE_EVERY {
            self.measuring = true;
        }
    }

    fn set(&mut self, limit: f64, bounds: &AdaptiveLimit) {
        self.limit = limit.clamp(bounds.min as f64, bounds.max.max(bounds.min) as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUICK: Duration = Duration::from_millis(10);

    /// An upstream that always gets as many calls as the limit allows.
    struct Upstream {
        gradient: Gradient,
        bounds: AdaptiveLimit,
        now: Instant,
    }

    impl Upstream {
        fn new() -> Upstream {
            let bounds = AdaptiveLimit { min: 8, max: 1024 };
            Upstream { gradient: Gradient::new(&bounds), bounds, now: Instant::now() }
        }

        /// Answers for some seconds. Returns the lowest and the highest limit of the second half.
        fn answers(&mut self, seconds: u64, latency: impl Fn(usize) -> Duration) -> (usize, usize) {
            let begun = self.now;
            let span = Duration::from_secs(seconds);
            let (mut low, mut high) = (usize::MAX, 0);
            while self.now < begun + span {
                let limit = self.gradient.limit();
                let took = latency(limit);
                self.now += took / limit as u32;
                self.gradient.answered(took, limit as u32, self.now, &self.bounds);
                if self.now > begun + span / 2 {
                    (low, high) = (low.min(limit), high.max(limit));
                }
            }
            (low, high)
        }
    }

    /// With 100 places: more calls queue.
    fn with_100_places(limit: usize) -> Duration {
        QUICK.mul_f64((limit as f64 / 100.0).max(1.0))
    }

    #[tokio::test(start_paused = true)]
    async fn the_limit_converges_to_the_upstreams_capacity() {
        let (low, high) = Upstream::new().answers(120, with_100_places);
        assert!(low >= 70 && high <= 200, "{low} to {high}");
    }

    #[tokio::test(start_paused = true)]
    async fn the_limit_shrinks_and_recovers_with_the_upstream() {
        let mut upstream = Upstream::new();
        let (before, _) = upstream.answers(9, |_| QUICK);
        let (_, slow) = upstream.answers(3, |limit| QUICK.mul_f64((limit as f64 / 10.0).max(1.0)));
        assert!(slow < before / 4, "{before} to {slow}");
        let (_, after) = upstream.answers(9, |_| QUICK);
        assert!(after > slow * 4, "{slow} to {after}");
    }

    #[tokio::test(start_paused = true)]
    async fn the_limit_recovers_for_an_upstream_that_stays_slower() {
        let mut upstream = Upstream::new();
        upstream.answers(9, |_| QUICK);
        let (_, limit) = upstream.answers(60, |_| QUICK * 5);
        assert!(limit > 500, "{limit}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_limit_that_is_not_used_does_not_grow() {
        let Upstream { gradient, bounds, now } = Upstream::new();
        let before = gradient.limit();
        for _ in 0..1000 {
            assert_eq!(gradient.answered(QUICK, 1, now, &bounds), None);
        }
        assert_eq!(gradient.limit(), before);
    }

    #[tokio::test(start_paused = true)]
    async fn timeouts_shrink_the_limit_once_a_round_trip_down_to_the_minimum() {
        let Upstream { gradient, bounds, mut now } = Upstream::new();
        let before = gradient.limit();
        now += QUICK;
        for _ in 0..100 {
            gradient.timed_out(now, &bounds);
        }
        assert_eq!(gradient.limit(), (before as f64 * BACK_OFF) as usize, "a hundred at once are one event");
        for _ in 0..100 {
            now += QUICK;
            gradient.timed_out(now, &bounds);
        }
        assert_eq!(gradient.limit(), bounds.min);
    }
}
