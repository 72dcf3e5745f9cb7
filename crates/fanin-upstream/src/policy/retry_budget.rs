//! Retry budget: how many retries and hedges an upstream gets. A share of its calls, and a minimum rate where there are
//! few calls.
//!
//! A fixed number of retries multiplies the load when an upstream can bear it least: three attempts at each of three
//! tiers make 27. A budget bounds the *sum*: whatever fails, at most `share` of the calls is added. The idea is
//! Finagle's.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Most tokens that are saved for a burst of failures.
const MAX_TOKENS: f64 = 50.0;

/// The tokens of one upstream, each for one further request. Shared by all workers.
#[derive(Debug)]
pub(crate) struct RetryBudget(Mutex<State>);

#[derive(Debug)]
struct State {
    tokens: f64,
    /// Tokens that were given in advance and that calls have to earn. So few calls get a retry at once, and many calls
    /// no more than their share.
    advanced: f64,
    /// Tokens earned by calls since `last`.
    earned: f64,
    last: Instant,
}

impl RetryBudget {
    pub fn new() -> RetryBudget {
        RetryBudget(Mutex::new(State { tokens: 1.0, advanced: 1.0, earned: 0.0, last: Instant::now() }))
    }

    /// So many calls have started.
    pub fn earn(&self, calls: u32, share: f64) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let earned = f64::from(calls) * share;
        state.earned += earned;
        let repaid = earned.min(state.advanced);
        state.advanced -= repaid;
        // The brackets keep `tokens` exactly as it is if all that was earned repays tokens given in advance.
        state.tokens = (state.tokens + (earned - repaid)).min(MAX_TOKENS);
    }

    /// Takes a token for one further request. `floor` is the number of tokens a second that there are however few calls
    /// there are. It is not added to what calls earn, so that with many calls the share is the bound.
    pub fn take(&self, floor: f64, now: Instant) -> bool {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.tokens < 1.0 {
            let elapsed = now.saturating_duration_since(state.last).min(Duration::from_secs(10));
            let missing = elapsed.as_secs_f64() * floor - state.earned;
            if missing > 0.0 {
                state.tokens += missing;
                state.advanced = (state.advanced + missing).min(1.0);
                state.earned = 0.0;
                state.last = now;
            } else if elapsed >= Duration::from_secs(10) {
                state.earned = 0.0;
                state.last = now;
            }
        }
        let enough = state.tokens >= 1.0;
        if enough {
            state.tokens -= 1.0;
        }
        enough
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn many_failing_calls_get_their_share_of_retries_and_no_more() {
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
    async fn few_calls_get_the_minimum_rate() {
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
