//! Counters that a worker writes with each call.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use fanin_tracecontext::{Exemplars, TraceContext};
use http::StatusCode;

use crate::error::ErrorKind;

/// Upper bounds of the latency histogram, in microseconds.
pub(super) const BOUNDS: [u64; 15] = [
    500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000, 2_000_000, 5_000_000,
    10_000_000, 30_000_000,
];

/// Classes of statuses. In [`Outcome`] the kinds of errors follow them.
pub(super) const CLASSES: [&str; 4] = ["2xx", "3xx", "4xx", "5xx"];
pub(super) const OUTCOMES: usize = CLASSES.len() + ErrorKind::ALL.len();

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outcome(usize);

impl Outcome {
    pub fn answer(status: StatusCode) -> Outcome {
        Outcome(usize::from(status.as_u16() / 100).clamp(2, 5) - 2)
    }

    pub fn error(kind: ErrorKind) -> Outcome {
        Outcome(CLASSES.len() + kind as usize)
    }
}

pub(super) fn outcome_name(outcome: usize) -> &'static str {
    match outcome.checked_sub(CLASSES.len()) {
        None => CLASSES[outcome],
        Some(kind) => ErrorKind::ALL[kind].as_str(),
    }
}

/// One worker's counters of one upstream. Only that worker writes them, so that an increment needs no locked instruction.
#[derive(Debug, Default)]
pub(crate) struct Shard {
    pub(super) outcomes: [AtomicU64; OUTCOMES],
    pub(super) buckets: [AtomicU64; BOUNDS.len() + 1],
    pub(super) sum_us: AtomicU64,
    /// Of calls whose trace is sampled.
    pub(super) exemplars: Exemplars,
    pub(super) extra: [AtomicU64; Extra::ALL.len()],
    pub(super) streams: [AtomicU64; StreamEnd::ALL.len()],
    pub(super) stream_bytes: AtomicU64,
}

/// How a streamed body ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamEnd {
    /// All of it was passed on.
    Complete,
    /// Its reader left.
    Cancelled,
    /// The upstream was silent for too long, or the body took too long.
    Timeout,
    /// It was larger than allowed.
    TooLarge,
    /// The upstream broke it off.
    Broken,
    /// A gRPC server ended it with an error.
    Status,
}

impl StreamEnd {
    pub(super) const ALL: [(StreamEnd, &'static str); 6] = [
        (StreamEnd::Complete, "complete"),
        (StreamEnd::Cancelled, "cancelled"),
        (StreamEnd::Timeout, "timeout"),
        (StreamEnd::TooLarge, "too_large"),
        (StreamEnd::Broken, "protocol"),
        (StreamEnd::Status, "status"),
    ];

    pub fn of(kind: ErrorKind) -> StreamEnd {
        match kind {
            ErrorKind::Timeout => StreamEnd::Timeout,
            ErrorKind::TooLarge => StreamEnd::TooLarge,
            ErrorKind::Status => StreamEnd::Status,
            ErrorKind::Cancelled => StreamEnd::Cancelled,
            _ => StreamEnd::Broken,
        }
    }
}

/// Events that are counted beside the outcomes of calls.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Extra {
    /// Requests sent: first attempts, retries, hedges and resends.
    Sent,
    /// Requests sent again because the server had closed a kept connection.
    Resent,
    /// Further attempts of the retry policy.
    Retried,
    /// Retries that the budget did not allow.
    RetryDenied,
    /// Second attempts sent because the first was slow.
    Hedged,
    /// Hedges that answered first.
    HedgeWon,
}

impl Extra {
    pub(super) const ALL: [(Extra, &'static str, &'static str); 6] = [
        (Extra::Sent, "fanin_upstream_sent", "Requests sent to the upstream, retries and hedges included"),
        (Extra::Resent, "fanin_upstream_resent", "Requests sent again because the server had closed a kept connection"),
        (Extra::Retried, "fanin_upstream_retries", "Retries sent"),
        (Extra::RetryDenied, "fanin_upstream_retries_denied", "Retries that the retry budget did not allow"),
        (Extra::Hedged, "fanin_upstream_hedges", "Hedges sent"),
        (Extra::HedgeWon, "fanin_upstream_hedges_won", "Hedges that answered before the first request"),
    ];
}

/// A plain load and store: each counter has one writer.
fn increase(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(by), Relaxed);
}

impl Shard {
    pub fn record(&self, outcome: Outcome, elapsed: Duration) {
        let us = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        increase(&self.outcomes[outcome.0], 1);
        increase(&self.buckets[BOUNDS.partition_point(|bound| *bound < us)], 1);
        increase(&self.sum_us, us);
    }

    /// Names the trace of a call that has been recorded with this duration.
    pub fn exemplify(&self, elapsed: Duration, trace: &TraceContext) {
        let us = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        self.exemplars.set(BOUNDS.partition_point(|bound| *bound < us), trace, elapsed);
    }

    pub fn count_stream(&self, end: StreamEnd) {
        increase(&self.streams[end as usize], 1);
    }

    pub fn add_stream_bytes(&self, bytes: usize) {
        increase(&self.stream_bytes, bytes as u64);
    }

    pub fn count(&self, what: Extra) {
        increase(&self.extra[what as usize], 1);
    }
}
