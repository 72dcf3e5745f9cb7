//! The attempts of a call, for whoever wants to see them.

use std::sync::{Arc, Mutex, PoisonError};

use smallvec::SmallVec;
use tokio::time::Instant;

/// The attempts of the calls that have this log in their context. Few calls have one.
#[derive(Debug, Default)]
pub struct AttemptLog(Mutex<SmallVec<[Logged; 1]>>);

/// One attempt, with its outcome in short: few of them are looked at.
#[derive(Debug)]
struct Logged {
    number: u32,
    traced: u32,
    wanted: Instant,
    begun: Instant,
    ended: Option<Instant>,
    endpoint: String,
    outcome: AttemptOutcome,
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
    /// Address of the endpoint.
    pub endpoint: String,
    /// The status, the kind of the error, or `cancelled`: another attempt was faster, or nobody needs its answer.
    pub outcome: String,
}

impl AttemptLog {
    /// The attempts so far, in the order in which they began.
    #[must_use]
    pub fn attempts(&self) -> Vec<LoggedAttempt> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let shown = |one: &Logged| LoggedAttempt {
            number: one.number,
            traced: one.traced,
            wanted: one.wanted,
            begun: one.begun,
            ended: one.ended,
            endpoint: one.endpoint.clone(),
            outcome: one.outcome.describe(),
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
    ) -> Attempted {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (traced, outcome) = (first.wrapping_add(number), AttemptOutcome::Cancelled);
        all.push(Logged { number, traced, wanted, begun, ended: None, endpoint, outcome });
        Attempted { log: self.clone(), at: all.len() - 1 }
    }

    fn end(&self, at: usize, outcome: Option<AttemptOutcome>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(attempt) = all.get_mut(at).filter(|attempt| attempt.ended.is_none()) {
            attempt.ended = Some(Instant::now());
            attempt.outcome = outcome.unwrap_or(attempt.outcome);
        }
    }
}

/// An attempt in progress. Dropped before its end, it was cancelled.
pub(crate) struct Attempted {
    log: Arc<AttemptLog>,
    at: usize,
}

impl Attempted {
    /// It has ended with this status, or this kind of error.
    pub(crate) fn end(self, outcome: AttemptOutcome) {
        self.log.end(self.at, Some(outcome));
    }
}

impl Drop for Attempted {
    fn drop(&mut self) {
        self.log.end(self.at, None);
    }
}
