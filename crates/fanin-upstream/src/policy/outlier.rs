//! Outlier detection: an endpoint that fails while others do not is ejected for a while.
//!
//! Some consecutive failures eject an endpoint. When its time is over, one call at a time tries it, and the first success
//! brings it back. Each further ejection lasts longer. At most half of the endpoints are ejected at once: when most
//! fail, the breaker has to act.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::Instant;

/// Consecutive failures that eject an endpoint.
const FAILURES: u32 = 5;
/// Length of the first and of the longest ejection.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);
/// Time between two probes of an endpoint whose ejection is over.
const PROBE_EVERY: Duration = Duration::from_secs(1);

/// Recent failures of an endpoint.
#[derive(Debug)]
pub(crate) struct Health {
    consecutive: AtomicU32,
    ejections: AtomicU32,
    /// Microseconds from `epoch` to the end of the ejection; 0 if the endpoint is not ejected.
    until: AtomicU64,
    epoch: Instant,
}

/// Whether an endpoint may get a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Availability {
    /// It may.
    Available,
    /// It may get this one call, as a probe.
    Probe,
    /// It may not.
    Ejected,
}

impl Default for Health {
    fn default() -> Self {
        Health {
            consecutive: AtomicU32::new(0),
            ejections: AtomicU32::new(0),
            until: AtomicU64::new(0),
            epoch: Instant::now(),
        }
    }
}

impl Health {
    pub fn is_ejected(&self) -> bool {
        self.until.load(Relaxed) != 0
    }

    /// For an endpoint that is about to be chosen. Only one caller gets `Probe`.
    pub fn availability(&self, now: Instant) -> Availability {
        let until = self.until.load(Relaxed);
        if until == 0 {
            return Availability::Available;
        }
        let now = self.micros(now);
        if now < until {
            return Availability::Ejected;
        }
        let next = now + PROBE_EVERY.as_micros() as u64;
        match self.until.compare_exchange(until, next, Relaxed, Relaxed) {
            Ok(_) => Availability::Probe,
            Err(_) => Availability::Ejected,
        }
    }

    pub fn succeeded(&self) {
        // A write would take the cache line from the other workers.
        if self.consecutive.load(Relaxed) != 0 {
            self.consecutive.store(0, Relaxed);
            self.ejections.store(0, Relaxed);
            self.until.store(0, Relaxed);
        }
    }

    /// Records a failure. Whether the endpoint is ejected now. `may_eject` tells whether enough others are available.
    pub fn failed(&self, now: Instant, may_eject: impl FnOnce() -> bool) -> bool {
        let consecutive = self.consecutive.fetch_add(1, Relaxed).saturating_add(1);
        if consecutive < FAILURES || (!self.is_ejected() && !may_eject()) {
            return false;
        }
        let ejections = self.ejections.fetch_add(1, Relaxed).min(16);
        let lasts = FIRST.saturating_mul(1 << ejections).min(LONGEST);
        self.until.store(self.micros(now + lasts).max(1), Relaxed);
        true
    }

    fn micros(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.epoch).as_micros()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn fail(health: &Health, times: usize) -> bool {
        (0..times).map(|_| health.failed(Instant::now(), || true)).last().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn consecutive_failures_eject_and_one_call_probes() {
        let health = Health::default();
        assert!(!fail(&health, 4));
        health.succeeded();
        assert!(!fail(&health, 4), "a success starts the count anew");
        assert!(fail(&health, 1));
        assert_eq!(health.availability(Instant::now()), Availability::Ejected);
        advance(FIRST).await;
        assert_eq!(health.availability(Instant::now()), Availability::Probe);
        assert_eq!(health.availability(Instant::now()), Availability::Ejected, "one call only");
        health.succeeded();
        assert_eq!(health.availability(Instant::now()), Availability::Available);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_probe_ejects_for_longer() {
        let health = Health::default();
        fail(&health, 5);
        advance(FIRST).await;
        assert_eq!(health.availability(Instant::now()), Availability::Probe);
        assert!(fail(&health, 1));
        advance(FIRST).await;
        assert_eq!(health.availability(Instant::now()), Availability::Ejected);
        advance(FIRST).await;
        assert_eq!(health.availability(Instant::now()), Availability::Probe);
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_that_never_ends_is_followed_by_another() {
        let health = Health::default();
        fail(&health, 5);
        advance(FIRST).await;
        assert_eq!(health.availability(Instant::now()), Availability::Probe);
        advance(PROBE_EVERY).await;
        assert_eq!(health.availability(Instant::now()), Availability::Probe);
    }

    #[tokio::test(start_paused = true)]
    async fn no_endpoint_is_ejected_when_too_many_are() {
        let health = Health::default();
        assert!(!(0..20).any(|_| health.failed(Instant::now(), || false)));
        assert_eq!(health.availability(Instant::now()), Availability::Available);
    }
}
