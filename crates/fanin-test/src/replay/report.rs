//! The results of a replay for people, and for programs.

use std::fmt::Write;
use std::time::Duration;

use serde_json::{Value, json};

use super::compare::What;
use super::figures::{Figures, Side};
use super::run::ReplayRun;

/// Differences that people see.
const SHOWN: usize = 10;
/// Calls that the recording does not have that people see.
const SHOWN_CALLS: usize = 20;

fn millis(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64() * 1e3)
}

/// For people.
#[must_use]
pub fn text(run: &ReplayRun) -> String {
    let mut out = String::new();
    let total = &run.total;
    for one in run.differences.iter().take(SHOWN) {
        let what: Vec<&str> = one.what.iter().map(|what| what.name()).collect();
        let _ = writeln!(out, "request {}: {}: {} differ", one.request, one.shown, what.join(", "));
        for line in &one.lines {
            let _ = writeln!(out, "    {line}");
        }
    }
    if total.differing > SHOWN as u64 {
        let _ = writeln!(out, "… and {} further requests", total.differing - SHOWN.min(run.differences.len()) as u64);
    }
    if !run.missing.is_empty() {
        let _ = writeln!(out, "\nNot in the recording:");
        for (call, number) in run.missing.iter().take(SHOWN_CALLS) {
            let _ = writeln!(out, "  {number:>6} times  {call}");
        }
    }
    if !out.is_empty() {
        out.push('\n');
    }
    let _ = writeln!(out, "{:<44} {:>12} {:>12}", "", "recorded", "replayed");
    for (route, figures) in &run.routes {
        table(&mut out, route, figures, run.recorded);
    }
    if run.routes.len() > 1 {
        table(&mut out, "all routes", total, run.recorded);
    }
    for (why, number) in &run.skipped {
        let _ = writeln!(out, "\n{number} requests cannot be replayed: {why}");
    }
    if run.dropped > 0 || !run.left_out.is_empty() {
        let _ = writeln!(out, "\nThe recording has no room for {} requests, and leaves out:", run.dropped);
        for one in &run.left_out {
            let _ = writeln!(out, "  {one}");
        }
    }
    if !run.advice.is_empty() {
        let _ = writeln!(out, "\nFrom the recording:");
        for one in &run.advice {
            let value = one.value.as_ref().map(|value| format!(" = {value}")).unwrap_or_default();
            let _ = writeln!(out, "  {}{value}\n    {}", one.key, one.why);
        }
    }
    let what_if = match run.what_if.is_empty() {
        true => String::new(),
        false => format!(" with {}", run.what_if.join(", ")),
    };
    let by: Vec<String> = total.by.iter().map(|(what, number)| format!("{} {number}", what.name())).collect();
    let by = if by.is_empty() { String::new() } else { format!(" ({})", by.join(", ")) };
    let _ = writeln!(
        out,
        "\n{} requests replayed{what_if}, {} differ{by}; {:.2} s on {} threads",
        total.requests,
        total.differing,
        run.took.as_secs_f64(),
        run.threads
    );
    out
}

fn table(out: &mut String, route: &str, figures: &Figures, recorded: Duration) {
    let (before, after) = (&figures.before, &figures.after);
    let _ = writeln!(out, "{route}: {} requests, {} differ", figures.requests, figures.differing);
    let mut row = |name: &str, value: &dyn Fn(&Side) -> String| {
        let (old, new) = (value(before), value(after));
        let _ = writeln!(out, "  {name:<42} {old:>12} {new:>12}");
    };
    row("p50, ms", &|side| millis(side.percentile(50.0)));
    row("p95, ms", &|side| millis(side.percentile(95.0)));
    row("p99, ms", &|side| millis(side.percentile(99.0)));
    row("goodput, per second", &|side| format!("{:.1}", goodput(side, recorded)));
    row("rounds, usual and most", &|side| format!("{}, {}", side.rounds(), side.most_rounds()));
    row("calls", &|side| side.calls.to_string());
    row("of these merged or cached", &|side| side.merged.to_string());
    row("requests to upstreams", &|side| side.sent.to_string());
}

/// Good responses per second.
fn goodput(side: &Side, recorded: Duration) -> f64 {
    if recorded.is_zero() { 0.0 } else { side.good as f64 / recorded.as_secs_f64() }
}

fn side(side: &Side, recorded: Duration) -> Value {
    let millis = |percent| (side.percentile(percent).as_secs_f64() * 1e6).round() / 1e3;
    json!({
        "p50_ms": millis(50.0), "p95_ms": millis(95.0), "p99_ms": millis(99.0),
        "goodput": goodput(side, recorded),
        "rounds": side.rounds(), "most_rounds": side.most_rounds(),
        "calls": side.calls, "merged": side.merged, "sent": side.sent, "good": side.good,
    })
}

fn figures(figures: &Figures, recorded: Duration) -> Value {
    let by: serde_json::Map<String, Value> = What::ALL
        .into_iter()
        .map(|what| (what.name().to_owned(), figures.by.get(&what).copied().unwrap_or(0).into()))
        .collect();
    json!({
        "requests": figures.requests, "differing": figures.differing, "by": by,
        "recorded": side(&figures.before, recorded), "replayed": side(&figures.after, recorded),
    })
}

/// For programs.
#[must_use]
pub fn json(run: &ReplayRun) -> Value {
    let routes: serde_json::Map<String, Value> =
        run.routes.iter().map(|(route, of)| (route.clone(), figures(of, run.recorded))).collect();
    let differences: Vec<Value> = run
        .differences
        .iter()
        .map(|one| {
            let what: Vec<&str> = one.what.iter().map(|what| what.name()).collect();
            json!({"request": one.request, "target": one.shown, "route": one.route, "differs": what, "lines": one.lines})
        })
        .collect();
    let counted = |all: &[(String, u64)], name: &str| {
        all.iter().map(|(what, number)| json!({name: what, "times": number})).collect::<Vec<_>>()
    };
    let advice: Vec<Value> =
        run.advice.iter().map(|one| json!({"key": one.key, "value": one.value, "why": one.why})).collect();
    json!({
        "differs": run.differs(),
        "total": figures(&run.total, run.recorded),
        "routes": routes,
        "differences": differences,
        "missing": counted(&run.missing, "call"),
        "skipped": counted(&run.skipped, "why"),
        "advice": advice,
        "what_if": run.what_if,
        "recording": {
            "seconds": run.recorded.as_secs_f64(), "share": run.share, "dropped": run.dropped,
            "left_out": run.left_out,
        },
        "took_seconds": run.took.as_secs_f64(),
        "threads": run.threads,
    })
}
