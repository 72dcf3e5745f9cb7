//! What happened to each call of a request, for people: `fanin demo` draws it.

use std::sync::Arc;
use std::time::Duration;

/// One call of a request. Times count from the request's start.
#[derive(Debug, Clone, PartialEq)]
pub struct CallTrace {
    /// The upstream.
    pub upstream: Arc<str>,
    /// Method and path with query; empty if it was never sent.
    pub target: String,
    /// The line that made it: `flows/shop.star:12`.
    pub line: String,
    /// When the flow made it.
    pub made: Duration,
    /// When it was sent; later than `made` if it had to wait for its arguments. `None` if it never was.
    pub sent: Option<Duration>,
    /// When it ended; `None` if it was cancelled because nobody needed it.
    pub ended: Option<Duration>,
    /// Status, or the kind of the error, or `absent`.
    pub outcome: String,
}
