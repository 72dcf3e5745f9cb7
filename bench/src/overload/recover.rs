//! The overload ends: O4, and O5 with clients that try again and a server that has just started.

use std::time::Duration;

use fanin_load::{Outcome, Shape};
use serde_json::json;

use super::Stage;
use crate::Failure;
use crate::report::{Report, Table};

const SECOND: Duration = Duration::from_secs(1);
/// Offered before and after, of the peak.
const CALM: f64 = 0.5;

/// O4: ten times the peak, then half of it.
pub fn recover(stage: &mut Stage, report: &mut Report, full: bool) -> Result<(), Failure> {
    let storm = if full { 60 * SECOND } else { 15 * SECOND };
    stage.peak("/work", 2 * SECOND)?;
    let (peak, _) = stage.peak("/work", 3 * SECOND)?;
    let before = stage.offer("/work", peak * CALM, 10 * SECOND)?;
    let shape = Shape::constant(peak * 10.0, storm).then(Shape::constant(peak * CALM, 15 * SECOND));
    let outcome = stage.run(&stage.plan("/work", shape)?)?;
    let after = seconds_after(&outcome, storm);
    report.tables.push(table("Ten times the peak, then half of it: the seconds after", &after));

    let normal = before.latency.p99 * 2.0 + 2.0;
    let settled = |second: &Second| second.failed == 0 && second.p99 <= normal;
    let back = after.iter().rposition(|second| !settled(second)).map_or(0, |last| last + 1);
    let bar = format!("O4: seconds until no request fails and p99 is normal again (below {normal:.1} ms)");
    report.at_most(&bar, back as f64, 5.0, " s");
    report.data["O4"] = json!({"peak": peak, "before": before, "outcome": outcome});
    Ok(())
}

/// O5: the same at a cold server, with clients that try again three times.
pub fn recover_from_retries(stage: &mut Stage, report: &mut Report, full: bool) -> Result<(), Failure> {
    let storm = if full { 60 * SECOND } else { 15 * SECOND };
    stage.peak("/work", 2 * SECOND)?;
    let (peak, _) = stage.peak("/work", 3 * SECOND)?;
    // No connection to the backend, nothing learnt about it, no code of a flow in the processor's caches.
    stage.restart()?;
    let shape = Shape::constant(peak * 10.0, storm).then(Shape::constant(peak * CALM, 35 * SECOND));
    let mut plan = stage.plan("/work", shape)?;
    plan.retries = 3;
    let outcome = stage.run(&plan)?;
    let after = seconds_after(&outcome, storm);
    report.tables.push(table("The same at a cold server with clients that try again: the seconds after", &after));
    let good = |second: &Second| second.good as f64 >= 0.95 * second.offered as f64;
    let back = after.iter().rposition(|second| !good(second)).map_or(0, |last| last + 1);
    report.at_most("O5: seconds until 95 % of what is offered succeeds", back as f64, 30.0, " s");
    report.holds("O5: tries beyond the first during it", outcome.retried.to_string(), outcome.retried > 0);
    report.data["O5"] = json!({"peak": peak, "outcome": outcome});
    Ok(())
}

/// A second after the overload.
struct Second {
    after: f64,
    offered: u64,
    good: u64,
    failed: u64,
    p99: f64,
}

fn seconds_after(outcome: &Outcome, storm: Duration) -> Vec<Second> {
    let end = storm.as_secs_f64();
    let after = outcome.intervals.iter().filter(|interval| interval.at >= end);
    let second = |interval: &fanin_load::Interval| Second {
        after: interval.at - end,
        offered: interval.offered,
        good: interval.good,
        failed: interval.offered - interval.good,
        p99: interval.latency.p99,
    };
    after.map(second).collect()
}

fn table(title: &str, seconds: &[Second]) -> Table {
    let mut table = Table::new(title, &["second", "offered", "good", "not good", "p99 ms"]);
    for second in seconds.iter().take(8) {
        table.rows.push(vec![
            format!("{:.0}", second.after),
            second.offered.to_string(),
            second.good.to_string(),
            second.failed.to_string(),
            format!("{:.2}", second.p99),
        ]);
    }
    table
}
