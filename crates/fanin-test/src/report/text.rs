//! The report for people.

use std::fmt::Write;

use crate::run_test::TestOutcome;
use crate::runner::TestRun;

/// Each file with its tests, failures with what led to them, and a sum.
#[must_use]
pub fn text(run: &TestRun, all: bool) -> String {
    let mut text = String::new();
    let mut file = "";
    for outcome in &run.outcomes {
        if outcome.file != file {
            file = &outcome.file;
            let _ = writeln!(text, "{file}");
        }
        one(&mut text, outcome, all);
    }
    for name in &run.unused_snapshots {
        let _ = writeln!(text, "snapshot that no test compares: {name} (--update removes it)");
    }
    for file in &run.written {
        let _ = writeln!(text, "written: {file}");
    }
    if let Some(coverage) = &run.coverage {
        let _ = writeln!(text, "\n{}", coverage.text());
    }
    let (failed, all) = (run.failed(), run.outcomes.len());
    let _ = write!(text, "{} passed, {failed} failed", all - failed);
    if run.filtered_out > 0 {
        let _ = write!(text, ", {} not chosen", run.filtered_out);
    }
    let virtual_time: f64 = run.outcomes.iter().map(|outcome| outcome.virtual_ms).sum();
    let _ = writeln!(text, " in {:.2} s ({:.1} s of virtual time)", run.took.as_secs_f64(), virtual_time / 1e3);
    text
}

fn one(text: &mut String, outcome: &TestOutcome, all: bool) {
    let Some(failure) = &outcome.failure else {
        let calls = outcome.calls;
        let _ = writeln!(
            text,
            "  ok    {}   {calls} {}, {} {}, {:.0} ms",
            outcome.name,
            plural(calls, "call"),
            outcome.rounds,
            plural(outcome.rounds, "round"),
            outcome.virtual_ms
        );
        if all {
            indented(text, &outcome.output);
        }
        return;
    };
    let _ = writeln!(text, "  FAIL  {}", outcome.name);
    indented(text, &failure.explanation);
    if !outcome.output.is_empty() {
        let _ = writeln!(text, "        printed:");
        indented(text, &outcome.output);
    }
}

fn indented(text: &mut String, of: &str) {
    for line in of.lines() {
        let _ = writeln!(text, "        {line}").map(|()| ());
    }
}

fn plural(count: usize, word: &str) -> String {
    if count == 1 { word.to_owned() } else { format!("{word}s") }
}
