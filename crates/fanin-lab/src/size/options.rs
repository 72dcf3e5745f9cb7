//! Options of a sizing.

use super::format::{Format, Unit};
use super::stamps::Stamps;
use super::{MAX_REQUESTS, SizeError};

/// How to read the logs and what to size for. `Options::default()` is what the command does without options.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// The form of all logs; found for each by itself if not said.
    pub format: Option<Format>,
    /// What stamps mark, in all logs; by the form if not said.
    pub stamps: Option<Stamps>,
    /// Unit of a latency that has none; by the form if not said.
    pub unit: Option<Unit>,
    /// Only requests stamped at or after this: microseconds since 1970 UTC, or since midnight for logs without dates.
    pub from: Option<i64>,
    /// Only requests stamped before this, likewise.
    pub to: Option<i64>,
    /// So many times the requests of the log.
    pub growth: f64,
    /// Requests take so many times as long.
    pub slow: f64,
    /// Servers that share the load evenly.
    pub servers: u32,
    /// A size to try: requests running at once on each server.
    pub size: Option<u32>,
    /// Requests that may wait on each server; the next is refused. Without it all wait.
    pub waiting: Option<u32>,
    /// Share of requests that may wait in the recommended size.
    pub may_wait: f64,
    /// Stack of a thread, bytes of virtual memory.
    pub stack: u64,
    /// Memory of one request in progress as a coroutine, bytes.
    pub flow_memory: u64,
    /// Requests held at most; bounds memory.
    pub max_requests: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            format: None,
            stamps: None,
            unit: None,
            from: None,
            to: None,
            growth: 2.0,
            slow: 2.0,
            servers: 1,
            size: None,
            waiting: None,
            may_wait: 0.001,
            stack: 1 << 20,
            flow_memory: 16 << 10,
            max_requests: MAX_REQUESTS,
        }
    }
}

impl Options {
    /// Refuses what makes no sense, before any file is opened.
    pub(crate) fn check(&self) -> Result<(), SizeError> {
        let refuse = |option, reason: &str| Err(SizeError::Option { option, reason: reason.to_owned() });
        for (option, factor) in [("growth", self.growth), ("slow", self.slow)] {
            // NaN is in no range.
            if !(0.01..=1000.0).contains(&factor) {
                return refuse(option, "a factor from 0.01 to 1000");
            }
        }
        if !(1..=10_000).contains(&self.servers) {
            return refuse("servers", "from 1 to 10000");
        }
        if !self.size.is_none_or(|size| (1..=10_000_000).contains(&size)) {
            return refuse("size", "from 1 to 10000000");
        }
        if !(0.0..1.0).contains(&self.may_wait) {
            return refuse("may-wait", "a share of requests, at least 0 and below 1");
        }
        if self.max_requests == 0 {
            return refuse("max-requests", "at least 1");
        }
        match (self.from, self.to) {
            (Some(from), Some(to)) if from >= to => refuse("to", "must be after --from"),
            _ => Ok(()),
        }
    }

    /// Growth and slowness together: a log with g times the requests and s times their lengths has as many in progress
    /// as the same log with lengths g·s times as long, on a clock that runs g times as slow.
    pub(crate) fn factor(&self) -> f64 {
        self.growth * self.slow
    }
}
