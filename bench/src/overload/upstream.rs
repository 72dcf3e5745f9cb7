//! Something is wrong with an upstream: O6 (it hangs), O7 (it fails), O8 (it heals), O9 (it is too slow for the deadline),
//! O14 (it is slow, and that is all).

use std::time::Duration;

use fanin_load::fault_injector::Fault;
use fanin_load::{Outcome, Shape};
use serde_json::json;

use super::Stage;
use crate::report::{Report, Table, median};
use crate::{Failure, process};

const SECOND: Duration = Duration::from_secs(1);
/// Requests a second to a route whose upstream is in trouble.
const TROUBLED: f64 = 300.0;

/// O6: one of two upstreams hangs. Both routes get the same load with and without it.
pub fn one_hangs(stage: &mut Stage, report: &mut Report, full: bool) -> Result<(), Failure> {
    let lasts = if full { 15 * SECOND } else { 4 * SECOND };
    stage.peak("/work", 2 * SECOND)?;
    let (peak, _) = stage.peak("/work", 2 * SECOND)?;
    let window = |stage: &Stage, fault| -> Result<[Outcome; 2], Failure> {
        stage.gate.set(fault);
        let other = stage.plan("/work", Shape::constant(peak * 0.4, lasts))?;
        let troubled = stage.plan("/shaky", Shape::constant(TROUBLED, lasts))?;
        let outcomes = stage.run_all([&other, &troubled])?;
        stage.gate.set(Fault::Pass);
        stage.gate.reset_connections();
        // The breaker closes again, so that each window begins alike.
        stage.block_on(async { tokio::time::sleep(Duration::from_millis(1500)).await });
        stage.offer("/shaky", 50.0, Duration::from_millis(1500))?;
        Ok(outcomes)
    };
    let mut table = Table::new(
        "One upstream hangs: the other route",
        &["pair", "goodput/s without", "with", "p99 ms without", "with", "troubled route: p99 ms of its refusals"],
    );
    let (mut goodput, mut slower, mut ratio) = (Vec::new(), Vec::new(), Vec::new());
    for pair in 0..7 {
        // In turns, so that a drift of the machine falls on both.
        let (without, with) = if pair % 2 == 0 {
            let without = window(stage, Fault::Pass)?;
            (without, window(stage, Fault::Hang)?)
        } else {
            let with = window(stage, Fault::Hang)?;
            (window(stage, Fault::Pass)?, with)
        };
        let ([without, _], [with, troubled]) = (&without, &with);
        goodput.push(with.goodput / without.goodput);
        slower.push(with.latency.p99 - without.latency.p99);
        ratio.push(with.latency.p99 / without.latency.p99);
        table.rows.push(vec![
            (pair + 1).to_string(),
            format!("{:.0}", without.goodput),
            format!("{:.0}", with.goodput),
            format!("{:.2}", without.latency.p99),
            format!("{:.2}", with.latency.p99),
            format!("{:.2}", troubled.refused.p99),
        ]);
    }
    report.tables.push(table);
    let kept = median(goodput) * 100.0;
    report.holds("O6: goodput of the other route ≥ 99 %", format!("{kept:.2} %"), kept >= 99.0);
    let (slower, ratio) = (median(slower), median(ratio));
    report.holds(
        "O6: p99 of the other route at most +10 % or +2 ms",
        format!("{slower:+.2} ms, {:+.0} %", (ratio - 1.0) * 100.0),
        slower <= 2.0 || ratio <= 1.1,
    );
    Ok(())
}

/// O7: an upstream fails always, with retries and hedges on and no breaker.
pub fn one_fails(stage: &mut Stage, report: &mut Report, full: bool) -> Result<(), Failure> {
    let lasts = if full { 60 * SECOND } else { 10 * SECOND };
    let before = stage.reached()?;
    let outcome = stage.offer("/failing", 600.0, lasts)?;
    let reached = stage.reached()? - before - 1;
    let times = reached as f64 / outcome.offered as f64;
    report.at_most("O7: requests that reach a failing upstream, of 600 calls/s offered", times, 1.2, "");
    let (retries, hedges) =
        (stage.metric("fanin_upstream_retries_total")?, stage.metric("fanin_upstream_hedges_total")?);
    report.holds("O7: second requests are sent at all", format!("{retries} retries, {hedges} hedges"), retries > 0.0);
    report.data["O7"] = json!({"reached": reached, "outcome": outcome});
    Ok(())
}

/// O8: an upstream that refused for a while answers again.
pub fn one_heals(stage: &mut Stage, report: &mut Report, full: bool) -> Result<(), Failure> {
    let broken = if full { 60 * SECOND } else { 15 * SECOND };
    let plan = stage.plan("/shaky", Shape::constant(TROUBLED, broken + 20 * SECOND))?;
    stage.gate.set(Fault::Reset);
    let heal = async {
        tokio::time::sleep(broken).await;
        stage.gate.set(Fault::Pass);
    };
    let (outcome, ()) = stage.block_on(async { tokio::join!(fanin_load::run(&plan, |_| ()), heal) });
    let outcome = outcome?;
    let healed = broken.as_secs_f64();
    let after: Vec<_> = outcome.intervals.iter().filter(|interval| interval.at >= healed).collect();
    let bad = |interval: &&fanin_load::Interval| (interval.good as f64) < 0.95 * interval.offered as f64;
    let back = after.iter().rposition(bad).map_or(0, |last| last + 1);
    // The longest pause of a breaker between two probes is 5 s by default.
    report.at_most("O8: seconds from healing to 95 % success", back as f64, 5.0 + 5.0, " s");
    let while_broken: u64 = outcome.intervals.iter().filter(|i| i.at < healed - 1.0).map(|i| i.good).sum();
    report.holds("O8: nothing succeeded before", while_broken.to_string(), while_broken == 0);
    report.data["O8"] = json!({"outcome": outcome});
    Ok(())
}

/// O9: the deadline is 200 ms, the upstream takes 2 s, and a second call would follow.
pub fn deadline(stage: &mut Stage, report: &mut Report, full: bool) -> Result<(), Failure> {
    let lasts = if full { 60 * SECOND } else { 10 * SECOND };
    let before = stage.reached()?;
    let outcome = stage.offer("/deadline", 100.0, lasts)?;
    // Whatever would start late has time to.
    process::pause(3 * SECOND);
    let reached = stage.reached()? - before - 1;
    let answered = outcome.status.get(&504).copied().unwrap_or(0);
    report.holds("O9: all are answered 504", format!("{answered} of {}", outcome.offered), answered == outcome.offered);
    report.at_most("O9: slowest answer to a deadline of 200 ms", outcome.failures.max, 220.0, " ms");
    let bar = "O9: calls, of as many requests: none after the deadline";
    report.holds(bar, format!("{reached} of {}", outcome.offered), reached <= outcome.offered);
    report.data["O9"] = json!({"reached": reached, "outcome": outcome});
    Ok(())
}

/// O14: a route whose upstream takes a second, beside one at half of the peak. Nobody is refused.
pub fn only_an_upstream_is_slow(stage: &mut Stage, report: &mut Report, full: bool) -> Result<(), Failure> {
    let lasts = if full { 60 * SECOND } else { 10 * SECOND };
    stage.peak("/work", 2 * SECOND)?;
    let (peak, _) = stage.peak("/work", 2 * SECOND)?;
    let work = stage.plan("/work", Shape::constant(peak * 0.5, lasts))?;
    let mut slow = stage.plan("/slow", Shape::constant(TROUBLED, lasts))?;
    slow.connections = 1000;
    let before = stage.metric("fanin_requests_refused_total")?;
    let [work, slow] = stage.run_all([&work, &slow])?;
    let refused = stage.metric("fanin_requests_refused_total")? - before;
    report.holds("O14: requests refused while an upstream takes a second", format!("{refused}"), refused == 0.0);
    for (name, outcome) in [("the slow route", &slow), ("the other route", &work)] {
        let bar = format!("O14: requests of {name} that succeed");
        let success = format!("{} of {}", outcome.good, outcome.offered);
        report.holds(&bar, success, outcome.good == outcome.offered);
    }
    report.data["O14"] = json!({"work": work, "slow": slow});
    Ok(())
}
