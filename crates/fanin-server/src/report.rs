//! What an application reports about a response, for access log and metrics.

use std::time::Duration;

/// What an application reports about a response, for access log and metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// It is a partial response.
    pub partial: bool,
    /// Calls made.
    pub calls: u32,
    /// Time in which at least one call was in flight.
    pub upstream: Duration,
    /// Steps of evaluation.
    pub steps: u64,
    /// Bytes allocated for values.
    pub memory: u64,
    /// The limit that ended it, one of [`LIMITS`].
    pub limit: Option<&'static str>,
}

/// Limits that a [`Report`] can name.
pub const LIMITS: [&str; 7] = ["steps", "memory", "value", "depth", "fibers", "calls", "response"];
