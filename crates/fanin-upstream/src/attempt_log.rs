//! The attempts of a call, for whoever wants to see them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::Instant;

use crate::exchange::{Exchange, ExchangeEnd};

/// The attempts of the calls that have this log in their context. Few calls have one.
#[derive(Debug, Default)]
pub struct AttemptLog {
    attempts: Mutex<SmallVec<[Logged; 1]>>,
    kernel_times: bool,
    keeps_exchanges: bool,
}

/// One attempt, with its outcome in short: few of them are looked at.
#[derive(Debug)]
struct Logged {
    number: u32,
    traced: u32,
    wanted: Instant,
    begun: Instant,
    ended: Option<Instant>,
    unread: Option<Duration>,
    endpoint: String,
    outcome: AttemptOutcome,
    exchange: Option<Box<Exchange>>,
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy)]
pub(crate) enum AttemptOutcome {
    Cancelled,
    Status(u16),
    Failed(&'static str),
}

impl AttemptOutcome {
    fn describe(self) -> String {
        match self {
            AttemptOutcome::Cancelled => "cancelled".to_owned(),
            AttemptOutcome::Status(status) => status.to_string(),
            AttemptOutcome::Failed(kind) => kind.to_owned(),
        }
    }
}

/// One attempt.
#[derive(Debug, Clone)]
pub struct LoggedAttempt {
    /// Its number among those of its call, from 0.
    pub number: u32,
    /// Its number in the request's trace, which its span's id follows from.
    pub traced: u32,
    /// When its call wanted it: before it waited for permits and an endpoint.
    pub wanted: Instant,
    /// When it had its permits and an endpoint.
    pub begun: Instant,
    /// When it ended. `None` while it runs.
    pub ended: Option<Instant>,
    /// How long its answer was in the kernel before the worker read it, if that is known.
    pub unread: Option<Duration>,
    /// Address of the endpoint.
    pub endpoint: String,
    /// The status, the kind of the error, or `cancelled`: another attempt was faster, or nobody needs its answer.
    pub outcome: String,
    /// What it sent and got, if the log keeps that.
    pub exchange: Option<Exchange>,
}

impl AttemptLog {
    /// A log that also says how long answers over HTTP/1.1 were in the kernel: system calls of their own for each attempt.
    #[must_use]
    pub fn with_kernel_times() -> AttemptLog {
        AttemptLog { kernel_times: true, ..AttemptLog::default() }
    }

    /// A log that also keeps what each attempt sends, and what it is answered.
    #[must_use]
    pub fn keeping_exchanges() -> AttemptLog {
        AttemptLog { keeps_exchanges: true, ..AttemptLog::default() }
    }

    pub(crate) fn keeps_exchanges(&self) -> bool {
        self.keeps_exchanges
    }

    /// The attempts so far, in the order in which they began.
    #[must_use]
    pub fn attempts(&self) -> Vec<LoggedAttempt> {
        let all = self.locked();
        let shown = |one: &Logged| LoggedAttempt {
            number: one.number,
            traced: one.traced,
            wanted: one.wanted,
            begun: one.begun,
            ended: one.ended,
            unread: one.unread,
            endpoint: one.endpoint.clone(),
            outcome: one.outcome.describe(),
            exchange: one.exchange.as_deref().cloned(),
        };
        all.iter().map(shown).collect()
    }

    /// `first`: the number in the trace of the first attempt.
    pub(crate) fn begin(
        self: &Arc<Self>,
        first: u32,
        number: u32,
        wanted: Instant,
        begun: Instant,
        endpoint: String,
        exchange: Option<Box<Exchange>>,
    ) -> Attempted {
        let mut all = self.locked();
        let (traced, outcome) = (first.wrapping_add(number), AttemptOutcome::Cancelled);
        all.push(Logged { number, traced, wanted, begun, ended: None, unread: None, endpoint, outcome, exchange });
        Attempted { log: self.clone(), at: all.len() - 1 }
    }

    fn locked(&self) -> MutexGuard<'_, SmallVec<[Logged; 1]>> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, at: usize, outcome: Option<AttemptOutcome>, end: Option<ExchangeEnd>) {
        let mut all = self.locked();
        if let Some(attempt) = all.get_mut(at).filter(|attempt| attempt.ended.is_none()) {
            attempt.ended = Some(Instant::now());
            attempt.outcome = outcome.unwrap_or(attempt.outcome);
            if let (Some(exchange), Some(end)) = (&mut attempt.exchange, end) {
                exchange.end = end;
            }
        }
    }
}

/// An attempt in progress. Dropped before its end, it was cancelled.
#[derive(Debug)]
pub(crate) struct Attempted {
    log: Arc<AttemptLog>,
    at: usize,
}

impl Attempted {
    /// Whether somebody wants to know how long the answer was in the kernel.
    pub(crate) fn wants_kernel_time(&self) -> bool {
        self.log.kernel_times
    }

    /// The answer was in the kernel for so long before it was read.
    pub(crate) fn was_unread(&self, time: Duration) {
        if let Some(attempt) = self.log.locked().get_mut(self.at) {
            attempt.unread = Some(time);
        }
    }

    /// It has ended with this status, or this kind of error.
    pub(crate) fn end(self, outcome: AttemptOutcome, end: impl FnOnce() -> ExchangeEnd) {
        let end = self.log.keeps_exchanges.then(end);
        self.log.end(self.at, Some(outcome), end);
    }
}

impl Drop for Attempted {
    fn drop(&mut self) {
        self.log.end(self.at, None, None);
    }
}
