//! `cost --sweep`: how the cost grows with the number of calls, the size of bodies, decoded items, and requests in flight.

use std::time::{Duration, Instant};

use serde::Serialize;

use crate::interleaved::{Cost, run_interleaved};
use crate::load::streams::Streams;
use crate::load::{self, Plan};
use crate::process::{self, OTHER_CORE, Server};
use crate::report::{Report, Table};
use crate::{Failure, Options, servers};

const MILLI: Duration = Duration::from_millis(1);

/// Thousands that come at once wait for their worker, and here that is what is wanted: clients of a closed load that were
/// refused would ask again at once, and only refusals would be measured.
const NO_SHEDDING: [(&str, &str); 1] = [("FANIN_BENCH_QUEUEING", "off")];

/// A point of the sweep, and what both servers needed there.
#[derive(Debug, Serialize)]
struct Point {
    axis: &'static str,
    value: usize,
    baseline: Option<Cost>,
    fanin: Cost,
}

/// Runs the sweep; it has no bars.
pub fn run(options: &Options) -> Result<Report, Failure> {
    process::pin(OTHER_CORE)?;
    let stub = servers::stub()?;
    let pair = (servers::baseline("baseline", &stub)?, servers::fanin_with("flows", &stub, None, &NO_SHEDDING)?);
    let rounds = if options.quick { 1 } else { 4 };
    let mut points = Vec::new();
    let mut both = |axis, value, target: String, connections, least, delay: Duration| {
        let plan =
            |server: &Server| Plan { addr: server.addr, request: load::get(&target), connections, least_body: least };
        let costs = run_interleaved(&[(&pair.0, plan(&pair.0)), (&pair.1, plan(&pair.1))], rounds, false, delay);
        let mut costs = costs.map_err(|failure| Failure::Wrong(format!("{target}: {failure}")))?.into_iter();
        let (Some(baseline), Some(fanin)) = (costs.next(), costs.next()) else { return Ok(()) };
        eprintln!("sweep: {axis} {value}");
        points.push(Point { axis, value, baseline: Some(baseline), fanin });
        Ok::<_, Failure>(())
    };
    for calls in [1, 2, 5, 10, 20, 50, 100] {
        both("calls of 1 KB", calls, format!("/fan/{calls}/1024/5000"), 64, calls * 1000, MILLI * 5)?;
    }
    for kb in [1, 4, 16, 64, 256, 1024] {
        both("KB of a body", kb, format!("/item/{}/1000", kb * 1024), 16, kb * 900, MILLI)?;
    }
    for items in [0, 1, 5, 10, 20] {
        both("decoded items of 20", items, format!("/look/{items}"), 64, 9_000, MILLI * 5)?;
    }
    for requests in [1, 8, 64, 512, 2048, 4096] {
        // About 5,000 requests a second, so that it is the requests in flight that grow and not the load.
        let micros = (requests * 200).max(5_000);
        both(
            "in flight, HTTP/1.1",
            requests,
            format!("/item/1024/{micros}"),
            requests,
            1000,
            Duration::from_micros(micros as u64),
        )?;
    }
    drop(pair);
    let silent = servers::stub2()?;
    for requests in [64, 1_000, 10_000, 20_000, 50_000] {
        // A new server each time: its peak is that of the point.
        let fanin = servers::fanin("inflight", &stub, Some(&silent))?;
        let cost = streams(&fanin, requests, options.quick)?;
        eprintln!("sweep: in flight, HTTP/2 {requests}");
        points.push(Point { axis: "in flight, HTTP/2", value: requests, baseline: None, fanin: cost });
    }
    Ok(report(&points))
}

fn streams(fanin: &Server, requests: usize, quick: bool) -> Result<Cost, Failure> {
    let micros = (requests * 200).max(5_000);
    let delay = Duration::from_micros(micros as u64);
    let time = delay * 2 + Duration::from_secs(if quick { 1 } else { 4 });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let streams = Streams::connect(fanin.addr, &format!("/wait/{micros}"), requests).await?;
        let (before, start) = (fanin.usage()?, Instant::now());
        let (mut latencies, errors) = streams.keep(requests, time).await;
        let (after, seconds) = (fanin.usage()?, start.elapsed().as_secs_f64());
        latencies.sort_unstable();
        let at = |share: f64| {
            let index = (latencies.len() as f64 * share) as usize;
            latencies.get(index).map_or(f64::NAN, |latency| latency.as_secs_f64() * 1e3)
        };
        let count = latencies.len() as u64;
        let figures = load::Figures {
            requests: count,
            errors,
            rate: count as f64 / seconds,
            p50: at(0.5),
            p99: at(0.99),
            max: latencies.last().map_or(f64::NAN, |latency| latency.as_secs_f64() * 1e3),
        };
        let cpu = after.cpu.saturating_sub(before.cpu).as_secs_f64() * 1e6 / count as f64;
        Ok(Cost { cpu, figures, peak: after.peak, threads: after.threads })
    })
}

fn report(points: &[Point]) -> Report {
    let mut report = Report::new("sweep");
    let header = [
        "axis",
        "value",
        "baseline us",
        "fanin us",
        "ratio",
        "baseline p50",
        "fanin p50",
        "fanin p99",
        "req/s",
        "fanin peak MB",
        "errors",
    ];
    let mut table = Table::new("CPU microseconds a request, latencies in ms", &header);
    for Point { axis, value, baseline, fanin } in points {
        let of_baseline = |figure: &dyn Fn(&Cost) -> String| baseline.as_ref().map_or("-".into(), figure);
        table.rows.push(vec![
            (*axis).into(),
            value.to_string(),
            of_baseline(&|cost| format!("{:.1}", cost.cpu)),
            format!("{:.1}", fanin.cpu),
            of_baseline(&|cost| format!("{:.2}", fanin.cpu / cost.cpu)),
            of_baseline(&|cost| format!("{:.2}", cost.figures.p50)),
            format!("{:.2}", fanin.figures.p50),
            format!("{:.2}", fanin.figures.p99),
            format!("{:.0}", fanin.figures.rate),
            format!("{:.1}", fanin.peak as f64 / 1e6),
            fanin.figures.errors.to_string(),
        ]);
    }
    report.tables.push(table);
    report.data = serde_json::to_value(points).unwrap_or_default();
    report
}
