//! `shop`: a retailer's page in the five ways of `examples/shop`, on the same backends in one run.
//!
//! What each costs the backends (calls a request), Fanin (CPU time) and the client (latency), with recommendations that are
//! healthy, ten times as slow, or silent; and how soon the backends have answered what the page cannot do without.

mod lines;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fanin_load::{Outcome, Plan, Request, Shape};
use serde_json::{Value, json};

use crate::process::{self, OTHER_CORE, Server};
use crate::report::{Report, Table, median};
use crate::{Failure, Options, load, servers};

/// Name, route and flow of each way.
const WAYS: [(&str, &str, &str); 5] = [
    ("sequence", "/ways/sequence", "sequence"),
    ("parallel", "/ways/parallel", "parallel"),
    ("variant 1", "/ways/variant1", "variant1"),
    ("variant 2", "/ways/variant2", "variant2"),
    ("merged", "/products", "product_page"),
];
const MODES: [&str; 3] = ["healthy", "slow", "hanging"];
const BODY: &str = r#"{"products":["p101","p117","p230"],"mask":"product_detail_page_attributes","recommendation_mask":"name_and_photo_only"}"#;
/// At this rate latency and cost are taken: every way holds it on one core.
const RATE: f64 = 200.0;
const TARGET_MS: f64 = 60.0;
/// What `examples/shop` lets a call wait for a partner, and what a timer of a millisecond may add.
const LINGER_MS: f64 = 15.0 + 2.0;

#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    calls: f64,
    cpu: f64,
    p50: f64,
    p95: f64,
    p99: f64,
    critical: f64,
    rps: f64,
    errors: u64,
}

/// Runs the benchmark.
pub fn run(options: &Options, only: &[String]) -> Result<Report, Failure> {
    if let Some(unknown) = only.iter().find(|mode| !MODES.contains(&mode.as_str())) {
        return Err(Failure::Usage(format!("recommendations cannot be `{unknown}`")));
    }
    process::pin(OTHER_CORE)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let code = lines::Code::read(&example().join("flows"))?;
    let lines = WAYS.map(|(_, _, flow)| code.lines(flow));
    let header =
        ["recommendations", "way", "lines", "calls", "CPU s/1000", "p50 ms", "p95 ms", "p99 ms", "critical ms", "rps"];
    let mut table = Table::new(
        &format!("One page: latency and CPU at {RATE} requests/s, the highest rate with p95 up to {TARGET_MS} ms"),
        &header,
    );
    let mut report = Report::new("shop");
    for mode in MODES.iter().filter(|mode| only.is_empty() || only.iter().any(|one| one == *mode)) {
        let stub = servers::stub()?;
        let fanin = start(&stub, mode, str::to_owned)?;
        let mut cells = Vec::new();
        verify(&fanin, mode)?;
        for ((name, target, _), lines) in WAYS.into_iter().zip(lines) {
            let cell = measure(options, &runtime, &stub, &fanin, target)?;
            let mut row = vec![(*mode).to_owned(), name.to_owned(), lines.to_string(), format!("{:.2}", cell.calls)];
            row.push(format!("{:.3}", cell.cpu));
            row.extend([cell.p50, cell.p95, cell.p99, cell.critical].map(|ms| format!("{ms:.1}")));
            row.push(format!("{:.0}", cell.rps));
            table.rows.push(row);
            report.data[*mode][name] = json!({
                "lines": lines, "calls": cell.calls, "cpu_s_per_1000": cell.cpu, "p50_ms": cell.p50, "p95_ms": cell.p95,
                "p99_ms": cell.p99, "critical_ms": cell.critical, "rps": cell.rps, "errors": cell.errors,
            });
            cells.push(cell);
        }
        bars(&mut report, mode, &cells);
    }
    let others = lines[..4].iter().min().copied().unwrap_or_default();
    let figure = format!("{} against {others} or more", lines[4]);
    report.holds("merged is the shortest code, in lines", figure, lines[4] < others);
    report.tables.push(table);
    Ok(report)
}

fn bars(report: &mut Report, mode: &str, cells: &[Cell]) {
    let [_, _, variant1, variant2, merged] = cells else { return };
    let errors: u64 = cells.iter().map(|cell| cell.errors).sum();
    report.holds(&format!("{mode}: no error at {RATE} requests/s"), errors.to_string(), errors == 0);
    if mode == "healthy" {
        report.at_most("healthy: calls of merged over those of variant 2", merged.calls / variant2.calls, 1.02, "");
        let figure = format!("{:.0}", merged.rps);
        report.holds(
            "healthy: merged sustains over 2000 requests/s on one core, p95 ≤ 60 ms",
            figure,
            merged.rps > 2000.0,
        );
    } else {
        let later = merged.critical - variant1.critical;
        report.at_most(
            &format!("{mode}: merged's critical calls end later than variant 1's by"),
            later,
            LINGER_MS,
            " ms",
        );
    }
}

fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/shop")
}

/// Fanin with the shop's flows, in front of the stub whose recommendations have that mode. `edit` changes the configuration.
pub fn start(stub: &Server, mode: &str, edit: impl Fn(&str) -> String) -> Result<Server, Failure> {
    let source = example();
    let dir = std::env::temp_dir().join(format!("fanin-bench-{}-shop-{mode}", std::process::id()));
    let (listen, admin) = (process::free_port()?, process::free_port()?);
    for folder in ["flows", "web"] {
        std::fs::create_dir_all(dir.join(folder))?;
        for file in std::fs::read_dir(source.join(folder))? {
            let file = file?;
            std::fs::copy(file.path(), dir.join(folder).join(file.file_name()))?;
        }
    }
    // The example's own limit keeps its catalog to 64 calls in flight; here the question is what Fanin can do.
    let text = std::fs::read_to_string(source.join("fanin.toml"))?;
    let text = text.replace("limit = 64\nmax_waiting = 33\n", "");
    let server = format!(
        "[server]\nlisten = \"{listen}\"\nadmin = \"{admin}\"\nlog = \"error\"\nworkers = 1\nreload = false\nmax_connections = 4000\n"
    );
    std::fs::write(dir.join("fanin.toml"), edit(&format!("{server}\n{text}")))?;
    let mut command = servers::fanin_command(&dir)?;
    for owner in ["masks", "catalog", "prices", "stock", "reviews"] {
        command.env(format!("{}_URL", owner.to_uppercase()), format!("http://{}/shop/{owner}", stub.addr));
    }
    command.env("RECOMMENDATIONS_URL", format!("http://{}/shop/recommendations/{mode}", stub.addr));
    let started = Server::command("fanin", listen, command, Duration::from_secs(10))?;
    // Its files have been read.
    std::fs::remove_dir_all(&dir)?;
    Ok(started)
}

/// The request for a page, with further lines of its head.
pub fn post(target: &str, headers: &str) -> Vec<u8> {
    let length = BODY.len();
    let head = "Host: bench\r\nContent-Type: application/json";
    format!("POST {target} HTTP/1.1\r\n{head}\r\nContent-Length: {length}\r\n{headers}\r\n{BODY}").into_bytes()
}

/// Asks once; the answer's JSON.
pub fn ask(addr: std::net::SocketAddr, request: &[u8]) -> Result<Value, Failure> {
    let (status, body) = load::once(addr, request, Duration::from_secs(10))?;
    let value: Value = serde_json::from_slice(&body).unwrap_or_default();
    match status {
        200 => Ok(value),
        _ => Err(Failure::Wrong(format!("status {status}: {}", String::from_utf8_lossy(&body)))),
    }
}

/// All ways give the same page, and a whole one.
fn verify(fanin: &Server, mode: &str) -> Result<(), Failure> {
    let pages: Vec<Value> =
        WAYS.iter().map(|(_, target, _)| ask(fanin.addr, &post(target, ""))).collect::<Result<_, _>>()?;
    let whole = &pages[4];
    let length = |list: &str| whole[list].as_array().map_or(0, Vec::len);
    let recommended = if mode == "hanging" { (0, 0) } else { (6, 3) };
    if length("products") != 3 || mode != "slow" && (length("substitutes"), length("complements")) != recommended {
        return Err(Failure::Wrong(format!("not a whole page: {whole}")));
    }
    match WAYS.iter().zip(&pages).find(|(_, page)| mode != "slow" && *page != whole) {
        Some(((name, _, _), page)) => Err(Failure::Wrong(format!("{name} gives another page: {page}"))),
        None => Ok(()),
    }
}

fn measure(
    options: &Options,
    runtime: &tokio::runtime::Runtime,
    stub: &Server,
    fanin: &Server,
    target: &str,
) -> Result<Cell, Failure> {
    let mut cell = Cell::default();
    let mut critical = Vec::new();
    for _ in 0..if options.quick { 10 } else { 30 } {
        ask(stub.addr, &load::get("/shop/reset"))?;
        ask(fanin.addr, &post(target, ""))?;
        let seen = ask(stub.addr, &load::get("/shop/seen"))?;
        critical.push(seen["critical"].as_f64().unwrap_or(f64::NAN) / 1e3);
    }
    cell.critical = median(critical);
    let (short, long) = if options.quick { (2, 3) } else { (2, 5) };
    // Connections are made and the masks are there before anything counts.
    offer(runtime, fanin, target, RATE, Duration::from_secs(1))?;
    ask(stub.addr, &load::get("/shop/reset"))?;
    let before = fanin.usage()?.cpu;
    let outcome = offer(runtime, fanin, target, RATE, Duration::from_secs(long))?;
    let cpu = fanin.usage()?.cpu - before;
    let seen = ask(stub.addr, &load::get("/shop/seen"))?;
    let requests = outcome.offered as f64;
    cell.calls = seen["calls"].as_f64().unwrap_or(f64::NAN) / requests;
    cell.cpu = cpu.as_secs_f64() * 1000.0 / requests;
    (cell.p50, cell.p95, cell.p99) = (outcome.latency.p50, outcome.latency.p95, outcome.latency.p99);
    cell.errors = outcome.offered - outcome.good;
    // Where it does not hold at this rate it holds at none.
    if cell.p95 <= TARGET_MS {
        cell.rps = highest(runtime, fanin, target, Duration::from_secs(short))?;
    }
    Ok(cell)
}

/// The highest rate that is answered without an error and with p95 within the target, to 5 %.
fn highest(runtime: &tokio::runtime::Runtime, fanin: &Server, target: &str, window: Duration) -> Result<f64, Failure> {
    let holds_once = |rate: f64| -> Result<bool, Failure> {
        let outcome = offer(runtime, fanin, target, rate, window)?;
        // What has piled up is none of the next rate's business.
        process::pause(Duration::from_millis(300));
        Ok(outcome.good == outcome.offered && outcome.latency.p95 <= TARGET_MS)
    };
    // A rate that fails has a second chance: a pause of the machine must not decide, and it would for all higher rates.
    let holds = |rate: f64| -> Result<bool, Failure> { Ok(holds_once(rate)? || holds_once(rate)?) };
    let (mut low, mut high) = (0.0, 500.0);
    while holds(high)? {
        (low, high) = (high, high * 1.6);
        if high > 20_000.0 {
            break;
        }
    }
    while high - low > 0.05 * high && high > 50.0 {
        let middle = (low + high) / 2.0;
        match holds(middle)? {
            true => low = middle,
            false => high = middle,
        }
    }
    Ok(low)
}

fn offer(
    runtime: &tokio::runtime::Runtime,
    fanin: &Server,
    target: &str,
    rate: f64,
    time: Duration,
) -> Result<Outcome, Failure> {
    let broken = |error: fanin_load::LoadError| Failure::Wrong(error.to_string());
    let mut headers = http::HeaderMap::new();
    headers.insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    let request = Request::new(http::Method::POST, &format!("http://{}{target}", fanin.addr)).map_err(broken)?;
    let mut plan = Plan::new(request.with_headers(headers).with_body(BODY), Shape::constant(rate, time));
    plan.timeout = Duration::from_secs(2);
    let begun = Instant::now();
    let outcome = runtime.block_on(fanin_load::run(&plan, |_| {})).map_err(broken)?;
    if begun.elapsed() > time + Duration::from_secs(20) {
        return Err(Failure::Wrong("the load does not end".into()));
    }
    Ok(outcome)
}
