//! `inflight`: 20,000 requests hang on an upstream that never answers. What do they cost, and does anybody else notice?

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::load::streams::Streams;
use crate::load::{self};
use crate::process::{self, OTHER_CORE, Server, Usage};
use crate::report::{Report, Table};
use crate::workload::{Workload, bare};
use crate::{Failure, Options, servers};

const MOST_BYTES_EACH: f64 = 48.0;
/// Of a suspended flow, without what the client keeps of its call: that is of the upstream's side.
const MOST_BYTES_FLOW: f64 = 1536.0;
const MOST_OTHER_MS: f64 = 50.0;
/// Requests to the route that works, one after another.
const PROBES: usize = 100;

/// Runs the benchmark.
pub fn run(options: &Options) -> Result<Report, Failure> {
    process::pin(OTHER_CORE)?;
    let requests = if options.quick { 5_000 } else { 20_000 };
    let (stub, silent) = (servers::stub()?, servers::stub2()?);
    let fanin = servers::fanin("inflight", &stub, Some(&silent))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // Both routes once, so that what the first request needs is not counted as the price of those that hang.
    Workload::Raw.verify(fanin.addr, &load::get("/raw"), bare).map_err(Failure::Wrong)?;
    let (rest, full, worst) = runtime.block_on(measure(&fanin, &silent, requests))?;

    let [flow, with_call] = [&["--alone"][..], &[]].map(|how| {
        suspended(requests, how).unwrap_or_else(|failure| {
            eprintln!("inflight: no figure of the suspended flow: {failure}");
            // Fails its own bar and no other.
            f64::NAN
        })
    });

    let each = (full.rss.saturating_sub(rest.rss)) as f64 / requests as f64 / 1024.0;
    let mut report = Report::new("inflight");
    let header = ["", "resident MB", "threads"];
    let mut table = Table::new(&format!("{requests} requests on an upstream that never answers"), &header);
    for (name, usage) in [("at rest", &rest), ("in flight", &full)] {
        table.rows.push(vec![name.into(), format!("{:.1}", usage.rss as f64 / 1e6), usage.threads.to_string()]);
    }
    report.tables.push(table);
    report.at_most("memory of a request in flight", each, MOST_BYTES_EACH, " KB");
    let bar = format!("of it the suspended flow ({with_call:.0} bytes with its call in the client)");
    report.at_most(&bar, flow, MOST_BYTES_FLOW, " bytes");
    let threads = format!("{} and {}", rest.threads, full.threads);
    report.holds("as many threads as at rest", threads, rest.threads == full.threads);
    report.at_most(
        &format!("slowest of {PROBES} requests to another route"),
        worst.as_secs_f64() * 1e3,
        MOST_OTHER_MS,
        " ms",
    );
    report.data = json!({
        "requests": requests, "rest_bytes": rest.rss, "full_bytes": full.rss, "peak_bytes": full.peak,
        "threads": full.threads, "kb_each": each, "flow_bytes": flow, "flow_and_call_bytes": with_call,
        "other_worst_ms": worst.as_secs_f64() * 1e3,
    });
    Ok(report)
}

/// Bytes of a suspended flow, measured in a process that has nothing else.
fn suspended(count: usize, how: &[&str]) -> Result<f64, Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    let output = command.arg("suspended").arg(count.to_string()).args(how).output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let why =
        || Failure::Wrong(format!("suspended: {}{}", said.trim(), String::from_utf8_lossy(&output.stderr).trim()));
    said.trim().parse().map_err(|_| why())
}

/// The server at rest, the server with all requests hanging, and the slowest request to the route that works meanwhile.
async fn measure(fanin: &Server, silent: &Server, requests: usize) -> Result<(Usage, Usage, Duration), Failure> {
    let rest = fanin.usage()?;
    let streams = Streams::connect(fanin.addr, "/never", requests).await?;
    let mut hanging = streams.send(requests);
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let open = off_thread(silent.addr, |addr| servers::counter(addr, "open")).await?;
        if open >= requests as u64 {
            break;
        }
        if let Some(ended) = hanging.try_join_next() {
            return Err(Failure::Wrong(format!("a request that was to hang ended: {ended:?}")));
        }
        if Instant::now() > end {
            return Err(Failure::Wrong(format!("only {open} of {requests} requests reached the upstream")));
        }
    }
    let mut worst = Duration::ZERO;
    for _ in 0..PROBES {
        let took = off_thread(fanin.addr, |addr| {
            let start = Instant::now();
            Workload::Raw.verify(addr, &load::get("/raw"), bare).map_err(Failure::Wrong)?;
            Ok(start.elapsed())
        });
        worst = worst.max(took.await?);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok((rest, fanin.usage()?, worst))
}

/// Asks in the blocking way while this thread goes on serving its connections.
async fn off_thread<T: Send + 'static>(
    addr: std::net::SocketAddr,
    ask: impl FnOnce(std::net::SocketAddr) -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let asked = tokio::task::spawn_blocking(move || ask(addr)).await;
    asked.map_err(|error| Failure::Wrong(error.to_string()))?
}
