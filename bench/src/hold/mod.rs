//! `hold`: hostile clients attack in eighteen ways, each for some seconds, beside a steady load of ordinary requests. How many of those
//! fail, how much later do they come, how much memory does the server take, and does it give that back?

mod attacks;
mod client;
mod frames;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use fanin_load::{Arrivals, Outcome, Plan, Protocol, Request, Shape};
use serde_json::json;
use tokio::runtime::Runtime;

use crate::process::{self, OTHER_CORE, Server};
use crate::report::{Report, Table};
use crate::{Failure, Options, servers};
use attacks::{Attack, Port};
use client::Progress;

/// Ordinary requests a second.
const RATE: f64 = 200.0;
const MOST_RISE_MS: f64 = 10.0;
/// `memory` of `bench/hold/fanin.toml`.
const BUDGET_MB: f64 = 1024.0 * 1.048_576;
const MOST_GROWTH: f64 = 1.1;
/// How long the server has to give memory back.
const SETTLES: Duration = Duration::from_secs(30);

/// Runs the benchmark with all attacks, or only those.
pub fn run(options: &Options, only: &[String]) -> Result<Report, Failure> {
    let attacks = attacks::all(options.quick);
    if let Some(unknown) = only.iter().find(|name| attacks.iter().all(|attack| attack.name != name.as_str())) {
        let names: Vec<_> = attacks.iter().map(|attack| attack.name).collect();
        return Err(Failure::Usage(format!("there is no attack {unknown}; there are {}", names.join(", "))));
    }
    process::pin(OTHER_CORE)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let stub = servers::stub()?;
    let lasts = Duration::from_secs(if options.quick { 4 } else { 10 });
    let mut report = Report::new("hold");
    let header =
        ["attack", "connections", "ended", "sent", "failed", "p99 ms", "idle p99 ms", "peak MB", "base MB", "after MB"];
    let mut table =
        Table::new(&format!("{RATE} ordinary requests/s beside an attack of {} s", lasts.as_secs()), &header);
    let mut data = serde_json::Map::new();
    for attack in attacks.into_iter().filter(|attack| only.is_empty() || only.iter().any(|name| name == attack.name)) {
        // Each attack meets a server that none has attacked before, so that its memory is its own doing.
        let held = hold(&runtime, &stub, &attack, lasts)?;
        let (name, beside, idle) = (attack.name, &held.beside, held.idle.latency.p99);
        let failed = beside.offered - beside.good;
        report.holds(&format!("{name}: ordinary requests that fail"), failed.to_string(), failed == 0);
        report.at_most(&format!("{name}: their p99 rises by"), beside.latency.p99 - idle, MOST_RISE_MS, " ms");
        report.at_most(&format!("{name}: peak memory"), held.peak, BUDGET_MB, " MB");
        report.at_most(
            &format!("{name}: memory within 30 s after, of that before"),
            held.after / held.base,
            MOST_GROWTH,
            "",
        );
        let counts = [&held.progress.connected, &held.progress.ended, &held.progress.sent];
        let counts = counts.map(|count| count.load(Ordering::Relaxed).to_string());
        let figures = [beside.latency.p99, idle, held.peak, held.base, held.after].map(|figure| format!("{figure:.1}"));
        table.rows.push([name.into()].into_iter().chain(counts).chain([failed.to_string()]).chain(figures).collect());
        data.insert(
            name.into(),
            json!({"beside": beside, "idle": held.idle, "peak": held.peak, "base": held.base, "after": held.after}),
        );
    }
    report.tables.push(table);
    report.data = data.into();
    Ok(report)
}

/// What one attack did. Memory in megabytes.
struct Held {
    idle: Outcome,
    beside: Outcome,
    progress: Arc<Progress>,
    base: f64,
    peak: f64,
    after: f64,
}

fn hold(runtime: &Runtime, stub: &Server, attack: &Attack, lasts: Duration) -> Result<Held, Failure> {
    let target = start(stub, attack.port == Port::Tls)?;
    let load = |lasts, protocol| -> Result<Outcome, Failure> {
        let scheme = if attack.port == Port::Tls { "https" } else { "http" };
        let mut plan =
            Plan::new(Request::get(&format!("{scheme}://{}/raw", target.fanin.addr))?, Shape::constant(RATE, lasts));
        plan.arrivals = Arrivals::Poisson { seed: 7 };
        plan.protocol = protocol;
        plan.trust = fanin_load::Trust::Anything;
        Ok(runtime.block_on(fanin_load::run(&plan, |_| ()))?)
    };
    // Ordinary clients speak both. What a protocol's code takes is no growth.
    for protocol in [Protocol::Http2, Protocol::Http1] {
        load(Duration::from_secs(1), protocol)?;
    }
    let idle = load(lasts, Protocol::Http1)?;
    let base = megabytes(target.fanin.usage()?.rss);
    let progress = Arc::new(Progress::default());
    let attacker = client::spawn(attack.clone(), target.addr(attack.port), progress.clone());
    // Until the attack is on.
    process::pause(Duration::from_secs(1));
    let beside = load(lasts, Protocol::Http1)?;
    progress.stop();
    attacker.join().map_err(|_| Failure::Wrong(format!("{}: the attacker panicked", attack.name)))??;
    let end = Instant::now() + SETTLES;
    let mut after = megabytes(target.fanin.usage()?.rss);
    while after > base * MOST_GROWTH && Instant::now() < end {
        process::pause(Duration::from_secs(1));
        after = megabytes(target.fanin.usage()?.rss);
    }
    let back = load(Duration::from_secs(1), Protocol::Http1)?;
    if back.good < back.offered {
        return Err(Failure::Wrong(format!("{}: {} requests fail after it", attack.name, back.offered - back.good)));
    }
    let peak = megabytes(target.fanin.usage()?.peak);
    Ok(Held { idle, beside, progress, base, peak, after })
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

/// A server and its ports.
struct Target {
    fanin: Server,
    admin: SocketAddr,
    models: SocketAddr,
    /// Its certificate, as long as it runs.
    _files: Option<tempfile::TempDir>,
}

impl Target {
    fn addr(&self, port: Port) -> SocketAddr {
        match port {
            Port::Main | Port::Tls => self.fanin.addr,
            Port::Admin => self.admin,
            Port::Models => self.models,
        }
    }
}

fn start(stub: &Server, tls: bool) -> Result<Target, Failure> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("hold");
    let (listen, admin, models) = (process::free_port()?, process::free_port()?, process::free_port()?);
    let files = if tls { Some(with_certificate(&source)?) } else { None };
    let mut command = servers::fanin_command(files.as_ref().map_or(&source, |files| files.path()))?;
    command.env("FANIN_BENCH_LISTEN", listen.to_string()).env("FANIN_BENCH_ADMIN", admin.to_string());
    command.env("FANIN_BENCH_MODELS", models.to_string()).env("FANIN_BENCH_BACKEND", stub.addr.to_string());
    // With TLS there are no models.
    let also = if tls { vec![admin] } else { vec![admin, models] };
    let fanin = Server::command_with("fanin", listen, &also, command, Duration::from_secs(10))?;
    Ok(Target { fanin, admin, models, _files: files })
}

/// A copy of the configuration with a certificate, without models.
fn with_certificate(source: &Path) -> Result<tempfile::TempDir, Failure> {
    let folder = tempfile::tempdir()?;
    let made = rcgen::generate_simple_self_signed(["localhost".into(), "127.0.0.1".into()]);
    let made = made.map_err(|error| Failure::Wrong(format!("a certificate: {error}")))?;
    std::fs::write(folder.path().join("cert.pem"), made.cert.pem())?;
    std::fs::write(folder.path().join("key.pem"), made.signing_key.serialize_pem())?;
    std::fs::copy(source.join("flows.star"), folder.path().join("flows.star"))?;
    let text = std::fs::read_to_string(source.join("fanin.toml"))?;
    let (before, after) = text.split_once("[models]").unwrap_or((&text, ""));
    let after = after.split_once("[upstreams").map_or("", |(_, after)| after);
    let text = format!("{before}[server.tls]\ncert = \"cert.pem\"\nkey = \"key.pem\"\n\n[upstreams{after}");
    std::fs::write(folder.path().join("fanin.toml"), text)?;
    Ok(folder)
}
