//! Lines that make one request wait many times in a row: a statement loop over calls that could run side by side.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use fanin_lang::Position;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// Turns of one loop that waited one after the other from which on a line is named. A retry or two and the pages of a list
/// stay below it.
pub(crate) const THRESHOLD: u32 = 8;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Line {
    line: String,
}

/// What was noted of all routes of a configuration.
#[derive(Default)]
pub(crate) struct SequentialWaits {
    logged: Mutex<HashSet<String>>,
    requests: Family<Line, Counter>,
}

impl SequentialWaits {
    /// A request has waited `turns` times in a row at a line. The first time the log says so.
    #[cold]
    pub(crate) fn record(&self, route: &str, position: &Position, waits: u32) {
        let line = format!("{}:{}", position.file, position.line);
        // Neither looking nor inserting can leave the set half changed.
        let first = self.logged.lock().unwrap_or_else(PoisonError::into_inner).insert(line.clone());
        if first {
            tracing::warn!(
                target: "fanin::flow", route, at = %line, waits,
                "a loop waits for one item after the other; items of a comprehension run side by side: [f(x) for x in ...]"
            );
        }
        self.requests.get_or_create(&Line { line }).inc();
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "fanin_flow_waits_in_a_row",
            "Requests that one line made wait many times in a row",
            self.requests.clone(),
        );
    }
}
