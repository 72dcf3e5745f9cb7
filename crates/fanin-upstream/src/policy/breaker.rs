//! Circuit breaker: stops calls to an upstream that keeps failing, so that they fail fast and it can recover.
//!
//! Closed: all calls pass, and failures are counted over a sliding window. Open: no call passes for a while. Half-open:
//! one call at a time passes as a probe; some consecutive successes close the breaker, one failure opens it again for
//! twice as long. It opens at a *share* of failures, not at consecutive failures: an upstream that answers every fifth
//! call would never open the latter.
//!
//! While it is closed, a call reads one word that nobody writes.

use std::sync::atomic::{AtomicU8, Ordering::*};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fanin_config::Breaker as Policy;
use tokio::time::Instant;

use crate::error::{ErrorKind, Failure};

const CLOSED: u8 = 0;
const OPEN: u8 = 1;
const HALF_OPEN: u8 = 2;

/// One upstream's breaker. Shared by all workers.
#[derive(Debug)]
pub(crate) struct Breaker {
    mode: AtomicU8,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Counts of the present half of the window and of the half before.
    halves: [Counts; 2],
    half_began: Instant,
    opened_in_a_row: u32,
    until: Instant,
    successes: u32,
    /// The present probe: number and start. A probe that was given up does not count when it ends late.
    probe: Option<(u64, Instant)>,
    probes: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    good: u32,
    bad: u32,
}

/// How a call passes the breaker.
#[derive(Debug)]
pub(crate) enum Admission<'a> {
    /// As one of many.
    Normal,
    /// As the probe that decides.
    Probe(Probe<'a>),
}

impl Breaker {
    pub fn new() -> Breaker {
        let now = Instant::now();
        Breaker {
            mode: AtomicU8::new(CLOSED),
            state: Mutex::new(State {
                halves: Default::default(),
                half_began: now,
                opened_in_a_row: 0,
                until: now,
                successes: 0,
                probe: None,
                probes: 0,
            }),
        }
    }

    /// 0 closed, 1 open, 2 half-open.
    pub fn mode(&self) -> u8 {
        self.mode.load(Relaxed)
    }

    pub fn is_closed(&self) -> bool {
        self.mode() == CLOSED
    }

    pub fn admit<'a>(&'a self, policy: &'a Policy) -> Result<Admission<'a>, Failure> {
        if self.is_closed() { Ok(Admission::Normal) } else { self.admit_if_due(policy) }
    }

    #[cold]
    fn admit_if_due<'a>(&'a self, policy: &'a Policy) -> Result<Admission<'a>, Failure> {
        let now = Instant::now();
        let mut state = self.lock();
        match self.mode() {
            CLOSED => return Ok(Admission::Normal),
            OPEN if now < state.until => {
                let left = state.until - now;
                return Err(Failure::new(
                    ErrorKind::Breaker,
                    format!("too many calls failed; the next probe is in {} ms", left.as_millis()),
                ));
            }
            OPEN => {
                self.mode.store(HALF_OPEN, Relaxed);
                state.successes = 0;
                state.probe = None;
            }
            _ => {}
        }
        // A probe that takes longer than the longest pause is given up.
        if state.probe.is_some_and(|(_, since)| now < since + policy.longest_pause) {
            return Err(Failure::new(ErrorKind::Breaker, "too many calls failed; a probe is running"));
        }
        state.probes += 1;
        state.probe = Some((state.probes, now));
        Ok(Admission::Probe(Probe { breaker: self, policy, number: state.probes, decided: false }))
    }

    /// So many attempts succeeded.
    pub fn succeeded(&self, count: u32, policy: &Policy) {
        let mut state = self.lock();
        state.roll(policy.window, Instant::now());
        state.halves[0].good += count;
    }

    /// An attempt failed by the upstream's fault.
    pub fn failed(&self, policy: &Policy) {
        let now = Instant::now();
        let mut state = self.lock();
        state.roll(policy.window, now);
        state.halves[0].bad += 1;
        let [new, old] = state.halves;
        let (good, bad) = (u64::from(new.good) + u64::from(old.good), u64::from(new.bad) + u64::from(old.bad));
        let many = good + bad >= u64::from(policy.calls);
        if many && bad as f64 >= policy.share * (good + bad) as f64 && self.is_closed() {
            self.open(&mut state, policy, now);
        }
    }

    fn open(&self, state: &mut State, policy: &Policy, now: Instant) {
        let pause = policy.pause.saturating_mul(1 << state.opened_in_a_row.min(16)).min(policy.longest_pause);
        state.opened_in_a_row += 1;
        state.until = now + pause;
        state.probe = None;
        self.mode.store(OPEN, Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn roll(&mut self, window: Duration, now: Instant) {
        let half = window / 2;
        let elapsed = now.saturating_duration_since(self.half_began);
        if elapsed < half {
            return;
        }
        let old = if elapsed < window { self.halves[0] } else { Counts::default() };
        self.halves = [Counts::default(), old];
        self.half_began = now;
    }
}

/// The call that decides whether an open breaker closes.
#[derive(Debug)]
pub(crate) struct Probe<'a> {
    breaker: &'a Breaker,
    policy: &'a Policy,
    number: u64,
    decided: bool,
}

impl Probe<'_> {
    pub fn end(mut self, good: bool) {
        self.decided = true;
        let mut state = self.breaker.lock();
        if state.probe.is_none_or(|(number, _)| number != self.number) {
            return;
        }
        state.probe = None;
        if !good {
            self.breaker.open(&mut state, self.policy, Instant::now());
            return;
        }
        state.successes += 1;
        if state.successes >= self.policy.probes {
            state.halves = Default::default();
            state.opened_in_a_row = 0;
            self.breaker.mode.store(CLOSED, Relaxed);
        }
    }
}

impl Drop for Probe<'_> {
    fn drop(&mut self) {
        // A cancelled probe shows nothing: the next call is the probe.
        if !self.decided {
            let mut state = self.breaker.lock();
            if state.probe.is_some_and(|(number, _)| number == self.number) {
                state.probe = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn policy() -> Policy {
        Policy::default()
    }

    fn open_breaker(policy: &Policy) -> Breaker {
        let breaker = Breaker::new();
        (0..policy.calls).for_each(|_| breaker.failed(policy));
        assert_eq!(breaker.mode(), OPEN);
        breaker
    }

    fn probe<'a>(breaker: &'a Breaker, policy: &'a Policy) -> Probe<'a> {
        match breaker.admit(policy) {
            Ok(Admission::Probe(probe)) => probe,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn half_of_enough_calls_opens_the_breaker_and_less_does_not() {
        let policy = policy();
        let breaker = Breaker::new();
        breaker.succeeded(11, &policy);
        (0..10).for_each(|_| breaker.failed(&policy));
        assert!(breaker.is_closed(), "10 of 21");
        breaker.failed(&policy);
        assert_eq!(breaker.mode(), OPEN, "11 of 22");
        let error = breaker.admit(&policy).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Breaker);
        assert_eq!(error.detail, "too many calls failed; the next probe is in 1000 ms");
        let few = Breaker::new();
        (0..19).for_each(|_| few.failed(&policy));
        assert!(few.is_closed(), "19 calls are not enough to judge");
    }

    #[tokio::test(start_paused = true)]
    async fn old_failures_are_forgotten() {
        let policy = policy();
        let breaker = Breaker::new();
        (0..19).for_each(|_| breaker.failed(&policy));
        advance(policy.window / 2).await;
        breaker.succeeded(1, &policy);
        advance(policy.window / 2).await;
        breaker.succeeded(1, &policy);
        breaker.failed(&policy);
        assert!(breaker.is_closed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_half_open_breaker_passes_one_probe_at_a_time_and_closes_after_some() {
        let policy = policy();
        let breaker = open_breaker(&policy);
        advance(policy.pause).await;
        for _ in 0..policy.probes {
            let probe = probe(&breaker, &policy);
            assert!(breaker.admit(&policy).is_err(), "one at a time");
            probe.end(true);
        }
        assert!(breaker.is_closed());
        breaker.failed(&policy);
        assert!(breaker.is_closed(), "it begins with a clean slate");
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_probe_doubles_the_pause_up_to_the_longest() {
        let policy = policy();
        let breaker = open_breaker(&policy);
        let mut pause = policy.pause;
        for _ in 0..5 {
            advance(pause - Duration::from_millis(1)).await;
            assert!(breaker.admit(&policy).is_err());
            advance(Duration::from_millis(1)).await;
            probe(&breaker, &policy).end(false);
            pause = (pause * 2).min(policy.longest_pause);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancelled_or_hanging_probe_is_replaced() {
        let policy = policy();
        let breaker = open_breaker(&policy);
        advance(policy.pause).await;
        drop(probe(&breaker, &policy));
        let hanging = probe(&breaker, &policy);
        advance(policy.longest_pause).await;
        let next = probe(&breaker, &policy);
        hanging.end(false);
        assert_eq!(breaker.mode(), HALF_OPEN, "late word of a given-up probe does not count");
        next.end(true);
    }
}
