//! The log of flows at a limited rate, so that many lines cost little: failures, and what flows write with `log` and `print`.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use fanin_lang::{Failure, Program};
use http::StatusCode;
use prometheus_client::metrics::counter::Counter;
use tokio::time::Instant;
use tracing::Value;

use crate::flow_error::FlowError;

/// Failures that may be logged at once. One more is allowed each [`EVERY`].
const BURST: u32 = 20;
const EVERY: Duration = Duration::from_millis(100);

/// A bound on events: so many at once, and one more in each interval.
struct RateLimit {
    burst: u32,
    every: Duration,
    bucket: Mutex<Bucket>,
}

struct Bucket {
    tokens: u32,
    last: Option<Instant>,
    suppressed: u64,
}

impl RateLimit {
    fn new(burst: u32, every: Duration) -> RateLimit {
        RateLimit { burst, every, bucket: Mutex::new(Bucket { tokens: burst, last: None, suppressed: 0 }) }
    }

    /// `None` if an event must be suppressed now, else how many were suppressed since the last one.
    fn admit(&self) -> Option<u64> {
        let now = Instant::now();
        // No code that can panic runs under this lock.
        let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        let last = bucket.last.unwrap_or(now);
        let earned = now.saturating_duration_since(last).as_nanos() / self.every.as_nanos().max(1);
        if earned > 0 || bucket.last.is_none() {
            bucket.last = Some(now);
        }
        let earned = u32::try_from(earned).unwrap_or(self.burst);
        let tokens = bucket.tokens.saturating_add(earned).min(self.burst);
        bucket.tokens = tokens.saturating_sub(1);
        if tokens == 0 {
            bucket.suppressed += 1;
            return None;
        }
        Some(std::mem::take(&mut bucket.suppressed))
    }
}

/// What a route's flow writes with `log` and `print`, on all workers.
pub(crate) struct FlowLog {
    limit: RateLimit,
    dropped: Counter,
}

impl FlowLog {
    /// At most `rate` lines a second. `dropped` counts the others.
    pub(crate) fn new(rate: u32, dropped: Counter) -> FlowLog {
        FlowLog { limit: RateLimit::new(rate, Duration::from_secs(1) / rate.max(1)), dropped }
    }

    /// Whether a line may be written now. Logs how many could not before.
    pub(crate) fn admits(&self, route: &str) -> bool {
        let Some(suppressed) = self.limit.admit() else {
            self.dropped.inc();
            return false;
        };
        if suppressed > 0 {
            tracing::warn!(target: "fanin::flow", route, suppressed, "lines of a flow were dropped: more than max_log_rate");
        }
        true
    }
}

/// The log of failures of a worker, or of all threads of a pool.
pub(crate) struct FailureLog(RateLimit);

impl FailureLog {
    pub(crate) fn new() -> FailureLog {
        FailureLog(RateLimit::new(BURST, EVERY))
    }

    /// Logs a failure with its position and stack. Responses of `abort` and client errors are not logged.
    #[cold]
    pub(crate) fn failure(
        &self,
        route: &str,
        program: &Program,
        (trace_id, request_id): (Option<impl Value>, Option<&str>),
        failure: &Failure,
        error: &FlowError,
    ) {
        if error.status.is_client_error() || error.kind == "abort" {
            return;
        }
        let Some(suppressed) = self.0.admit() else { return };
        let position = failure.position.as_ref().map(ToString::to_string).unwrap_or_default();
        // Last, because it has several lines.
        let excerpt = program.explain(failure, false);
        let excerpt = excerpt.trim_matches('\n');
        if error.status == StatusCode::INTERNAL_SERVER_ERROR {
            tracing::error!(target: "fanin::flow", route, at = position, trace_id, request_id, suppressed, excerpt = %excerpt, "{failure}");
        } else {
            tracing::warn!(target: "fanin::flow", route, at = position, trace_id, request_id, suppressed, excerpt = %excerpt, "{failure}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn failures_are_logged_at_a_limited_rate() {
        let FailureLog(limit) = FailureLog::new();
        assert_eq!((0..1000).filter(|_| limit.admit().is_some()).count(), BURST as usize);
        for at in 0..50 {
            tokio::time::advance(EVERY).await;
            assert_eq!(limit.admit(), Some(if at == 0 { 1000 - u64::from(BURST) } else { 0 }));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn lines_of_a_flow_above_the_rate_are_counted() {
        let dropped = Counter::default();
        let log = FlowLog::new(3, dropped.clone());
        assert_eq!((0..10).filter(|_| log.admits("GET /a")).count(), 3);
        assert_eq!(dropped.get(), 7);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!((0..10).filter(|_| log.admits("GET /a")).count(), 3);
        assert_eq!(dropped.get(), 14);
        let none = FlowLog::new(0, dropped);
        assert!(!none.admits("GET /a"));
        tokio::time::advance(Duration::from_secs(10)).await;
        assert!(!none.admits("GET /a"));
    }
}
