//! What the policies learn from an attempt.

use std::sync::Arc;

use fanin_config::Hedge;
use http::StatusCode;
use tokio::time::Instant;

use crate::call_options::CallOptions;
use crate::endpoint::Endpoint;
use crate::error::{ErrorKind, Failure, Fault};
use crate::transport::attempt::Received;
use crate::worker::WorkerUpstream;

/// Whether an attempt counts as a failure of the upstream. `None` if it shows nothing about the upstream.
pub(super) fn is_upstream_failure(result: &Result<Received, Failure>) -> Option<bool> {
    match result {
        // An upstream that does not implement a method is healthy.
        Ok(received) => Some(received.status.is_server_error() && received.status != StatusCode::NOT_IMPLEMENTED),
        Err(failure) => match failure.kind {
            ErrorKind::Refused | ErrorKind::Connect | ErrorKind::Timeout | ErrorKind::Protocol => {
                (failure.fault == Fault::Upstream).then_some(true)
            }
            // The upstream answered, though too much.
            ErrorKind::TooLarge => Some(false),
            ErrorKind::Limit | ErrorKind::Breaker | ErrorKind::Status | ErrorKind::Decode | ErrorKind::Cancelled => {
                None
            }
        },
    }
}

/// Reports one attempt to breaker, limit, load balancing, hedging and outlier detection. An attempt dropped at the
/// call's deadline counts as a timeout. One dropped earlier (a hedge was faster, or nobody needs it) shows nothing
/// about the upstream, but counts against the endpoint if it was overdue.
pub(super) struct AttemptRecord<'a> {
    local: &'a WorkerUpstream,
    options: &'a CallOptions,
    endpoint: &'a Arc<Endpoint>,
    pub begun: Instant,
    deadline: Instant,
    ended: bool,
}

impl<'a> AttemptRecord<'a> {
    pub fn begin(
        local: &'a WorkerUpstream,
        options: &'a CallOptions,
        deadline: Instant,
        endpoint: &'a Arc<Endpoint>,
        begun: Instant,
    ) -> AttemptRecord<'a> {
        AttemptRecord { local, options, endpoint, begun, deadline, ended: false }
    }

    pub fn end(mut self, result: &Result<Received, Failure>) {
        self.ended = true;
        match is_upstream_failure(result) {
            Some(false) => self.succeeded(result.as_ref().map_or_else(|_| Instant::now(), |received| received.at)),
            Some(true) => self.failed(matches!(result, Err(failure) if failure.kind == ErrorKind::Timeout)),
            None => {}
        }
    }

    fn succeeded(&self, now: Instant) {
        let upstream = &*self.local.upstream;
        let policies = &upstream.policies;
        let latency = now.saturating_duration_since(self.begun);
        self.local.attempt_succeeded(latency);
        let many = self.local.endpoints() > 1;
        if many && policies.ejection {
            self.endpoint.health.succeeded();
        }
        if many {
            self.endpoint.load.observe(latency, now);
        }
        if let Some(Hedge::Percentile(percentile)) = self.options.hedge {
            self.options.latencies.as_ref().unwrap_or(&upstream.policy_state.latencies).observe(latency, percentile);
        }
        if let (Some(bounds), Some(gradient)) = (&policies.adaptive, &upstream.policy_state.gradient)
            && let Some(limit) = gradient.answered(latency, upstream.limit.load().0, now, bounds)
        {
            upstream.limit.resize(limit, upstream.config().max_waiting);
        }
    }

    #[cold]
    fn failed(&self, timed_out: bool) {
        let upstream = &*self.local.upstream;
        let policies = &upstream.policies;
        let now = Instant::now();
        self.endpoint_failed(now);
        if timed_out
            && let (Some(bounds), Some(gradient)) = (&policies.adaptive, &upstream.policy_state.gradient)
            && let Some(limit) = gradient.timed_out(now, bounds)
        {
            upstream.limit.resize(limit, upstream.config().max_waiting);
        }
        self.local.attempt_failed();
    }

    fn endpoint_failed(&self, now: Instant) {
        if self.local.endpoints() < 2 {
            return;
        }
        let upstream = &*self.local.upstream;
        self.endpoint.load.observe(now - self.begun, now);
        if upstream.policies.ejection && self.endpoint.health.failed(now, || self.local.may_eject()) {
            tracing::warn!(upstream = %upstream.name(), endpoint = %self.endpoint.address, "endpoint ejected: it keeps failing");
        }
    }
}

impl Drop for AttemptRecord<'_> {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let now = Instant::now();
        // A call that starts with hardly any time left must not count against an upstream that had no chance to answer.
        if !self.local.is_overdue(now - self.begun) {
            return;
        }
        if now >= self.deadline {
            self.failed(true);
        } else {
            self.endpoint_failed(now);
        }
    }
}
