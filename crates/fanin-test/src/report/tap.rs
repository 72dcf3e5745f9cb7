//! The Test Anything Protocol, version 14.

use std::fmt::Write;

use crate::runner::TestRun;

/// A line for each test; failures with their explanation as comments.
#[must_use]
pub fn tap(run: &TestRun) -> String {
    let mut text = format!("TAP version 14\n1..{}\n", run.outcomes.len());
    for (at, outcome) in run.outcomes.iter().enumerate() {
        let ok = if outcome.failure.is_none() { "ok" } else { "not ok" };
        // A `#` would begin a directive.
        let name = format!("{}::{}", outcome.file, outcome.name).replace('\\', "\\\\").replace('#', "\\#");
        let _ = writeln!(text, "{ok} {} - {}", at + 1, name.replace('\n', " "));
        for line in outcome.failure.iter().flat_map(|failure| failure.explanation.lines()) {
            let _ = writeln!(text, "# {line}");
        }
    }
    text
}
