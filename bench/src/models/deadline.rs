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
/// Milliseconds by which the load may itself be late, at the 99th percentile: latency counts from the moment at which a request was
/// to be sent, so what is more than this is the load's, or that of the machine beneath. Such a step is run again.
const MOST_LAG: f64 = 3.0;
/// So often at most, all steps together.
const AGAIN: usize = 6;

/// One rate.
struct Step {
    share: f64,
    /// Requests a second by [`BUSY`] clients in turns, before and after.
    peak: f64,
    outcomes: Vec<Outcome>,
}

impl Step {
    fn sum(&self, of: impl Fn(&Outcome) -> u64) -> f64 {
        self.outcomes.iter().map(of).sum::<u64>() as f64
    }

    /// Of the models the slowest: none may hide behind the others.
    fn worst(&self, of: impl Fn(&Outcome) -> f64) -> f64 {
        self.outcomes.iter().map(of).fold(0.0, f64::max)
    }

    fn in_time(&self) -> f64 {
        self.sum(|it| it.good) / self.sum(|it| it.offered)
    }

    fn row(&self, seconds: u64) -> Vec<String> {
        let (offered, good) = (self.sum(|it| it.offered), self.sum(|it| it.good));
        let refused = self.sum(|it| it.status.get(&429).copied().unwrap_or_default());
        // No answer within the deadline, said by the server or found out here.
        let late = self.sum(|it| it.late + it.timeouts + it.status.get(&504).copied().unwrap_or_default());
        vec![
            format!("{:.0}", offered / seconds as f64),
            format!("{}", self.share),
            format!("{:.0}", self.peak),
            format!("{:.0}", good / seconds as f64),
            format!("{:.3} %", self.in_time() * 100.0),
            format!("{:.1}", self.worst(|it| it.latency.p50)),
            format!("{:.1}", self.worst(|it| it.latency.p99)),
            format!("{:.1}", self.worst(|it| it.latency.p999)),
            format!("{refused:.0}"),
            format!("{late:.0}"),
            format!("{:.0}", offered - good - refused - late),
            format!("{:.2}", self.worst(|it| it.lag.p99)),
        ]
    }
}

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
    let peak = || -> Result<f64, Failure> {
        let clients = Clients::start(fanin.addr, BUSY, &bodies)?;
        clients.window(Duration::from_millis(500));
        let (asked, wrong) = clients.window(Duration::from_secs(3));
        if wrong * 100 > asked {
            return Err(Failure::Wrong(format!("{wrong} of {asked} requests fail, of {BUSY} clients in turns")));
        }
        Ok(asked as f64 / 3.0)
    };
    let mut before = peak()?;
    // The load's own first steps, on pages that are touched for the first time, are late by tens of milliseconds.
    offer(fanin.addr, &names, before * 0.8, Duration::from_secs(1))?;
    let (mut steps, mut again) = (Vec::new(), 0);
    for share in [0.8, 1.0, 2.0, 5.0] {
        loop {
            let outcomes = offer(fanin.addr, &names, before * share, Duration::from_secs(seconds))?;
            // The machine may be faster or slower by now: the peak counts that is measured around the step.
            let after = peak()?;
            let step = Step { share, peak: (before + after) / 2.0, outcomes };
            before = after;
            if step.worst(|it| it.lag.p99) > MOST_LAG && again < AGAIN {
                again += 1;
                continue;
            }
            steps.push(step);
            break;
        }
    }
    let mut table = Table::new(
        &format!(
            "{MODELS} models of {TREES} trees, {ROWS} rows a request, one core; deadline {} ms; capacity by {BUSY} clients in turns",
            DEADLINE.as_millis(),
        ),
        &[
            "offered/s",
            "of capacity",
            "capacity/s",
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
    if again > 0 {
        table.title += &format!(
            "; {again} steps, in which the load itself was late by more than {MOST_LAG} ms, were run again and are not here"
        );
    }
    table.rows = steps.iter().map(|step| step.row(seconds)).collect();
    let of = |share: f64| steps.iter().find(|step| step.share == share);
    let goodput = |step: &Step| step.sum(|it| it.good) / seconds as f64 / step.peak;
    let below = of(0.8).map_or(f64::NAN, Step::in_time) * 100.0;
    report.holds("in time at 80 % of capacity ≥ 99.9 %", format!("{below:.3} %"), below >= 99.9);
    // The most that was answered in time at any rate, the closed loop's included, each beside what the machine did around it.
    let most = steps.iter().map(goodput).fold(1.0, f64::max);
    let above = of(5.0).map_or(f64::NAN, goodput) / most * 100.0;
    report.holds("goodput at 5 times capacity ≥ 90 % of peak", format!("{above:.1} %"), above >= 90.0);
    report.tables.push(table);
    let data = steps.iter().map(|step| json!({"share": step.share, "peak": step.peak, "outcomes": step.outcomes}));
    report.data["deadline"] = data.collect();
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
