//! The report for programs.

use serde_json::{Value, json};

use crate::runner::TestRun;

/// One object with a list of tests.
#[must_use]
pub fn json(run: &TestRun) -> Value {
    let tests: Vec<Value> = run
        .outcomes
        .iter()
        .map(|outcome| {
            json!({
                "file": outcome.file,
                "name": outcome.name,
                "line": outcome.line,
                "passed": outcome.failure.is_none(),
                "message": outcome.failure.as_ref().map(|failure| &failure.message),
                "place": outcome.failure.as_ref().map(|failure| &failure.place),
                "explanation": outcome.failure.as_ref().map(|failure| &failure.explanation),
                "took_ms": outcome.took.as_secs_f64() * 1e3,
                "virtual_ms": outcome.virtual_ms,
                "requests": outcome.requests,
                "calls": outcome.calls,
                "rounds": outcome.rounds,
                "assertions": outcome.assertions,
                "output": outcome.output,
            })
        })
        .collect();
    let coverage = run.coverage.as_ref().map(|coverage| {
        let (lines, branches) = coverage.total();
        json!({ "lines": lines.percent(), "branches": branches.percent() })
    });
    json!({
        "passed": run.outcomes.len() - run.failed(),
        "failed": run.failed(),
        "not_chosen": run.filtered_out,
        "took_ms": run.took.as_secs_f64() * 1e3,
        "unused_snapshots": run.unused_snapshots,
        "coverage": coverage,
        "tests": tests,
    })
}
