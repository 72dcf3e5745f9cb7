//! Endpoints that fail while others of the same upstream do not are left out for a while.
//!
//! After some failures in a row an endpoint is ejected; when its time is over, one call a time tries it, and the first
//! success brings it back. Each further ejection lasts longer. No more than half of the endpoints are out at once: when
//! most fail, the endpoints are not the problem, and the breaker is the one to act.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::Instant;

/// Failures in a row that eject an endpoint.
const FAILURES: u32 = 5;
/// How long the first ejection lasts, and the longest.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);
/// One call at a time tries an endpoint whose ejection is over; the next one after this time at the latest.
const PROBE_EVERY: Duration = Duration::from_secs(1);

/// How an endpoint has done lately.
#[derive(Debug)]
pub(crate) struct Health {
    consecutive: AtomicU32,
    ejections: AtomicU32,
    /// Microseconds from `epoch` until which the endpoint is out; 0 while it is in.
    until: AtomicU64,
    epoch: Instant,
}

/// Whether an endpoint may be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Availability {
    /// Yes.
    Available,
    /// This call is to try it.
    Probe,
    /// No.
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

    /// Asked for an endpoint that would be chosen. A `Probe` is for one caller only.
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
        // Reading is cheap, writing takes the cache line from the other workers.
        if self.consecutive.load(Relaxed) != 0 {
            self.consecutive.store(0, Relaxed);
            self.ejections.store(0, Relaxed);
            self.until.store(0, Relaxed);
        }
    }

    /// Returns whether the endpoint is out from now on. `may_eject` says whether enough others are in.
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
    async fn failures_in_a_row_eject_and_one_call_tries() {
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
    async fn nobody_is_ejected_when_too_many_are_out() {
        let health = Health::default();
        assert!(!(0..20).any(|_| health.failed(Instant::now(), || false)));
        assert_eq!(health.availability(Instant::now()), Availability::Available);
    }
}
