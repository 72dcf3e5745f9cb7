//! How many second requests an upstream gets: a share of its calls, and a trickle where there are few.
//!
//! A fixed number of retries multiplies the load of an upstream just when it can bear it least: three tries at each of
//! three tiers make 27. A budget bounds the *sum*: whatever fails, at most `share` of the calls is added (the idea is
//! Finagle's). Hedges draw on the same budget.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Savings that are kept for a burst of failures.
const MOST: f64 = 50.0;

/// The second requests that one upstream may still get. Shared by all workers.
#[derive(Debug)]
pub(crate) struct RetryBudget(Mutex<State>);

#[derive(Debug)]
struct State {
    saved: f64,
    /// Of what was saved, lent until calls earn it: so that few calls get a second request at once, and many calls no more
    /// than their share.
    lent: f64,
    /// Earned by calls since `last`.
    earned: f64,
    last: Instant,
}

impl RetryBudget {
    pub fn new() -> RetryBudget {
        RetryBudget(Mutex::new(State { saved: 1.0, lent: 1.0, earned: 0.0, last: Instant::now() }))
    }

    /// So many calls have begun.
    pub fn earn(&self, calls: u32, share: f64) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let earned = f64::from(calls) * share;
        state.earned += earned;
        let paid_back = earned.min(state.lent);
        state.lent -= paid_back;
        // In brackets: what is wholly paid back must leave the rest as it is, to the last bit.
        state.saved = (state.saved + (earned - paid_back)).min(MOST);
    }

    /// Takes one second request out of the budget. `floor` is what there is a second however few calls there are; it is not
    /// added to what calls earn, so that with many calls the share is the bound.
    pub fn take(&self, floor: f64, now: Instant) -> bool {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.saved < 1.0 {
            let elapsed = now.saturating_duration_since(state.last).min(Duration::from_secs(10));
            let missing = elapsed.as_secs_f64() * floor - state.earned;
            if missing > 0.0 {
                state.saved += missing;
                state.lent = (state.lent + missing).min(1.0);
                state.earned = 0.0;
                state.last = now;
            } else if elapsed >= Duration::from_secs(10) {
                state.earned = 0.0;
                state.last = now;
            }
        }
        let enough = state.saved >= 1.0;
        if enough {
            state.saved -= 1.0;
        }
        enough
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn many_failing_calls_get_their_share_and_no_more() {
        let budget = RetryBudget::new();
        let mut second = 0;
        for _ in 0..10_000 {
            budget.earn(1, 0.2);
            second += u32::from(budget.take(2.0, Instant::now()));
            advance(Duration::from_millis(2)).await;
        }
        assert!((1_990..=2_000).contains(&second), "{second}");
    }

    #[tokio::test(start_paused = true)]
    async fn few_calls_live_on_the_floor() {
        let budget = RetryBudget::new();
        let mut second = 0;
        for _ in 0..100 {
            budget.earn(1, 0.2);
            second += u32::from(budget.take(2.0, Instant::now()));
            advance(Duration::from_secs(1)).await;
        }
        assert!(second >= 99, "{second}");
    }

    #[tokio::test(start_paused = true)]
    async fn savings_are_bounded() {
        let budget = RetryBudget::new();
        budget.earn(1_000_000, 0.2);
        let now = Instant::now();
        let taken = (0..1000).filter(|_| budget.take(2.0, now)).count();
        assert_eq!(taken, 50);
    }
}
