//! More is offered than the server can do: O1 (goodput), O2 (who is accepted), O3 (who is refused), O10 (the important).

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use fanin_load::{Outcome, Shape};
use serde_json::json;

use super::Stage;
use crate::Failure;
use crate::load;
use crate::process::{self, SERVER_CORE, Server};
use crate::report::{Report, Table};

const SECOND: Duration = Duration::from_secs(1);
/// How many times the peak, and the share of the peak that must remain.
const STEPS: [(f64, f64); 3] = [(2.0, 0.95), (5.0, 0.90), (10.0, 0.80)];
/// Below this a route's work is too little for the bars to mean anything.
const LEAST_CPU_US: f64 = 300.0;
const MOST_REFUSAL_US: f64 = 6.0;

/// How often each step is run. The median counts: the machine has moments in which it runs something else.
const ROUNDS: usize = 3;

/// Milliseconds by which the load may itself be late, at the 99th percentile: latency counts from the moment at which a request was
/// to be sent, so what is more than this is the load's, or that of the machine beneath.
const MOST_LAG: f64 = 3.0;
/// A step in which it was later is run again, so often at most; and so many of all steps, so that a machine that is always late
/// gets an end.
const AGAIN: usize = 3;
/// See [`AGAIN`].
const AGAIN_OF_ALL: usize = 8;

/// One run of one step.
struct Round {
    times: f64,
    /// What the server does at most, measured before and after.
    peak: f64,
    outcome: Outcome,
    /// That reached the upstream.
    calls: u64,
}

/// O1 to O3.
pub fn shed(stage: &mut Stage, report: &mut Report, full: bool) -> Result<(), Failure> {
    let lasts = if full { 20 * SECOND } else { 6 * SECOND };
    // Everything is warm before anything counts.
    stage.peak("/work", 2 * SECOND)?;
    let (mut peak, cpu) = stage.peak("/work", 3 * SECOND)?;
    let (mut rounds, mut again) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        for times in [0.8].into_iter().chain(STEPS.map(|(times, _)| times)) {
            for attempt in 0.. {
                let reached = stage.reached()?;
                let outcome = stage.offer("/work", peak * times, lasts)?;
                // Asking is one as well.
                let calls = stage.reached()? - reached - 1;
                // The machine may be faster or slower by now: the peak counts that is measured around the overload.
                let (after, _) = stage.peak("/work", 2 * SECOND)?;
                let round = Round { times, peak: (peak + after) / 2.0, outcome, calls };
                peak = after;
                if round.outcome.lag.p99 <= MOST_LAG || attempt == AGAIN || again.len() == AGAIN_OF_ALL {
                    rounds.push(round);
                    break;
                }
                again.push(round);
            }
        }
    }
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
    rounds.sort_by(|a, b| a.times.total_cmp(&b.times));
    if !again.is_empty() {
        table.title += &format!(
            "; {} rounds, in which the load itself was late by more than {MOST_LAG} ms, were run again and are not here",
            again.len()
        );
    }
    table.rows = rounds.iter().map(|round| row(&round.times.to_string(), &round.outcome, round.peak)).collect();
    report.tables.push(table);
    let refusal = cost_of_a_refusal(stage)?;

    let cpu = cpu.as_secs_f64() * 1e6;
    report.holds(
        &format!("O1: the route costs at least {LEAST_CPU_US} us of CPU"),
        format!("{cpu:.0} us"),
        cpu >= LEAST_CPU_US,
    );
    let Refusal { all, user, bare } = refusal;
    let user = user / all * 100.0;
    let bar = format!(
        "O1: CPU of a refusal ({user:.0} % of it outside of the kernel; {bare:.1} us for the same bytes by a bare loop)"
    );
    report.at_most(&bar, all, MOST_REFUSAL_US, " us");
    let of = |times: f64| rounds.iter().filter(move |round| round.times == times);
    for (times, share) in STEPS {
        let kept = median(of(times).map(|round| round.outcome.goodput / round.peak));
        let bar = format!("O1: goodput at {times} times the peak ≥ {:.0} % of it", share * 100.0);
        report.holds(&bar, format!("{:.1} %", kept * 100.0), kept >= share);
    }
    let calm = median(of(0.8).map(|round| round.outcome.latency.p99));
    for (times, _) in STEPS {
        let p99 = median(of(times).map(|round| round.outcome.latency.p99));
        report.at_most(
            &format!("O2: p99 of the accepted at {times} times the peak, of that at 0.8"),
            p99 / calm,
            2.0,
            "",
        );
    }
    for (times, _) in STEPS {
        let p99 = median(of(times).map(|round| round.outcome.refused.p99));
        report.at_most(&format!("O3: p99 of the refused at {times} times the peak"), p99, 10.0, " ms");
        let more = |round: &Round| round.calls.saturating_sub(round.outcome.good + round.outcome.late);
        let calls: u64 = of(times).map(more).sum();
        report.holds(&format!("O3: calls of the refused at {times} times the peak"), calls.to_string(), calls == 0);
    }
    let reasons = stage.metric("fanin_requests_refused_total")?;
    let refused: u64 = rounds.iter().chain(&again).map(|round| round.outcome.refused.count).sum();
    report.holds(
        "O3: each refusal has its reason in the metrics",
        format!("{reasons} of {refused}"),
        reasons >= refused as f64,
    );
    let data = rounds.iter().map(|round| json!({"times": round.times, "peak": round.peak, "outcome": round.outcome}));
    report.data["O1"] = data.collect();
    report.data["O1 run again"] = again.len().into();
    Ok(())
}

/// The middle one.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values = values.collect::<Vec<_>>();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
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
    /// What reading such a request and writing so many bytes costs by itself.
    bare: f64,
}

/// By a route whose only place is taken: all that the server does then is refuse. The kernel's part is mostly the sending: on
/// loopback that is the receiving as well, up to the other socket. How much that is on this machine, in this minute, the
/// benchmarks' stub shows in the server's place, which for each request reads once and writes a ready answer once.
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
    let stub = Server::role("bare", SERVER_CORE, &["stub"])?;
    let item = format!("/item/{}/0/x", body.len());
    let mut refusals = load::Session::connect(closed(&stage.fanin, "/full"))?;
    let mut answers = load::Session::connect(closed(&stub, &item))?;
    let (mut all, mut user, mut bare) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let before = (stage.metric("fanin_requests_refused_total")?, stage.fanin.usage()?);
        refusals.window(Duration::ZERO, 2 * SECOND, || {})?;
        let after = (stage.metric("fanin_requests_refused_total")?, stage.fanin.usage()?);
        let each = |time: Duration| time.as_secs_f64() * 1e6 / (after.0 - before.0);
        all.push(each(after.1.cpu.saturating_sub(before.1.cpu)));
        user.push(each(after.1.user.saturating_sub(before.1.user)));
        let before = (answers.figures().requests, stub.usage()?);
        answers.window(Duration::ZERO, 2 * SECOND, || {})?;
        let after = (answers.figures().requests, stub.usage()?);
        bare.push(after.1.cpu.saturating_sub(before.1.cpu).as_secs_f64() * 1e6 / (after.0 - before.0) as f64);
    }
    drop(taken);
    let [all, user, bare] = [all, user, bare].map(|each| median(each.into_iter()));
    Ok(Refusal { all, user, bare })
}

/// A closed loop of enough connections that the server is never idle.
fn closed(server: &Server, path: &str) -> load::Plan {
    load::Plan { addr: server.addr, request: load::get(path), connections: 64, least_body: 1 }
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
