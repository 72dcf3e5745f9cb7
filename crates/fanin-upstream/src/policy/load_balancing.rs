//! Load balancing: power of two choices. A call goes to the one of two random endpoints that is expected to answer
//! sooner.
//!
//! With the best of all endpoints instead, every worker would send to the same endpoint until its figures have changed,
//! and the load would move from one to the next as a herd (Mitzenmacher, *The Power of Two Choices in Randomized Load
//! Balancing*). An endpoint's cost is its moving average of latency times its calls in flight ("peak EWMA", Finagle).
//! The average rises at once with a slow answer and falls slowly, so that a stalling endpoint is avoided from its first
//! slow answer on.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::Instant;

use super::random::Random;

/// Time in which an old latency loses 63 % of its weight.
const DECAY: Duration = Duration::from_secs(10);
/// Cost of an endpoint that has calls in flight and has never answered.
const UNKNOWN: f64 = 1e9;

/// Latency and calls in flight of one endpoint, over all workers.
#[derive(Debug)]
pub(crate) struct EndpointLoad {
    in_flight: AtomicU32,
    /// Bits of an `f64`, microseconds; 0 before the first answer.
    average: AtomicU64,
    /// Microseconds from `epoch` to the last change of `average`.
    changed: AtomicU64,
    epoch: Instant,
}

impl Default for EndpointLoad {
    fn default() -> Self {
        EndpointLoad {
            in_flight: AtomicU32::new(0),
            average: AtomicU64::new(0),
            changed: AtomicU64::new(0),
            epoch: Instant::now(),
        }
    }
}

impl EndpointLoad {
    /// Counts a call until the guard is dropped.
    pub fn begin(&self) -> InFlight<'_> {
        self.in_flight.fetch_add(1, Relaxed);
        InFlight(self)
    }

    /// Ends a call whose guard was [kept](InFlight::keep).
    pub fn end(&self) {
        self.in_flight.fetch_sub(1, Relaxed);
    }

    /// Records a latency. If two workers do so at once, one of the two may be lost.
    pub fn observe(&self, latency: Duration, now: Instant) {
        let latency = latency.as_micros() as f64;
        let average = self.decayed(now);
        // The new latency gets the weight that the old average has lost by its age.
        let remaining = self.weight(now);
        let average = if latency > average { latency } else { average.max(latency * (1.0 - remaining)) };
        self.average.store(average.to_bits(), Relaxed);
        self.changed.store(self.micros(now), Relaxed);
    }

    /// Expected cost of one more call here, in microseconds.
    pub fn cost(&self, now: Instant) -> f64 {
        let in_flight = f64::from(self.in_flight.load(Relaxed));
        if self.average.load(Relaxed) == 0 && in_flight > 0.0 {
            return UNKNOWN + in_flight;
        }
        // At least one microsecond, so that calls in flight count even if answers take no time.
        self.decayed(now).max(1.0) * (in_flight + 1.0)
    }

    fn decayed(&self, now: Instant) -> f64 {
        f64::from_bits(self.average.load(Relaxed)) * self.weight(now)
    }

    fn weight(&self, now: Instant) -> f64 {
        let age = self.micros(now).saturating_sub(self.changed.load(Relaxed)) as f64;
        (-age / DECAY.as_micros() as f64).exp()
    }

    fn micros(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.epoch).as_micros()).unwrap_or(u64::MAX)
    }
}

/// A call on an endpoint.
#[derive(Debug)]
pub(crate) struct InFlight<'a>(&'a EndpointLoad);

impl InFlight<'_> {
    /// The call stays counted until [`EndpointLoad::end`].
    pub fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// The cheaper one of two random numbers of `0..count`.
pub(crate) fn power_of_two_choices(count: usize, random: &Random, cost: impl Fn(usize) -> f64) -> usize {
    if count < 2 {
        return 0;
    }
    let first = random.below(count);
    let second = (first + 1 + random.below(count - 1)) % count;
    if cost(second) < cost(first) { second } else { first }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_slow_answer_counts_at_once_and_fades_slowly() {
        let load = EndpointLoad::default();
        load.observe(Duration::from_millis(1), Instant::now());
        load.observe(Duration::from_millis(100), Instant::now());
        assert_eq!(load.cost(Instant::now()), 100_000.0);
        load.observe(Duration::from_millis(1), Instant::now());
        assert!(load.cost(Instant::now()) > 99_000.0, "one quick answer does not excuse a slow one");
        tokio::time::advance(DECAY).await;
        let cost = load.cost(Instant::now());
        assert!((36_000.0..38_000.0).contains(&cost), "{cost}");
    }

    #[tokio::test(start_paused = true)]
    async fn calls_in_flight_raise_the_cost_of_an_endpoint() {
        let now = Instant::now();
        let (idle, busy) = (EndpointLoad::default(), EndpointLoad::default());
        for load in [&idle, &busy] {
            load.observe(Duration::from_millis(1), now);
        }
        let calls: Vec<_> = (0..9).map(|_| busy.begin()).collect();
        assert_eq!(busy.cost(now), 10.0 * idle.cost(now));
        drop(calls);
        assert_eq!(busy.cost(now), idle.cost(now));
    }

    #[tokio::test(start_paused = true)]
    async fn an_endpoint_that_has_never_answered_gets_one_call_only() {
        let now = Instant::now();
        let (new, old) = (EndpointLoad::default(), EndpointLoad::default());
        old.observe(Duration::from_secs(1), now);
        assert!(new.cost(now) < old.cost(now));
        let _call = new.begin();
        assert!(new.cost(now) > old.cost(now));
    }

    #[test]
    fn the_most_expensive_of_three_is_never_chosen_and_the_others_share() {
        let random = Random::new(7);
        let mut chosen = [0; 3];
        for _ in 0..3000 {
            chosen[power_of_two_choices(3, &random, |index| [1.0, 1.0, 9.0][index])] += 1;
        }
        assert_eq!(chosen[2], 0);
        assert!(chosen[0] > 1200 && chosen[1] > 1200, "{chosen:?}");
    }
}
