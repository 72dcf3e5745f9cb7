//! `progressive`: how soon after its slowest critical call the first part of a page comes, and what answering in parts adds to a plain
//! answer.
//!
//! Flows, configuration and backends are those of `shop`.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};

use crate::interleaved::run_interleaved;
use crate::load::{self, Plan};
use crate::process::{self, OTHER_CORE, Server, nanos};
use crate::report::{Report, Table, median};
use crate::{Failure, Options, servers, shop};

const TARGET: &str = "/products";
/// The first part comes so soon after the last critical call has ended.
const MOST_AFTER_MS: f64 = 5.0;
/// CPU of a plain answer of a progressive route, to that of the same route without.
const MOST_RATIO: f64 = 1.01;
const CONNECTIONS: usize = 64;
/// So many clients keep the core busy for longer than `queueing` allows by default, and whoever is refused comes back at once. No answer
/// may lack a part because the machine paused, either.
const PATIENT: [(&str, &str); 2] =
    [("[server]\n", "[server]\nqueueing = \"1s\"\n"), ("timeout = \"150ms\"", "timeout = \"2s\"")];
const PATIENCE: Duration = Duration::from_secs(10);

/// Runs the benchmark.
pub fn run(options: &Options) -> Result<Report, Failure> {
    process::pin(OTHER_CORE)?;
    let stub = servers::stub()?;
    let mut report = Report::new("progressive");
    report.data = json!({});
    first_part(options, &stub, &mut report)?;
    plain(options, &stub, &mut report)?;
    Ok(report)
}

/// Milliseconds from the end of the slowest critical call to the first part, for one request after another.
fn first_part(options: &Options, stub: &Server, report: &mut Report) -> Result<(), Failure> {
    // A breaker that opens would end the hanging calls at once.
    let section = "[upstreams.recommendations]\n";
    let fanin = shop::start(stub, "hanging", |text| text.replace(section, &format!("{section}breaker = \"off\"\n")))?;
    let requests = if options.quick { 30 } else { 300 };
    let mut stream = TcpStream::connect_timeout(&fanin.addr, PATIENCE)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let (mut after, mut products, mut whole) = (Vec::new(), Vec::new(), Vec::new());
    for request in 0..requests + 5 {
        shop::ask(stub.addr, &load::get("/shop/reset"))?;
        let parts = ask(&mut stream, fanin.addr)?;
        let seen = shop::ask(stub.addr, &load::get("/shop/seen"))?;
        let critical = seen["critical_at"].as_u64().ok_or_else(|| Failure::Wrong("no critical call".into()))?;
        // The first ones make connections.
        if request >= 5 {
            after.push((parts.first as f64 - critical as f64) / 1e6);
            products.push((parts.products as f64 - critical as f64) / 1e6);
            whole.push((parts.last - parts.first) as f64 / 1e6);
        }
    }
    let at = |times: &mut Vec<f64>| {
        times.sort_by(f64::total_cmp);
        [0.5, 0.99, 1.0].map(|share| times[((times.len() as f64 * share).ceil() as usize).saturating_sub(1)])
    };
    let (after_at, products_at, whole_at) = (at(&mut after), at(&mut products), at(&mut whole));
    let mut table = Table::new(
        &format!("A page in parts while recommendations hang, {requests} requests"),
        &["", "p50 ms", "p99 ms", "max ms"],
    );
    let row = |name: &str, figures: [f64; 3]| {
        let figures = figures.map(|ms| format!("{ms:.2}"));
        [name.to_owned()].into_iter().chain(figures).collect()
    };
    table.rows.push(row("first part after the slowest critical call", after_at));
    table.rows.push(row("all products after the slowest critical call", products_at));
    table.rows.push(row("last part after the first", whole_at));
    report.tables.push(table);
    report.at_most("first part after the slowest critical call, p50", after_at[0], MOST_AFTER_MS, " ms");
    report.data["first_part_ms"] = json!(after);
    Ok(())
}

/// When the parts came, by the monotonic clock.
struct Parts {
    first: u64,
    /// All products.
    products: u64,
    last: u64,
}

/// One page in parts.
fn ask(stream: &mut TcpStream, addr: SocketAddr) -> Result<Parts, Failure> {
    stream.write_all(&shop::post(TARGET, "Accept: application/jsonl\r\n"))?;
    let mut all = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    let (mut first, mut products) = (None, None);
    loop {
        let count = stream.read(&mut buffer)?;
        all.extend_from_slice(&buffer[..count]);
        // Each part is a line in a chunk of its own.
        if first.is_none() && memchr::memmem::find(&all, b"\n\r\n").is_some() {
            first = Some(nanos());
            check(&all)?;
        }
        if products.is_none() && memchr::memmem::find_iter(&all, b"\"price\":").count() >= 3 {
            products = Some(nanos());
        }
        if all.ends_with(b"\r\n0\r\n\r\n") {
            break;
        }
        if count == 0 || all.len() > 4 << 20 {
            return Err(Failure::Wrong(format!("{addr}: not a page in parts: {}", String::from_utf8_lossy(&all))));
        }
    }
    let done = memchr::memmem::find(&all, b"{\"done\":true").is_some();
    let parts = first.zip(products).filter(|_| done);
    let (first, products) = parts.ok_or_else(|| Failure::Wrong(format!("{addr}: the page is not whole")))?;
    Ok(Parts { first, products, last: nanos() })
}

/// The first part has a place for each product that was asked for, and no recommendations. A product also has its reviews, which are
/// optional, so it may come as a part of its own.
fn check(answer: &[u8]) -> Result<(), Failure> {
    let line = answer.split(|byte| *byte == b'\n').find(|line| line.starts_with(b"{\"body\":")).unwrap_or_default();
    let part: Value = serde_json::from_slice(line).unwrap_or_default();
    let products = part["body"]["products"].as_array().map_or(0, Vec::len);
    if products == 3 && part["body"]["substitutes"].is_null() {
        return Ok(());
    }
    Err(Failure::Wrong(format!("not the first part of a page: {}", String::from_utf8_lossy(answer))))
}

/// CPU of the plain answer with and without `progressive`, and twice without: the noise of the machine.
fn plain(options: &Options, stub: &Server, report: &mut Report) -> Result<(), Failure> {
    let patient = |text: &str| PATIENT.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to));
    let without = |text: &str| patient(text).replace("progressive = true", "progressive = false");
    let all = [
        ("progressive", shop::start(stub, "healthy", patient)?),
        ("not", shop::start(stub, "healthy", without)?),
        ("not, once more", shop::start(stub, "healthy", without)?),
    ];
    let request = shop::post(TARGET, "");
    let pages = all.iter().map(|(_, server)| whole(server.addr, &request)).collect::<Result<Vec<_>, _>>()?;
    let page = &pages[0];
    if pages.iter().any(|other| other != page) {
        return Err(Failure::Wrong("the servers give different pages".into()));
    }
    // A page that lacks a part is shorter.
    let plan = |addr| Plan { addr, request: request.clone(), connections: CONNECTIONS, least_body: page.len() };
    let servers: Vec<(&Server, Plan)> = all.iter().map(|(_, server)| (server, plan(server.addr))).collect();
    let pairs = if options.quick { 3 } else { 15 };
    let (mut cpu, mut errors) = (vec![Vec::new(); 3], 0);
    for pair in 0..pairs {
        let costs = run_interleaved(&servers, 2, pair % 2 == 1, Duration::from_millis(40))?;
        for (list, cost) in cpu.iter_mut().zip(&costs) {
            list.push(cost.cpu);
            errors += cost.figures.errors;
        }
    }
    let ratio = |at: usize| median(cpu[at].iter().zip(&cpu[1]).map(|(one, other)| one / other));
    let mut table = Table::new(
        &format!("CPU of the plain answer of one route, medians over {pairs} turns"),
        &["progressive", "CPU us", "to the second"],
    );
    for (at, (name, _)) in all.iter().enumerate() {
        let middle = median(cpu[at].iter().copied());
        table.rows.push(vec![(*name).into(), format!("{middle:.1}"), format!("{:.4}", ratio(at))]);
    }
    report.tables.push(table);
    let noise = (ratio(2) - 1.0).abs();
    let bar = format!("CPU of the plain answer, progressive to not (noise {:.1} %)", noise * 100.0);
    report.at_most(&bar, ratio(0), MOST_RATIO, "");
    report.holds("no wrong answer", errors.to_string(), errors == 0);
    report.data["plain_us"] = json!(cpu);
    Ok(())
}

/// The plain page, with all products, substitutes and complements.
fn whole(addr: SocketAddr, request: &[u8]) -> Result<Vec<u8>, Failure> {
    let (status, body) = load::once(addr, request, PATIENCE)?;
    let page: Value = serde_json::from_slice(&body).unwrap_or_default();
    let lengths = ["products", "substitutes", "complements"].map(|list| page[list].as_array().map_or(0, Vec::len));
    let rated = page["products"][2]["rating"].is_number();
    if status == 200 && lengths == [3, 6, 3] && rated {
        return Ok(body);
    }
    Err(Failure::Wrong(format!("status {status}, not a whole page: {}", String::from_utf8_lossy(&body))))
}
