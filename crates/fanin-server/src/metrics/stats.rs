//! What is counted, by route and by worker.

use std::time::Duration;

use fanin_tracecontext::TraceContext;
use http::StatusCode;

use super::single_writer::{Count, Histogram};
use crate::admission::Refusal;
use crate::cache::Outcome;
use crate::client::Bound;
use crate::report::LIMITS;

/// One route on one worker. Written by that worker only.
#[derive(Debug, Default)]
pub(crate) struct RouteStats {
    /// By first digit of the status, 1 to 5.
    pub(super) classes: [Count; 5],
    pub(super) durations: Histogram,
    pub(super) upstream_micros: Count,
    pub(super) calls: Count,
    pub(super) partial: Count,
    /// Flows that a limit ended, by [`LIMITS`].
    pub(super) limits: [Count; LIMITS.len()],
    /// The maximum over requests.
    pub(super) most_steps: Count,
    pub(super) most_memory: Count,
    /// By [`Refusal`].
    pub(super) refused: [Count; Refusal::ALL.len()],
    /// Responses by what the route's cache did, by [`Outcome`].
    pub(super) cache: [Count; Outcome::ALL.len()],
    /// Requests whose client disconnected before the response.
    pub(super) left: Count,
    pub(super) panics: Count,
    /// How soon a good response of the route's objective is there, in microseconds; 0 without an objective.
    pub(super) objective_micros: Count,
    /// Responses that count for the objective.
    pub(super) objective_counted: Count,
    /// Of them, the good ones.
    pub(super) objective_good: Count,
}

impl RouteStats {
    #[inline]
    pub(crate) fn responded(&self, status: StatusCode, duration: Duration, report: &crate::Report) {
        let class = usize::from(status.as_u16() / 100).clamp(1, 5) - 1;
        self.classes[class].add(1);
        self.durations.observe(duration);
        let within = self.objective_micros.get();
        if within != 0 {
            self.objective_counted.add(1);
            if status.as_u16() < 500 && duration.as_micros() <= u128::from(within) {
                self.objective_good.add(1);
            }
        }
        self.reported(report);
    }

    /// What a response's body did after its head was sent, or what the whole response did.
    #[inline]
    pub(crate) fn reported(&self, report: &crate::Report) {
        if report.calls > 0 {
            self.calls.add(u64::from(report.calls));
            self.upstream_micros.add(report.upstream.as_micros() as u64);
        }
        if report.partial {
            self.partial.add(1);
        }
        if report.steps > self.most_steps.get() {
            self.most_steps.set(report.steps);
        }
        if report.memory > self.most_memory.get() {
            self.most_memory.set(report.memory);
        }
        if let Some(at) = report.limit.and_then(|limit| LIMITS.iter().position(|name| *name == limit)) {
            self.limits[at].add(1);
        }
    }

    /// The spans of a request that has been counted with this duration are sent.
    pub(crate) fn exemplify(&self, duration: Duration, trace: &TraceContext) {
        self.durations.exemplify(duration, trace);
    }

    pub(crate) fn refused(&self, refusal: Refusal) {
        self.refused[refusal as usize].add(1);
    }

    #[cfg(test)]
    pub(crate) fn cached_times(&self, outcome: Outcome) -> u64 {
        self.cache[outcome as usize].get()
    }

    pub(crate) fn cached(&self, outcome: Outcome) {
        self.cache[outcome as usize].add(1);
    }

    pub(crate) fn client_disconnected(&self) {
        self.left.add(1);
    }

    pub(crate) fn panicked(&self) {
        self.panics.add(1);
    }
}

/// One worker. Written by that worker only, `stalls` and `stalled_micros` by the watchdog only.
#[derive(Debug, Default)]
pub(crate) struct WorkerStats {
    pub(crate) accepted: Count,
    pub(crate) closed: Count,
    /// Connections above `max_connections`.
    pub(crate) refused: Count,
    pub(crate) accept_errors: Count,
    pub(crate) tls_failures: Count,
    /// By [`Bound`].
    pub(crate) client_limits: [Count; Bound::ALL.len()],
    /// Connections closed because of their PROXY header.
    pub(crate) proxy_protocol_errors: Count,
    /// By [`Closed`].
    pub(crate) timeouts: [Count; Closed::ALL.len()],
    /// Pre-request errors: not HTTP, head too large, head too slow.
    pub(crate) protocol_errors: Count,
    /// Fast rejections.
    pub(crate) shed: Count,
    pub(crate) queueing: Histogram,
    /// Requests in the run queue now.
    pub(crate) queued: Count,
    pub(crate) log_lines_dropped: Count,
    pub(crate) stalls: Count,
    pub(crate) stalled_micros: Count,
}

/// Why the server closed a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closed {
    /// The head did not arrive in time.
    Header,
    /// No request arrived for the idle timeout.
    Idle,
    /// The client did not read what was sent.
    Write,
    /// The client read slower than the minimum rate.
    SlowReader,
    /// The client sent a request's body slower than the minimum rate.
    SlowSender,
    /// The client did not close after the last response.
    Linger,
}

impl Closed {
    pub(crate) const ALL: [Closed; 6] =
        [Closed::Header, Closed::Idle, Closed::Write, Closed::SlowReader, Closed::SlowSender, Closed::Linger];

    pub(super) fn label(self) -> &'static str {
        match self {
            Closed::Header => "header",
            Closed::Idle => "idle",
            Closed::Write => "write",
            Closed::SlowReader => "slow-reader",
            Closed::SlowSender => "slow-sender",
            Closed::Linger => "linger",
        }
    }
}
