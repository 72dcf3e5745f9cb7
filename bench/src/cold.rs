//! `cold`: 256 clients arrive at once at a server that has served nobody, and that has no connection to its upstream.
//!
//! What must not happen is a storm: thousands of connections opened before the first is free again, and a stall meanwhile.

use std::time::Duration;

use serde_json::json;

use crate::load::{self, Plan};
use crate::process::{self, OTHER_CORE};
use crate::report::{Report, Table, median};
use crate::workload::Workload;
use crate::{Failure, Options, servers};

const CLIENTS: usize = 256;
/// A call's upstream has at most this many connections by default.
const MOST_CONNECTIONS: u64 = 256;

/// Runs the benchmark.
pub fn run(options: &Options) -> Result<Report, Failure> {
    process::pin(OTHER_CORE)?;
    let mut report = Report::new("cold");
    let mut table = Table::new(
        "256 clients at once, each one request on a new connection; medians over the starts",
        &["work", "cold p50 ms", "cold p99 ms", "warm p50 ms", "warm p99 ms", "upstream connections"],
    );
    let (starts, bursts) = if options.quick { (3, 5) } else { (9, 20) };
    for work in [Workload::Page, Workload::Raw] {
        let mut measured = Vec::new();
        for _ in 0..starts {
            measured.push(start(work, bursts)?);
        }
        let of = |figure: fn(&Start) -> f64| median(measured.iter().map(figure));
        let opened = measured.iter().map(|start| start.opened).max().unwrap_or_default();
        table.rows.push(vec![
            work.name().into(),
            format!("{:.1}", of(|s| s.cold.0)),
            format!("{:.1}", of(|s| s.cold.1)),
            format!("{:.1}", of(|s| s.warm.0)),
            format!("{:.1}", of(|s| s.warm.1)),
            opened.to_string(),
        ]);
        report.at_most(&format!("{}: cold p99 / warm p99", work.name()), of(|s| s.cold.1 / s.warm.1), 5.0, "");
        let bar = format!("{}: connections opened to the upstream ≤ {MOST_CONNECTIONS}", work.name());
        report.holds(&bar, opened.to_string(), opened <= MOST_CONNECTIONS);
        let all: Vec<_> =
            measured.iter().map(|s| json!({"cold": s.cold, "warm": s.warm, "opened": s.opened})).collect();
        report.data[work.name()] = all.into();
    }
    report.tables.push(table);
    Ok(report)
}

/// One start of the server: p50 and p99 of its first burst and of the bursts after, ms.
struct Start {
    cold: (f64, f64),
    warm: (f64, f64),
    opened: u64,
}

fn start(work: Workload, bursts: usize) -> Result<Start, Failure> {
    let stub = servers::stub()?;
    let fanin = servers::fanin("cold", &stub, None)?;
    let plan = Plan {
        addr: fanin.addr,
        request: load::get(work.target()),
        connections: CLIENTS,
        least_body: work.least_body(),
    };
    let cold = load::burst(&plan)?;
    // The stub's counters are read over a connection too.
    let opened = servers::counter(stub.addr, "accepted")?.saturating_sub(1);
    let mut warm = Vec::new();
    for _ in 0..bursts {
        warm.extend(load::burst(&plan)?);
        process::pause(Duration::from_millis(20));
    }
    Ok(Start { cold: percentiles(cold), warm: percentiles(warm), opened })
}

fn percentiles(mut latencies: Vec<Duration>) -> (f64, f64) {
    latencies.sort_unstable();
    let at = |share: f64| {
        let index = ((latencies.len() as f64 * share).ceil() as usize).clamp(1, latencies.len()) - 1;
        latencies[index].as_secs_f64() * 1e3
    };
    (at(0.5), at(0.99))
}
