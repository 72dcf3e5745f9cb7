//! The record of each call of a request, which `fanin demo` draws.

use std::sync::Arc;
use std::time::Duration;

/// One call of a request. Times count from the request's start.
#[derive(Debug, Clone, PartialEq)]
pub struct CallTrace {
    /// The upstream.
    pub upstream: Arc<str>,
    /// Method and path with query; empty if it was not sent.
    pub target: String,
    /// File and line of the call: `flows/shop.star:12`.
    pub line: String,
    /// When the flow made it.
    pub made: Duration,
    /// When it was sent: later than `made` if its arguments were pending. `None` if it was not sent.
    pub sent: Option<Duration>,
    /// When it ended; `None` if it was cancelled because its answer was not needed.
    pub ended: Option<Duration>,
    /// The status, the kind of the error, `absent`, `not sent` or `cancelled`.
    pub outcome: String,
}
