//! Ten models on one core, a deadline of 50 ms, open loop: nearly all in time below capacity, and hardly less goodput above.

use std::time::Duration;

use fanin_load::{Arrivals, Outcome, Plan, Protocol, Shape};
use futures_util::future::join_all;
use prost::Message;
use serde_json::json;

use super::load::{self, Clients};
use super::{Folder, Plans, trees};
use crate::process;
use crate::report::{Report, Table};
use crate::{Failure, Options};

const MODELS: usize = 10;
/// So large that a request takes about a millisecond, as the models of the story did: what is refused has to cost little beside.
const TREES: usize = 2000;
const LEAVES: usize = 31;
const FEATURES: usize = 50;
const ROWS: usize = 16;
const DEADLINE: Duration = Duration::from_millis(50);
/// Connections of the closed loop that finds the capacity: enough to keep the core busy, few enough to be in time.
const BUSY: usize = 20;

/// Measures.
pub fn run(options: &Options, _: &Plans, report: &mut Report) -> Result<(), Failure> {
    let folder = Folder::new("deadline")?;
    let names: Vec<String> = (0..MODELS).map(|number| format!("m{number}")).collect();
    let text = trees::model(TREES, LEAVES, FEATURES);
    for name in &names {
        folder.put(name, 1, &text)?;
    }
    let fanin = folder.serve(process::free_port()?, None, "")?;
    let bodies: Vec<_> = names.iter().map(|name| load::request(name, ROWS, FEATURES, &["output"])).collect();
    let seconds = if options.quick { 6 } else { 30 };
    let clients = Clients::start(fanin.addr, BUSY, &bodies)?;
    clients.window(Duration::from_secs(1));
    let before = fanin.usage()?;
    let (asked, wrong) = clients.window(Duration::from_secs(4));
    let busy = (fanin.usage()?.cpu - before.cpu).as_secs_f64() / 4.0;
    drop(clients);
    let peak = asked as f64 / 4.0;
    let mut table = Table::new(
        &format!(
            "{MODELS} models of {TREES} trees, {ROWS} rows a request, one core; deadline {} ms; capacity by {BUSY} clients in turns: \
             {peak:.0}/s at {:.0} % of the core, {wrong} failed",
            DEADLINE.as_millis(),
            busy * 100.0
        ),
        &[
            "offered/s",
            "of capacity",
            "in time/s",
            "in time",
            "p50 ms",
            "p99 ms",
            "p99.9 ms",
            "refused",
            "late",
            "other",
            "own lag p99 ms",
        ],
    );
    let mut in_time = Vec::new();
    // The load's own first steps, on pages that are touched for the first time, are late by tens of milliseconds.
    offer(fanin.addr, &names, peak * 0.8, Duration::from_secs(1))?;
    for share in [0.8, 1.0, 2.0, 5.0] {
        let outcomes = offer(fanin.addr, &names, peak * share, Duration::from_secs(seconds))?;
        let sum = |of: fn(&Outcome) -> u64| outcomes.iter().map(of).sum::<u64>() as f64;
        let (offered, good) = (sum(|it| it.offered), sum(|it| it.good));
        let refused = sum(|it| it.status.get(&429).copied().unwrap_or_default());
        // No answer within the deadline, said by the server or found out here.
        let late = sum(|it| it.late + it.timeouts + it.status.get(&504).copied().unwrap_or_default());
        // Of the models the slowest: none may hide behind the others.
        let worst = |of: fn(&Outcome) -> f64| outcomes.iter().map(of).fold(0.0, f64::max);
        let rate = good / seconds as f64;
        table.rows.push(vec![
            format!("{:.0}", offered / seconds as f64),
            format!("{share}"),
            format!("{rate:.0}"),
            format!("{:.3} %", good / offered * 100.0),
            format!("{:.1}", worst(|it| it.latency.p50)),
            format!("{:.1}", worst(|it| it.latency.p99)),
            format!("{:.1}", worst(|it| it.latency.p999)),
            format!("{refused:.0}"),
            format!("{late:.0}"),
            format!("{:.0}", offered - good - refused - late),
            format!("{:.2}", worst(|it| it.lag.p99)),
        ]);
        in_time.push((share, good / offered, rate));
    }
    let of =
        |share: f64| in_time.iter().find(|(at, _, _)| *at == share).map_or((f64::NAN, f64::NAN), |it| (it.1, it.2));
    // The most that was answered in time at any rate, the closed loop's included, so that the bar is no easier for a slow start.
    let most = in_time.iter().map(|it| it.2).fold(peak, f64::max);
    let below = of(0.8).0 * 100.0;
    report.holds("in time at 80 % of capacity ≥ 99.9 %", format!("{below:.3} %"), below >= 99.9);
    let above = of(5.0).1 / most * 100.0;
    report.holds("goodput at 5 times capacity ≥ 90 % of peak", format!("{above:.1} %"), above >= 90.0);
    report.tables.push(table);
    report.data["deadline"] = json!({"peak": peak, "in_time": in_time});
    Ok(())
}

/// Asks all models, each at its share of the rate, at random moments.
fn offer(addr: std::net::SocketAddr, names: &[String], rate: f64, duration: Duration) -> Result<Vec<Outcome>, Failure> {
    let plans = names.iter().enumerate().map(|(seed, name)| {
        let message = load::message(name, ROWS, FEATURES, &["output"]).encode_to_vec();
        let url = format!("http://{addr}{}", super::messages::PATH);
        let request = fanin_load::Request::get(&url)?.with_body(message);
        let mut plan = Plan::new(request, Shape::constant(rate / names.len() as f64, duration));
        plan.arrivals = Arrivals::Poisson { seed: seed as u64 };
        plan.protocol = Protocol::Grpc;
        plan.connections = 2;
        plan.timeout = DEADLINE;
        plan.good_within = Some(DEADLINE);
        Ok(plan)
    });
    let wrong = |error: fanin_load::LoadError| Failure::Wrong(error.to_string());
    let plans = plans.collect::<Result<Vec<_>, fanin_load::LoadError>>().map_err(wrong)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcomes = tokio::task::LocalSet::new()
        .block_on(&runtime, join_all(plans.iter().map(|plan| fanin_load::run(plan, |_| {}))));
    outcomes.into_iter().collect::<Result<_, _>>().map_err(wrong)
}
