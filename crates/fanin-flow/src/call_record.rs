//! What is kept of a call while its flow runs.

use std::time::Duration;

use fanin_lang::CallSite;
use fanin_trace::Sharing;

/// How much is recorded of a flow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detail {
    /// Nothing.
    #[default]
    Nothing,
    /// The times and outcomes of its calls. Costs a fraction of a microsecond for each.
    Calls,
    /// Also their paths and queries.
    Paths,
    /// Also the requests of its calls, by which the same call is found in another run.
    Requests,
    /// As `Full` if that takes little memory, otherwise as `Paths`.
    Sample,
    /// Also waits, attempts, and the answers, so that the flow can be run again with other times.
    Full,
    /// Also what each attempt sent and was answered, for a recording.
    Recording,
}

/// No time, or no index.
pub(crate) const NONE: u32 = u32::MAX;

/// One call. Times are microseconds since the request's start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallRecord {
    pub(crate) site: CallSite,
    pub(crate) operation: u32,
    pub(crate) made: u32,
    pub(crate) sent: u32,
    pub(crate) ended: u32,
    /// The call that had ended last when this one was made or sent.
    pub(crate) awaited: u32,
    pub(crate) required: bool,
    pub(crate) sharing: Sharing,
    pub(crate) outcome: Outcome,
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Its answer was not needed.
    Cancelled,
    Status(u16),
    /// The kind of its error.
    Failed(&'static str),
    /// It needs an answer that is absent.
    Absent,
    NotSent,
}

impl CallRecord {
    pub(crate) fn new(
        site: CallSite,
        operation: Option<u32>,
        made: u32,
        awaited: Option<u32>,
        required: bool,
    ) -> CallRecord {
        CallRecord {
            site,
            operation: operation.unwrap_or(NONE),
            made,
            sent: NONE,
            ended: NONE,
            awaited: awaited.unwrap_or(NONE),
            required,
            sharing: Sharing::Alone,
            outcome: Outcome::Cancelled,
        }
    }

    /// Microseconds from its sending to its end, if it has ended.
    pub(crate) fn latency(&self) -> Option<Duration> {
        (self.sent != NONE && self.ended != NONE)
            .then(|| Duration::from_micros(u64::from(self.ended.saturating_sub(self.sent))))
    }
}

impl Outcome {
    pub(crate) fn describe(self) -> String {
        match self {
            Outcome::Cancelled => "cancelled".to_owned(),
            Outcome::Status(status) => status.to_string(),
            Outcome::Failed(kind) => kind.to_owned(),
            Outcome::Absent => "absent".to_owned(),
            Outcome::NotSent => "not sent".to_owned(),
        }
    }
}
