//! What comes of many requests: latencies, calls, goodput, by route.

use std::collections::BTreeMap;
use std::time::Duration;

use super::compare::{Difference, What};

/// Differences that are kept with their words.
const MAX_SHOWN: usize = 200;

/// One side: as recorded, or as replayed.
#[derive(Debug, Clone, Default)]
pub struct Side {
    /// Microseconds of each request. Sorted once all are there.
    took: Vec<u32>,
    /// Rounds of each request.
    rounds: Vec<u32>,
    /// Calls of flows.
    pub calls: u64,
    /// Of these, calls that shared a request with others, or were answered by a cache.
    pub merged: u64,
    /// Requests to upstreams.
    pub sent: u64,
    /// Responses without a 5xx.
    pub good: u64,
}

impl Side {
    pub(crate) fn add(&mut self, took: Duration, rounds: u32, good: bool) {
        self.took.push(u32::try_from(took.as_micros()).unwrap_or(u32::MAX));
        self.rounds.push(rounds);
        self.good += u64::from(good);
    }

    fn merge(&mut self, other: Side) {
        self.took.extend(other.took);
        self.rounds.extend(other.rounds);
        self.calls += other.calls;
        self.merged += other.merged;
        self.sent += other.sent;
        self.good += other.good;
    }

    fn sort(&mut self) {
        self.took.sort_unstable();
        self.rounds.sort_unstable();
    }

    /// A percentile of the time of requests, from 0 to 100.
    #[must_use]
    pub fn percentile(&self, percent: f64) -> Duration {
        Duration::from_micros(at(&self.took, percent).into())
    }

    /// The usual number of rounds.
    #[must_use]
    pub fn rounds(&self) -> u32 {
        at(&self.rounds, 50.0)
    }

    /// The most rounds.
    #[must_use]
    pub fn most_rounds(&self) -> u32 {
        self.rounds.last().copied().unwrap_or(0)
    }
}

/// A percentile of sorted numbers, by nearest rank.
fn at(sorted: &[u32], percent: f64) -> u32 {
    if sorted.is_empty() {
        return 0;
    }
    let rank = (percent / 100.0 * sorted.len() as f64).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

/// Figures of a route, or of all.
#[derive(Debug, Clone, Default)]
pub struct Figures {
    /// Requests.
    pub requests: u64,
    /// Of these, requests that differ.
    pub differing: u64,
    /// By what differs.
    pub by: BTreeMap<What, u64>,
    /// As recorded.
    pub before: Side,
    /// As replayed.
    pub after: Side,
}

impl Figures {
    pub(crate) fn merge(&mut self, other: Figures) {
        self.requests += other.requests;
        self.differing += other.differing;
        other.by.into_iter().for_each(|(what, number)| *self.by.entry(what).or_default() += number);
        self.before.merge(other.before);
        self.after.merge(other.after);
    }

    /// Whether a usual request needs another number of rounds.
    #[must_use]
    pub fn rounds_differ(&self) -> bool {
        self.before.rounds() != self.after.rounds()
    }

    pub(crate) fn sort(&mut self) {
        self.before.sort();
        self.after.sort();
    }
}

/// What one thread found.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) routes: BTreeMap<String, Figures>,
    pub(crate) differences: Vec<Difference>,
    /// Requests that cannot be replayed, by reason.
    pub(crate) skipped: BTreeMap<String, u64>,
    /// Calls that the recording does not have, and how often.
    pub(crate) missing: BTreeMap<String, u64>,
}

impl Tally {
    pub(crate) fn differs(&mut self, difference: Difference) {
        if self.differences.len() < MAX_SHOWN {
            self.differences.push(difference);
        }
    }

    pub(crate) fn misses(&mut self, call: &str) {
        if self.missing.len() < MAX_SHOWN || self.missing.contains_key(call) {
            *self.missing.entry(call.to_owned()).or_default() += 1;
        }
    }

    pub(crate) fn merge(&mut self, other: Tally) {
        for (route, figures) in other.routes {
            self.routes.entry(route).or_default().merge(figures);
        }
        other.differences.into_iter().for_each(|one| self.differs(one));
        other.skipped.into_iter().for_each(|(why, number)| *self.skipped.entry(why).or_default() += number);
        for (call, number) in other.missing {
            if self.missing.len() < MAX_SHOWN || self.missing.contains_key(&call) {
                *self.missing.entry(call).or_default() += number;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let mut side = Side::default();
        for micros in (1..=100).rev() {
            side.add(Duration::from_micros(micros), 1, true);
        }
        side.sort();
        let micros = |percent| side.percentile(percent).as_micros();
        assert_eq!((micros(50.0), micros(95.0), micros(99.0), micros(100.0)), (50, 95, 99, 100));
        assert_eq!(Side::default().percentile(95.0), Duration::ZERO);
    }
}
