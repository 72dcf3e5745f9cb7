//! CPU of the page with the recorder, with traces, and while somebody looks at the dashboard.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::json;

use super::collector::Collector;
use crate::interleaved::{Cost, SETTLE, run_interleaved};
use crate::load::{self, Plan, Session};
use crate::process::{self, Server};
use crate::report::{Report, Table, median};
use crate::workload::{self, Workload};
use crate::{Failure, Options, servers};

const CONNECTIONS: usize = 64;
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks at the dashboard.
const LOOK: Duration = Duration::from_secs(1);
/// Largest page of the dashboard.
const MOST_PAGE: usize = 200_000;

const OFF: &str = "\n[recorder]\nrequests = 0\nfull_rate = 0\n";

/// A server, and what its configuration has besides that of `cost`.
struct Variant {
    name: &'static str,
    server: Server,
    admin: SocketAddr,
    /// The variant that it is compared with, and the most that it may cost.
    bar: Option<(&'static str, f64)>,
}

/// Measures all variants in turns.
pub fn run(options: &Options, before: Option<&Path>, report: &mut Report) -> Result<(), Failure> {
    let stub = servers::stub()?;
    let collector = Collector::start()?;
    let traces =
        format!("\n[tracing]\nsample = 0.01\n[otlp]\nendpoint = \"http://{}\"\nprotocol = \"http\"\n", collector.addr);
    let mut all = vec![
        start(&stub, "off", OFF, None, None)?,
        start(&stub, "off, once more", OFF, None, None)?,
        start(&stub, "recorder", "", None, Some(("off", 1.02)))?,
        start(&stub, "recorder, 1 % of traces", &traces, None, Some(("recorder", 1.03)))?,
        start(&stub, "recorder, dashboard", "", None, None)?,
    ];
    if let Some(program) = before {
        all.push(start(&stub, "before", "", Some(program), None)?);
    }
    let request = load::get(Workload::Page.target());
    let plan = |addr| Plan {
        addr,
        request: request.clone(),
        connections: CONNECTIONS,
        least_body: Workload::Page.least_body(),
    };
    for variant in &all {
        let verified = Workload::Page.verify(variant.server.addr, &request, workload::bare);
        verified.map_err(|why| Failure::Wrong(format!("{}: {why}", variant.name)))?;
        let mut session = Session::connect(plan(variant.server.addr))?;
        session.window(SETTLE, Duration::from_secs(if options.quick { 1 } else { 3 }), || {})?;
    }
    let looks = all.iter().find(|one| one.name == "recorder, dashboard").map(|one| Looks::at(one.admin));
    let servers: Vec<(&Server, Plan)> = all.iter().map(|one| (&one.server, plan(one.server.addr))).collect();
    let pairs = if options.quick { 3 } else { 25 };
    let mut costs: Vec<Vec<Cost>> = all.iter().map(|_| Vec::new()).collect();
    for pair in 0..pairs {
        let turn =
            run_interleaved(&servers, if options.quick { 1 } else { 2 }, pair % 2 == 1, Duration::from_millis(10))?;
        costs.iter_mut().zip(turn).for_each(|(list, cost)| list.push(cost));
        eprintln!("see: pair {} of {pairs}", pair + 1);
    }
    tell(&all, &costs, report);
    report.holds("exports of spans were taken", collector.taken().to_string(), collector.taken() > 0);
    if let Some(looks) = looks {
        let (seen, page) = looks.end()?;
        report.holds("the dashboard was looked at once a second", format!("{seen} times"), seen >= 3);
        report.at_most("page of the dashboard", page as f64 / 1000.0, MOST_PAGE as f64 / 1000.0, " KB");
        report.data["dashboard_bytes"] = json!(page);
    }
    Ok(())
}

fn start(
    stub: &Server,
    name: &'static str,
    more: &str,
    program: Option<&Path>,
    bar: Option<(&'static str, f64)>,
) -> Result<Variant, Failure> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("flows");
    let dir = tempfile::tempdir()?;
    let text = std::fs::read_to_string(source.join("fanin.toml"))?.replace("[server]\n", "[server]\nreload = false\n");
    std::fs::write(dir.path().join("fanin.toml"), text + more)?;
    std::fs::copy(source.join("flows.star"), dir.path().join("flows.star"))?;
    let (listen, admin) = (process::free_port()?, process::free_port()?);
    let mut command = servers::fanin_command_of(program, dir.path())?;
    command
        .env("FANIN_BENCH_LISTEN", listen.to_string())
        .env("FANIN_BENCH_ADMIN", admin.to_string())
        .env("FANIN_BENCH_BACKEND", stub.addr.to_string())
        // Whoever is refused comes back at once, which is not what is measured here.
        .env("FANIN_BENCH_QUEUEING", "1s");
    let server = Server::command(name, listen, command, PATIENCE)?;
    Ok(Variant { name, server, admin, bar })
}

fn tell(all: &[Variant], costs: &[Vec<Cost>], report: &mut Report) {
    let at = |name: &str| all.iter().position(|one| one.name == name).unwrap_or_default();
    let cpu =
        |one: usize, other: usize| median(costs[one].iter().zip(&costs[other]).map(|(one, other)| one.cpu / other.cpu));
    let header = ["page with", "CPU us", "CPU to off", "req/s", "p99 ms", "peak MB", "errors"];
    let mut table = Table::new("CPU of a page, medians over the pairs", &header);
    let mut errors = 0;
    for (variant, own) in all.iter().zip(costs) {
        let of = |figure: fn(&Cost) -> f64| median(own.iter().map(figure));
        let wrong: u64 = own.iter().map(|cost| cost.figures.errors).sum();
        errors += wrong;
        table.rows.push(vec![
            variant.name.into(),
            format!("{:.1}", of(|cost| cost.cpu)),
            format!("{:.4}", cpu(at(variant.name), at("off"))),
            format!("{:.0}", of(|cost| cost.figures.rate)),
            format!("{:.2}", of(|cost| cost.figures.p99)),
            format!("{:.1}", of(|cost| cost.peak as f64) / 1e6),
            wrong.to_string(),
        ]);
    }
    report.tables.push(table);
    let noise = (cpu(at("off, once more"), at("off")) - 1.0).abs() * 100.0;
    for variant in all {
        if let Some((to, most)) = variant.bar {
            let bar = format!("CPU with {}, to {to} (noise {noise:.1} %)", variant.name);
            report.at_most(&bar, cpu(at(variant.name), at(to)), most, "");
        }
    }
    let rate = |one: usize, other: usize| {
        median(costs[one].iter().zip(&costs[other]).map(|(one, other)| one.figures.rate / other.figures.rate))
    };
    let lost = (1.0 - rate(at("recorder, dashboard"), at("recorder"))) * 100.0;
    report.at_most("throughput lost to a dashboard that is looked at once a second", lost, 1.0, " %");
    if all.iter().any(|one| one.name == "before") {
        report.at_most("CPU with nothing on, to the build from before", cpu(at("off"), at("before")), 1.01, "");
    }
    report.holds("no wrong answer", format!("{errors} wrong"), errors == 0);
    let data = all.iter().zip(costs).map(|(variant, own)| json!({"page": variant.name, "pairs": own}));
    report.data["page"] = data.collect();
}

/// Looks at a dashboard once a second, as its page does.
struct Looks {
    admin: SocketAddr,
    ended: Arc<AtomicBool>,
    seen: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

impl Looks {
    fn at(admin: SocketAddr) -> Looks {
        let (ended, seen) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let (end, count) = (ended.clone(), seen.clone());
        let thread = thread::spawn(move || {
            while !end.load(Relaxed) {
                let begun = Instant::now();
                if matches!(load::once(admin, &admin_page("/dashboard/data?window=60"), PATIENCE), Ok((200, _))) {
                    count.fetch_add(1, Relaxed);
                }
                process::pause(LOOK.saturating_sub(begun.elapsed()));
            }
        });
        Looks { admin, ended, seen, thread }
    }

    /// How often it has looked, and the size of the page.
    fn end(self) -> Result<(u64, usize), Failure> {
        self.ended.store(true, Relaxed);
        self.thread.join().map_err(|_| Failure::Wrong("the looks panicked".into()))?;
        let (status, page) = load::once(self.admin, &admin_page("/dashboard"), PATIENCE)?;
        match status {
            200 => Ok((self.seen.load(Relaxed), page.len())),
            _ => Err(Failure::Wrong(format!("status {status} of the dashboard"))),
        }
    }
}

/// A request for an admin page, which answers only under a name of its own.
fn admin_page(target: &str) -> Vec<u8> {
    format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n").into_bytes()
}
