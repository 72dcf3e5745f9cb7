//! The attempts of a call, for whoever wants to see them.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::Instant;

/// The attempts of the calls that have this log in their context. Few calls have one.
#[derive(Debug, Default)]
pub struct AttemptLog(Mutex<Vec<LoggedAttempt>>);

/// One attempt.
#[derive(Debug, Clone)]
pub struct LoggedAttempt {
    /// Its number among those of its call, from 0.
    pub number: u32,
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
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn begin(self: &Arc<Self>, number: u32, wanted: Instant, begun: Instant, endpoint: String) -> Attempted {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(LoggedAttempt { number, wanted, begun, ended: None, endpoint, outcome: "cancelled".to_owned() });
        Attempted { log: self.clone(), at: all.len() - 1 }
    }

    fn end(&self, at: usize, outcome: Option<String>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(attempt) = all.get_mut(at).filter(|attempt| attempt.ended.is_none()) {
            attempt.ended = Some(Instant::now());
            attempt.outcome = outcome.unwrap_or_else(|| std::mem::take(&mut attempt.outcome));
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
    pub(crate) fn end(self, outcome: String) {
        self.log.end(self.at, Some(outcome));
    }
}

impl Drop for Attempted {
    fn drop(&mut self) {
        self.log.end(self.at, None);
    }
}
