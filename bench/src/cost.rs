//! `cost`: what one request costs in CPU time, as a ratio to the baseline (and of peers), in interleaved windows.
//!
//! The server under test has core 0; the stub and the load share core 1. A *pair* is the same number of windows of the baseline
//! and of Fanin in turns, so that a noisy machine burdens both; the figure is the median of the pairs' ratios.

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use crate::interleaved::{Cost, SETTLE, run_interleaved};
use crate::load::{Plan, Session};
use crate::peers::{self, Peer};
use crate::process::{self, OTHER_CORE, Server};
use crate::report::{Report, Table, median};
use crate::workload::Workload;
use crate::{Failure, Options, servers};

const CONNECTIONS: usize = 64;
/// Fanin with every policy on.
const POLICIES: &str = "policies";
/// Another build of Fanin.
const BEFORE: &str = "before";
/// Clients of a closed load keep a slow machine's core busy for longer than `[server] queueing` allows by default, and whoever is
/// refused sends again at once: the cost of refusals would count as that of responses. The queue itself works as ever.
const QUEUEING: (&str, &str) = ("FANIN_BENCH_QUEUEING", "1s");

/// What to compare with the baseline.
#[derive(Clone, Debug)]
pub struct Plans {
    /// `fanin`, or `baseline` for the baseline against itself, which shows the noise.
    pub subject: String,
    /// Names of peers.
    pub peers: Vec<String>,
    /// Peers that are not installed are left out instead of an error.
    pub if_installed: bool,
    /// Works to do.
    pub workloads: Vec<Workload>,
    /// Another build of `fanin`, from before a change.
    pub before: Option<PathBuf>,
    /// Windows of each server and work; `None`: more than the seven that the bars ask for, since the machine has slow minutes.
    pub pairs: Option<usize>,
}

/// A server that takes part.
#[derive(Debug)]
struct Subject {
    server: Server,
    peer: Peer,
}

/// All windows of one server within a pair.
#[derive(Clone, Debug, Serialize)]
struct Window {
    pair: usize,
    work: Workload,
    server: String,
    #[serde(flatten)]
    cost: Cost,
}

/// Runs the benchmark.
pub fn run(options: &Options, plans: &Plans) -> Result<Report, Failure> {
    process::pin(OTHER_CORE)?;
    let pairs = plans.pairs.unwrap_or(if options.quick { 3 } else { 11 });
    let rounds = if options.quick { 1 } else { 2 };
    let stub = servers::stub()?;
    let mut subjects = vec![Subject { server: servers::baseline("baseline", &stub)?, peer: Peer::ours("baseline") }];
    subjects.push(match plans.subject.as_str() {
        "baseline" | "limit" => {
            Subject { server: servers::baseline("baseline again", &stub)?, peer: Peer::ours("baseline") }
        }
        "fanin" => {
            Subject { server: servers::fanin_with("flows", &stub, None, &[QUEUEING])?, peer: Peer::ours("fanin") }
        }
        other => return Err(Failure::Usage(format!("no subject `{other}`: fanin or baseline"))),
    });
    if let Some(program) = &plans.before {
        let server = servers::fanin_of(program, "flows", &stub, &[QUEUEING])?.named(BEFORE);
        subjects.push(Subject { server, peer: Peer::ours("fanin") });
    }
    let second;
    if plans.subject == "fanin" && plans.workloads.contains(&Workload::Page) {
        second = servers::stub()?;
        let server = servers::fanin_with("policies", &stub, Some(&second), &[QUEUEING])?.named(POLICIES);
        subjects.push(Subject { server, peer: Peer::page_of_ours(POLICIES) });
    }
    for name in &plans.peers {
        let started = peers::find(name, stub.addr).and_then(|peer| Ok(Subject { server: peer.start()?, peer }));
        match started {
            Ok(subject) => subjects.push(subject),
            Err(failure) if plans.if_installed => eprintln!("cost: without {name}: {failure}"),
            Err(failure) => return Err(failure),
        }
    }
    warm_up(&subjects, &plans.workloads, options.quick)?;
    let mut windows: Vec<Window> = Vec::new();
    for pair in 0..pairs {
        for &work in &plans.workloads {
            windows.extend(measure_pair(&subjects, pair, work, rounds)?);
        }
        eprintln!("cost: pair {} of {pairs}", pair + 1);
    }
    Ok(report(plans, &subjects, &windows))
}

/// No figure of a server that answers wrong is worth anything; none of a cold one is meant here.
fn warm_up(subjects: &[Subject], workloads: &[Workload], quick: bool) -> Result<(), Failure> {
    for subject in subjects {
        for &work in workloads.iter().filter(|work| subject.peer.does(**work)) {
            let request = subject.peer.request(work);
            let verified = work.verify(subject.server.addr, &request, subject.peer.wrap());
            verified.map_err(|why| Failure::Wrong(format!("{}: {why}", subject.server.name)))?;
            let warm = if quick { subject.peer.warm() / 4 } else { subject.peer.warm() };
            let mut session = Session::connect(plan(subject, work))?;
            session.window(SETTLE, warm, || {})?;
        }
    }
    Ok(())
}

fn plan(subject: &Subject, work: Workload) -> Plan {
    Plan {
        addr: subject.server.addr,
        request: subject.peer.request(work),
        connections: CONNECTIONS,
        least_body: work.least_body(),
    }
}

fn measure_pair(subjects: &[Subject], pair: usize, work: Workload, rounds: usize) -> Result<Vec<Window>, Failure> {
    let does: Vec<&Subject> = subjects.iter().filter(|subject| subject.peer.does(work)).collect();
    let plans: Vec<_> = does.iter().map(|subject| (&subject.server, plan(subject, work))).collect();
    let costs = run_interleaved(&plans, rounds, pair % 2 == 1, Duration::from_millis(10))?;
    let window = |(subject, cost): (&&Subject, Cost)| Window { pair, work, server: subject.server.name.clone(), cost };
    Ok(does.iter().zip(costs).map(window).collect())
}

fn report(plans: &Plans, subjects: &[Subject], windows: &[Window]) -> Report {
    let mut report = Report::new("cost");
    let header = [
        "work",
        "server",
        "CPU-s/1000",
        "of baseline",
        "least..most",
        "req/s",
        "p50 ms",
        "p99 ms",
        "peak MB",
        "threads",
        "errors",
    ];
    let mut table = Table::new("CPU seconds per 1000 requests; medians over the pairs", &header);
    for &work in &plans.workloads {
        for subject in subjects {
            let name = &subject.server.name;
            let own: Vec<&Window> = windows.iter().filter(|w| w.work == work && w.server == *name).collect();
            if own.is_empty() {
                continue;
            }
            let of = |figure: fn(&Window) -> f64| median(own.iter().map(|window| figure(window)));
            let ratios = ratios(windows, work, name);
            let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
            let most = ratios.iter().copied().fold(0.0, f64::max);
            let errors: u64 = own.iter().map(|window| window.cost.figures.errors).sum();
            table.rows.push(vec![
                work.name().into(),
                name.clone(),
                format!("{:.4}", of(|w| w.cost.cpu) / 1000.0),
                format!("{:.3}", median(ratios.iter().copied())),
                format!("{least:.3}..{most:.3}"),
                format!("{:.0}", of(|w| w.cost.figures.rate)),
                format!("{:.2}", of(|w| w.cost.figures.p50)),
                format!("{:.2}", of(|w| w.cost.figures.p99)),
                format!("{:.1}", of(|w| w.cost.peak as f64) / 1e6),
                format!("{:.0}", of(|w| w.cost.threads as f64)),
                errors.to_string(),
            ]);
            if name == POLICIES {
                let bar = format!("{}: CPU of fanin / of the baseline, all policies on", work.name());
                report.at_most(&bar, median(ratios), 1.25, "");
                let bar = format!("{}: no wrong response, all policies on", work.name());
                report.holds(&bar, format!("{errors} wrong"), errors == 0);
            } else if name == "fanin" {
                let most = if work == Workload::Raw { 1.3 } else { 1.2 };
                let bar = format!("{}: CPU of fanin / of the baseline", work.name());
                report.at_most(&bar, median(ratios), most, "");
                if plans.before.is_some() {
                    let bar = format!("{}: CPU of fanin / of the build before", work.name());
                    report.at_most(&bar, median(ratios_to(windows, work, name, BEFORE)), 1.01, "");
                }
                report.holds(&format!("{}: no wrong response", work.name()), format!("{errors} wrong"), errors == 0);
            }
        }
    }
    report.tables.push(table);
    report.data = serde_json::to_value(windows).unwrap_or_default();
    report
}

/// The ratio of each pair to the baseline.
fn ratios(windows: &[Window], work: Workload, name: &str) -> Vec<f64> {
    ratios_to(windows, work, name, "baseline")
}

fn ratios_to(windows: &[Window], work: Workload, name: &str, other: &str) -> Vec<f64> {
    let of = |server| {
        let own = windows.iter().filter(|window| window.work == work && window.server == server);
        own.map(|window| window.cost.cpu).collect::<Vec<f64>>()
    };
    of(name).iter().zip(of(other)).map(|(subject, other)| subject / other).collect()
}
