//! Detects sequential waits: a `for` statement over calls that could run in parallel.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use fanin_lang::Position;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// Consecutive waits of one loop from which on its line is reported. Loops over a few retries or pages stay below it.
pub(crate) const THRESHOLD: u32 = 8;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Line {
    line: String,
}

/// The lines reported so far, of all routes of a configuration.
#[derive(Default)]
pub(crate) struct SequentialWaits {
    logged: Mutex<HashSet<String>>,
    requests: Family<Line, Counter>,
}

impl SequentialWaits {
    /// Records that a request waited `waits` times one after another at a line. The log names each line once.
    #[cold]
    pub(crate) fn record(&self, route: &str, position: &Position, waits: u32) {
        let line = format!("{}:{}", position.file, position.line);
        // No code that can panic runs under this lock.
        let first = self.logged.lock().unwrap_or_else(PoisonError::into_inner).insert(line.clone());
        if first {
            tracing::warn!(
                target: "fanin::flow", route, at = %line, waits,
                "this for loop awaits its items one after another; write a comprehension to run them in parallel: [f(x) for x in ...]"
            );
        }
        self.requests.get_or_create(&Line { line }).inc();
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "fanin_flow_waits_in_a_row",
            "Requests that waited at one line at least eight times one after another",
            self.requests.clone(),
        );
    }
}
