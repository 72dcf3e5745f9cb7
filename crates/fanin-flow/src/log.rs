//! The log of failed flows, limited to ten events a second for each worker or pool, so that many failures cost little.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fanin_lang::{Failure, Program};
use http::StatusCode;
use tokio::time::Instant;

use crate::reply::FlowError;

/// Events that may be logged at once. One more is allowed each [`EVERY`].
const BURST: u32 = 20;
const EVERY: Duration = Duration::from_millis(100);

/// The log of failures of a worker, or of all threads of a pool.
pub(crate) struct FailureLog(Mutex<Bucket>);

struct Bucket {
    tokens: u32,
    last: Option<Instant>,
    suppressed: u64,
}

impl FailureLog {
    pub(crate) fn new() -> FailureLog {
        FailureLog(Mutex::new(Bucket { tokens: BURST, last: None, suppressed: 0 }))
    }

    fn bucket(&self) -> MutexGuard<'_, Bucket> {
        // No code that can panic runs under this lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` if an event must be suppressed now, else how many were suppressed since the last one.
    fn admit(&self) -> Option<u64> {
        let now = Instant::now();
        let mut bucket = self.bucket();
        let last = bucket.last.unwrap_or(now);
        let earned = now.duration_since(last).as_millis() / EVERY.as_millis();
        if earned > 0 || bucket.last.is_none() {
            bucket.last = Some(now);
        }
        let tokens = bucket.tokens.saturating_add(u32::try_from(earned).unwrap_or(BURST)).min(BURST);
        bucket.tokens = tokens.saturating_sub(1);
        if tokens == 0 {
            bucket.suppressed += 1;
            return None;
        }
        Some(std::mem::take(&mut bucket.suppressed))
    }

    /// Logs a failure with its position and stack. Responses of `abort` and client errors are not logged.
    #[cold]
    pub(crate) fn failure(&self, route: &str, program: &Program, failure: &Failure, error: &FlowError) {
        if error.status.is_client_error() || error.kind == "abort" {
            return;
        }
        let Some(suppressed) = self.admit() else { return };
        let position = failure.position.as_ref().map(ToString::to_string).unwrap_or_default();
        // Last, because it has several lines.
        let excerpt = program.explain(failure, false);
        let excerpt = excerpt.trim_matches('\n');
        if error.status == StatusCode::INTERNAL_SERVER_ERROR {
            tracing::error!(target: "fanin::flow", route, at = position, suppressed, excerpt = %excerpt, "{failure}");
        } else {
            tracing::warn!(target: "fanin::flow", route, at = position, suppressed, excerpt = %excerpt, "{failure}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn failures_are_logged_at_a_limited_rate() {
        let log = FailureLog::new();
        assert_eq!((0..1000).filter(|_| log.admit().is_some()).count(), BURST as usize);
        for at in 0..50 {
            tokio::time::advance(EVERY).await;
            assert_eq!(log.admit(), Some(if at == 0 { 1000 - u64::from(BURST) } else { 0 }));
        }
    }
}
