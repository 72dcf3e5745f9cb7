//! Records for tests.

use std::time::Duration;

use crate::call::{CallTrace, Sharing};
use crate::request::RequestTrace;

/// A call with these times in milliseconds.
pub(crate) fn call(upstream: &str, made: u64, sent: u64, ended: u64) -> CallTrace {
    CallTrace {
        upstream: upstream.into(),
        operation: None,
        target: format!("GET /{upstream}"),
        line: "f.star:1".into(),
        made: Duration::from_millis(made),
        sent: Some(Duration::from_millis(sent)),
        ended: Some(Duration::from_millis(ended)),
        outcome: "200".into(),
        required: true,
        sharing: Sharing::Alone,
        shared_with: Vec::new(),
        awaited: Vec::new(),
        read_at: None,
        critical: false,
        effect: None,
        attempts: Vec::new(),
    }
}

/// A request without calls that took so many milliseconds.
pub(crate) fn request(took: u64) -> RequestTrace {
    RequestTrace {
        id: "00000000000000ff".into(),
        route: "GET /".into(),
        method: "GET".into(),
        target: "/".into(),
        started_unix_us: 0,
        duration: Duration::from_millis(took),
        queued: Duration::ZERO,
        status: 200,
        partial: false,
        calls: Vec::new(),
        slices: Vec::new(),
        waits: Vec::new(),
        step: None,
        replayed: None,
        unexplained: None,
    }
}
