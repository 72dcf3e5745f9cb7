//! Reports of an exploration.

use std::fmt::Write;

use serde_json::{Value, json as object};

use super::exploration::{Exploration, ExploreRun, Finding};
use super::written;

/// For people.
#[must_use]
pub fn text(run: &ExploreRun) -> String {
    let mut text = String::new();
    for one in &run.explorations {
        let _ = writeln!(text, "{}::{}   {}", one.file, one.name, one.routes.join(", "));
        let _ = writeln!(text, "  {}", extent(one));
        for (at, finding) in one.findings.iter().enumerate() {
            found(&mut text, one, at + 1, finding);
        }
    }
    let cases: usize = run.explorations.iter().map(|one| one.cases).sum();
    let (count, took) = (run.found(), run.took.as_secs_f64());
    let _ = writeln!(text, "{} in {cases} cases in {took:.2} s", plural(count, "finding"));
    text
}

/// How many cases there were, and whether these were all.
fn extent(one: &Exploration) -> String {
    let mut text = format!("{}, {}", plural(one.requests, "request"), plural(one.cases, "case"));
    let _ = match (one.is_complete, one.findings.iter().any(|finding| finding.deviations.is_empty())) {
        (true, _) => write!(text, ": all, up to {} at once", plural(one.together, "deviation")),
        (false, true) => write!(text, ": it fails without any deviation, so there are no others"),
        (false, false) => write!(text, ": not all; {} of them drawn at random", one.random),
    };
    text
}

fn found(text: &mut String, one: &Exploration, number: usize, finding: &Finding) {
    let _ = writeln!(text, "\n  FOUND {number}  {}: {}", finding.invariant, finding.what);
    if !finding.place.is_empty() {
        let _ = writeln!(text, "    at {}", finding.place);
    }
    match finding.deviations.is_empty() {
        true => _ = writeln!(text, "    without any deviation"),
        false => finding.deviations.iter().for_each(|one| _ = writeln!(text, "    when {one}")),
    }
    for other in &finding.others {
        let _ = writeln!(text, "    also when {other}");
    }
    let _ = writeln!(text);
    finding.evidence.lines().for_each(|line| _ = writeln!(text, "    {line}"));
    let _ = writeln!(text);
    let name = format!("test_{}_{number}", one.name.replacen("explore_", "explored_", 1));
    written::function(finding, &name).lines().for_each(|line| _ = writeln!(text, "    {line}"));
    let _ = writeln!(text);
}

fn plural(count: usize, word: &str) -> String {
    if count == 1 { format!("{count} {word}") } else { format!("{count} {word}s") }
}

/// For programs.
#[must_use]
pub fn json(run: &ExploreRun) -> Value {
    let finding = |finding: &Finding| {
        object!({
            "invariant": finding.invariant,
            "what": finding.what,
            "place": finding.place,
            "deviations": finding.deviations,
            "others": finding.others,
            "cases": finding.cases,
            "evidence": finding.evidence,
            "test": finding.test,
        })
    };
    let one = |one: &Exploration| {
        object!({
            "file": one.file,
            "name": one.name,
            "routes": one.routes,
            "requests": one.requests,
            "cases": one.cases,
            "random": one.random,
            "together": one.together,
            "complete": one.is_complete,
            "took_ms": one.took.as_secs_f64() * 1e3,
            "findings": one.findings.iter().map(finding).collect::<Vec<_>>(),
        })
    };
    object!({
        "findings": run.found(),
        "took_ms": run.took.as_secs_f64() * 1e3,
        "explorations": run.explorations.iter().map(one).collect::<Vec<_>>(),
    })
}
