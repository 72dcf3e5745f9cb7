//! Failures in the log: at most a few a second for each worker, so that a storm of them costs nothing.

use std::cell::Cell;
use std::fmt::Write;
use std::time::Duration;

use fanin_lang::Failure;
use http::StatusCode;
use tokio::time::Instant;

use crate::reply::FlowError;

/// Lines that may be written at once; one more comes with each [`EVERY`].
const BURST: u32 = 20;
const EVERY: Duration = Duration::from_millis(100);

/// A worker's log of failures.
pub(crate) struct FailureLog {
    tokens: Cell<u32>,
    last: Cell<Option<Instant>>,
    suppressed: Cell<u64>,
}

impl FailureLog {
    pub(crate) fn new() -> FailureLog {
        FailureLog { tokens: Cell::new(BURST), last: Cell::new(None), suppressed: Cell::new(0) }
    }

    /// Whether a line may be written now.
    fn admit(&self) -> bool {
        let now = Instant::now();
        let last = self.last.get().unwrap_or(now);
        let earned = now.duration_since(last).as_millis() / EVERY.as_millis();
        if earned > 0 || self.last.get().is_none() {
            self.last.set(Some(now));
        }
        let tokens = self.tokens.get().saturating_add(u32::try_from(earned).unwrap_or(BURST)).min(BURST);
        self.tokens.set(tokens.saturating_sub(1));
        if tokens == 0 {
            self.suppressed.set(self.suppressed.get() + 1);
        }
        tokens > 0
    }

    /// Says what failed, where, and through which functions. What an `abort` or a client's mistake ends is no failure.
    #[cold]
    pub(crate) fn failure(&self, route: &str, failure: &Failure, error: &FlowError) {
        if error.status.is_client_error() || error.kind == "abort" || !self.admit() {
            return;
        }
        let position = failure.position.as_ref().map(ToString::to_string).unwrap_or_default();
        let mut trace = String::new();
        for frame in &failure.trace {
            let _ = write!(trace, "\n  {} in {}", frame.position, frame.function);
        }
        let hint = failure.hint.as_deref().unwrap_or("");
        let suppressed = self.suppressed.take();
        if error.status == StatusCode::INTERNAL_SERVER_ERROR {
            tracing::error!(target: "fanin::flow", route, at = position, hint, suppressed, "{failure}{trace}");
        } else {
            tracing::warn!(target: "fanin::flow", route, at = position, suppressed, "{failure}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_storm_is_cut_off_and_a_trickle_is_not() {
        let log = FailureLog::new();
        assert_eq!((0..1000).filter(|_| log.admit()).count(), BURST as usize);
        assert_eq!(log.suppressed.get(), 1000 - u64::from(BURST));
        for _ in 0..50 {
            tokio::time::advance(EVERY).await;
            assert!(log.admit());
        }
    }
}
