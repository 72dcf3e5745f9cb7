//! More is offered than the server can do: O1 (goodput), O2 (who is accepted), O3 (who is refused), O10 (the important).

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use fanin_load::{Outcome, Shape};
use serde_json::json;

use super::Stage;
use crate::Failure;
use crate::load;
use crate::process;
use crate::report::{Report, Table};

const SECOND: Duration = Duration::from_secs(1);
/// How many times the peak, and the share of the peak that must remain.
const STEPS: [(f64, f64); 3] = [(2.0, 0.95), (5.0, 0.90), (10.0, 0.80)];
/// Below this a route's work is too little for the bars to mean anything.
const LEAST_CPU_US: f64 = 300.0;
const MOST_REFUSAL_US: f64 = 6.0;

/// O1 to O3.
pub fn shed(stage: &mut Stage, report: &mut Report, full: bool) -> Result<(), Failure> {
    let lasts = if full { 30 * SECOND } else { 10 * SECOND };
    // Everything is warm before anything counts.
    stage.peak("/work", 2 * SECOND)?;
    let (peak, cpu) = stage.peak("/work", 3 * SECOND)?;
    let calm = stage.offer("/work", peak * 0.8, lasts)?;
    let mut table = Table::new(
        "Overload: a route with a call of 5 ms; open loop, independent arrivals",
        &[
            "offered / peak",
            "offered/s",
            "goodput/s",
            "of the peak",
            "accepted p50 ms",
            "accepted p99 ms",
            "refused p50 ms",
            "refused p99 ms",
            "otherwise failed",
            "load's own lag p99 ms",
        ],
    );
    table.rows.push(row("0.8", &calm, peak));
    let mut data = vec![json!({"times": 0.8, "peak": peak, "outcome": calm})];
    let mut rows = Vec::new();
    for (times, share) in STEPS {
        // The machine may be faster or slower by now: the peak counts that is measured around the overload.
        let (before, _) = stage.peak("/work", 2 * SECOND)?;
        let reached = stage.reached()?;
        let outcome = stage.offer("/work", peak * times, lasts)?;
        let calls = stage.reached()? - reached - 1;
        let (after, _) = stage.peak("/work", 2 * SECOND)?;
        let around = (before + after) / 2.0;
        table.rows.push(row(&format!("{times}"), &outcome, around));
        data.push(json!({"times": times, "peak": around, "outcome": outcome}));
        rows.push((times, share, around, outcome, calls));
    }
    report.tables.push(table);
    let refusal = cost_of_a_refusal(stage)?;

    let cpu = cpu.as_secs_f64() * 1e6;
    report.holds(
        &format!("O1: the route costs at least {LEAST_CPU_US} us of CPU"),
        format!("{cpu:.0} us"),
        cpu >= LEAST_CPU_US,
    );
    let user = refusal.user / refusal.all * 100.0;
    let bar = format!("O1: CPU of a refusal, {user:.0} % of it outside of the kernel,");
    report.at_most(&bar, refusal.all, MOST_REFUSAL_US, " us");
    for (times, share, peak, outcome, _) in &rows {
        let kept = outcome.goodput / peak;
        let bar = format!("O1: goodput at {times} times the peak ≥ {:.0} % of it", share * 100.0);
        report.holds(&bar, format!("{:.1} %", kept * 100.0), kept >= *share);
    }
    for (times, _, _, outcome, _) in &rows {
        let bar = format!("O2: p99 of the accepted at {times} times the peak, of that at 0.8");
        report.at_most(&bar, outcome.latency.p99 / calm.latency.p99, 2.0, "");
    }
    for (times, _, _, outcome, calls) in &rows {
        report.at_most(&format!("O3: p99 of the refused at {times} times the peak"), outcome.refused.p99, 10.0, " ms");
        let answered = outcome.good + outcome.late;
        let bar = format!("O3: calls of the refused at {times} times the peak");
        report.holds(&bar, format!("{}", calls.saturating_sub(answered)), *calls <= answered);
    }
    let reasons = stage.metric("fanin_requests_refused_total")?;
    let refused: u64 = rows.iter().map(|(_, _, _, outcome, _)| outcome.refused.count).sum();
    report.holds(
        "O3: each refusal has its reason in the metrics",
        format!("{reasons} of {refused}"),
        reasons >= refused as f64,
    );
    report.data["O1"] = data.into();
    Ok(())
}

fn row(times: &str, outcome: &Outcome, peak: f64) -> Vec<String> {
    let failed = outcome.offered - outcome.good - outcome.refused.count;
    vec![
        times.into(),
        format!("{:.0}", outcome.rate),
        format!("{:.0}", outcome.goodput),
        format!("{:.1} %", outcome.goodput / peak * 100.0),
        format!("{:.2}", outcome.latency.p50),
        format!("{:.2}", outcome.latency.p99),
        format!("{:.2}", outcome.refused.p50),
        format!("{:.2}", outcome.refused.p99),
        failed.to_string(),
        format!("{:.2}", outcome.lag.p99),
    ]
}

/// CPU microseconds of one refusal.
struct Refusal {
    all: f64,
    user: f64,
}

/// By a route whose only place is taken: all that the server does then is refuse. The kernel's part is mostly the sending: on
/// loopback that is the receiving as well, up to the other socket.
fn cost_of_a_refusal(stage: &Stage) -> Result<Refusal, Failure> {
    // One request is sent and never answered.
    let mut taken = TcpStream::connect_timeout(&stage.fanin.addr, 5 * SECOND)?;
    taken.write_all(&load::get("/full"))?;
    process::pause(Duration::from_millis(200));
    let (status, body) = load::once(stage.fanin.addr, &load::get("/full"), 5 * SECOND)?;
    let problem: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
    if status != 503 || problem["reason"] != "route-limit" {
        return Err(Failure::Wrong(format!("a refusal is {status} {problem}")));
    }
    let plan = load::Plan { addr: stage.fanin.addr, request: load::get("/full"), connections: 64, least_body: 1 };
    let mut refused = load::Session::connect(plan)?;
    let before = (stage.metric("fanin_requests_refused_total")?, stage.fanin.usage()?);
    refused.window(Duration::ZERO, 3 * SECOND, || {})?;
    let after = (stage.metric("fanin_requests_refused_total")?, stage.fanin.usage()?);
    let cpu = after.1.cpu.saturating_sub(before.1.cpu).as_secs_f64() * 1e6;
    drop(taken);
    let user = after.1.user.saturating_sub(before.1.user).as_secs_f64() * 1e6;
    let refused = after.0 - before.0;
    Ok(Refusal { all: cpu / refused, user: user / refused })
}

/// O10: nine of ten requests are of low priority, one is critical, five times what the server can do.
pub fn priorities(stage: &mut Stage, report: &mut Report, full: bool) -> Result<(), Failure> {
    let lasts = if full { 30 * SECOND } else { 10 * SECOND };
    stage.peak("/work", 2 * SECOND)?;
    let (peak, _) = stage.peak("/work", 3 * SECOND)?;
    let mut low = stage.plan("/work/low", Shape::constant(peak * 4.5, lasts))?;
    low.arrivals = fanin_load::Arrivals::Poisson { seed: 8 };
    let critical = stage.plan("/work/critical", Shape::constant(peak * 0.5, lasts))?;
    let [low, critical] = stage.run_all([&low, &critical])?;
    let mut table =
        Table::new("Priorities: five times the peak", &["", "offered/s", "goodput/s", "success", "refused", "p99 ms"]);
    for (name, outcome) in [("low", &low), ("critical", &critical)] {
        table.rows.push(vec![
            name.into(),
            format!("{:.0}", outcome.rate),
            format!("{:.0}", outcome.goodput),
            format!("{:.2} %", outcome.good_share() * 100.0),
            outcome.refused.count.to_string(),
            format!("{:.2}", outcome.latency.p99),
        ]);
    }
    report.tables.push(table);
    let success = critical.good_share() * 100.0;
    report.holds("O10: critical requests that succeed ≥ 99 %", format!("{success:.2} %"), success >= 99.0);
    report.data["O10"] = json!({"peak": peak, "low": low, "critical": critical});
    Ok(())
}
