//! `sql`: story B's experiment. Four connections, three dependent queries of about 30 ms a request; the rate is ramped to three
//! times what the database can and back. Beside it the same with blocking threads that wait for a connection by time. Then a
//! database that is killed and comes back under load, and what a request costs against the same written by hand.

pub mod blocking;
mod chart;
pub mod direct;
mod queries;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use fanin_load::{Outcome, Plan as LoadPlan, Request, Segment, Shape};
use fanin_testbed::Server as Database;

use crate::interleaved::run_interleaved;
use crate::load::{self, Plan, Session};
use crate::process::{self, OTHER_CORE, Server};
use crate::report::{Report, Table, median};
use crate::{Failure, Options, servers};

/// Connections to the database, of each server.
pub const CONNECTIONS: usize = 4;
const EMAIL: &str = "customer7@example.com";
/// Few enough that a scan is short beside the query's sleep.
const ROWS: &str = "3000";
/// Of the closed loop that measures capacity: enough to keep the connections busy.
const SATURATION: usize = 8;

/// Parts of the run, seconds: below capacity, up, above, down, below.
struct Parts {
    calm: u64,
    ramp: u64,
    peak: u64,
}

/// Runs the benchmark.
pub fn run(options: &Options, plot: &Path) -> Result<Report, Failure> {
    let mut report = Report::new("sql");
    // The database and the load keep away from the core whose CPU is counted: processes of the database in between would cost
    // the server its caches, and the slower server the more.
    process::pin(OTHER_CORE)?;
    let mut database = Database::postgres();
    fill(&database.url)?;
    costs(&mut report, options, &database)?;
    let fanin = fanin(&database, true)?;
    let capacity = capacity(&fanin, options)?;
    experiment(&mut report, options, capacity, &fanin, &database, plot)?;
    restart(&mut report, options, capacity, &fanin, &mut database)?;
    Ok(report)
}

fn fill(url: &str) -> Result<(), Failure> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for file in ["examples/orders/data.sql", "bench/sql/data.sql"] {
        let rows = format!("rows={ROWS}");
        let status = Command::new("psql")
            .args([url, "-qX", "-v", "ON_ERROR_STOP=1", "-v", &rows, "-f"])
            .arg(root.join(file))
            .status()?;
        if !status.success() {
            return Err(Failure::Wrong(format!("{file} failed")));
        }
    }
    Ok(())
}

fn fanin(database: &Database, two: bool) -> Result<Server, Failure> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("sql");
    let mut command = servers::fanin_command(&dir)?;
    let (listen, admin) = (process::free_port()?, process::free_port()?);
    command.env("FANIN_BENCH_LISTEN", listen.to_string()).env("FANIN_BENCH_ADMIN", admin.to_string());
    command.env("FANIN_BENCH_DATABASE", &database.url).env("FANIN_BENCH_WORKERS", if two { "2" } else { "1" });
    Ok(Server::command("fanin", listen, command, Duration::from_secs(10))?)
}

fn plan(server: &Server, path: &str, connections: usize) -> Plan {
    let request = load::get(&format!("{path}?email={EMAIL}"));
    Plan { addr: server.addr, request, connections, least_body: 300 }
}

/// Requests a second that the database can, when it has always something to do and nobody is refused.
fn capacity(fanin: &Server, options: &Options) -> Result<f64, Failure> {
    let mut session = Session::connect(plan(fanin, "/slow", SATURATION))?;
    let window = Duration::from_secs(if options.quick { 4 } else { 10 });
    session.window(Duration::from_secs(1), window, || {})?;
    let figures = session.figures();
    if figures.errors > 0 {
        return Err(Failure::Wrong(format!("{} wrong responses below the limit", figures.errors)));
    }
    Ok(figures.rate)
}

fn run_load(server: &Server, shape: Shape) -> Result<Outcome, Failure> {
    let url = format!("http://{}/slow?email={EMAIL}", server.addr);
    let request = Request::new(http::Method::GET, &url).map_err(|error| Failure::Wrong(error.to_string()))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut plan = LoadPlan::new(request, shape);
    plan.progress = Duration::from_millis(500);
    runtime.block_on(fanin_load::run(&plan, |_| {})).map_err(|error| Failure::Wrong(error.to_string()))
}

fn experiment(
    report: &mut Report,
    options: &Options,
    capacity: f64,
    fanin: &Server,
    database: &Database,
    plot: &Path,
) -> Result<(), Failure> {
    let parts = if options.quick { Parts { calm: 4, ramp: 6, peak: 6 } } else { Parts { calm: 8, ramp: 12, peak: 16 } };
    let seconds = Duration::from_secs;
    let segment = |from: f64, to: f64, duration| Segment { from: from * capacity, to: to * capacity, duration };
    let shape = Shape::of([
        segment(0.6, 0.6, seconds(parts.calm)),
        segment(0.6, 3.0, seconds(parts.ramp)),
        segment(3.0, 3.0, seconds(parts.peak)),
        segment(3.0, 0.6, seconds(parts.ramp)),
        segment(0.6, 0.6, seconds(parts.calm)),
    ]);
    let ours = run_load(fanin, shape.clone())?;
    let blocking_server = Server::role("blocking", OTHER_CORE, &["sql-blocking", "--database", &database.url])?;
    let blocking = run_load(&blocking_server, shape)?;
    drop(blocking_server);

    // From where the ramp crosses the capacity to where it does again: (1 - 0.6) / (3 - 0.6) of a ramp.
    let crossing = parts.ramp as f64 * (1.0 - 0.6) / (3.0 - 0.6);
    let from = parts.calm as f64 + crossing + 1.0;
    let to = (parts.calm + 2 * parts.ramp + parts.peak) as f64 - crossing - 1.0;
    let share = |outcome: &Outcome, from: f64, to: f64| {
        outcome.goodput_between(Duration::from_secs_f64(from), Duration::from_secs_f64(to)) / capacity
    };
    let worst = |outcome: &Outcome| {
        let mut least = f64::INFINITY;
        let mut at = from;
        while at + 5.0 <= to + 1e-9 {
            least = least.min(share(outcome, at, at + 5.0));
            at += 1.0;
        }
        least
    };
    let calm_latency = |outcome: &Outcome, from: f64, to: f64| {
        let calm = outcome.intervals.iter().filter(|it| it.at >= from && it.at + it.length <= to && it.good > 0);
        median(calm.map(|it| it.latency.p50))
    };
    // One second after the load is below what the database can again.
    let after = (parts.calm + 2 * parts.ramp + parts.peak) as f64 - crossing + 1.0;
    let end = (2 * parts.calm + 2 * parts.ramp + parts.peak) as f64;
    let header = [
        "server",
        "goodput while above capacity",
        "worst 5 s",
        "refused p99 ms",
        "p50 before ms",
        "p50 after ms",
        "failed",
    ];
    let mut table = Table::new(
        &format!("Rate ramped to 3 times the capacity of {capacity:.1} requests/s and back; shares of the capacity"),
        &header,
    );
    for (name, outcome) in [("fanin", &ours), ("blocking, 1 s", &blocking)] {
        let failed: u64 = outcome.intervals.iter().map(|it| it.failed).sum();
        table.rows.push(vec![
            name.into(),
            format!("{:.3}", share(outcome, from, to)),
            format!("{:.3}", worst(outcome)),
            format!("{:.2}", outcome.refused.p99),
            format!("{:.0}", calm_latency(outcome, 1.0, parts.calm as f64)),
            format!("{:.0}", calm_latency(outcome, after, end)),
            failed.to_string(),
        ]);
    }
    report.tables.push(table);
    let at_least = |report: &mut Report, bar: &str, figure: f64, least: f64| {
        report.holds(&format!("{bar} ≥ {least}"), format!("{figure:.3}"), figure >= least);
    };
    at_least(report, "goodput of capacity while above it", share(&ours, from, to), 0.95);
    at_least(report, "the same in its worst 5 s", worst(&ours), 0.95);
    report.at_most("refusals, p99", ours.refused.p99, 10.0, " ms");
    let failed: u64 = ours.intervals.iter().map(|it| it.failed).sum();
    report.holds("every other request is answered", format!("{failed} failed"), failed == 0);
    let (before, then) = (calm_latency(&ours, 1.0, parts.calm as f64), calm_latency(&ours, after, end));
    report.at_most("p50 from 1 s after the overload / before it", then / before, 1.2, "");
    let collapse = share(&blocking, from, to);
    report.holds(
        "blocking with waiting by time falls behind",
        format!("{collapse:.3}"),
        collapse < share(&ours, from, to),
    );
    std::fs::write(plot, chart::svg(capacity, &ours, &blocking))?;
    eprintln!("sql: {}", plot.display());
    report.data = serde_json::json!({ "capacity": capacity, "fanin": ours.json(), "blocking": blocking.json() });
    Ok(())
}

/// Killed under load, started again three seconds later.
fn restart(
    report: &mut Report,
    options: &Options,
    capacity: f64,
    fanin: &Server,
    database: &mut Database,
) -> Result<(), Failure> {
    let (before, down, after) = if options.quick { (3, 2, 6) } else { (5, 3, 10) };
    let rate = capacity * 0.7;
    let shape = Shape::constant(rate, Duration::from_secs(before + down + after + 3));
    let begun = Instant::now();
    let outcome = std::thread::scope(|scope| {
        let load = scope.spawn(move || run_load(fanin, shape));
        process::pause(Duration::from_secs(before));
        database.kill();
        process::pause(Duration::from_secs(down));
        database.start();
        let back = begun.elapsed().as_secs_f64();
        load.join().map_err(|_| Failure::Wrong("the load panicked".into()))?.map(|outcome| (outcome, back))
    });
    let (outcome, back) = outcome?;
    let from = Duration::from_secs_f64(back + 2.0);
    let goodput = outcome.goodput_between(from, Duration::from_secs_f64(outcome.seconds)) / rate;
    report.holds(
        "killed and back: goodput of the offered from 2 s after ≥ 0.98",
        format!("{goodput:.3}"),
        goodput >= 0.98,
    );
    let hung = outcome.timeouts;
    report.holds("killed and back: no request hangs", format!("{hung} without an answer"), hung == 0);
    // The load's statuses say nothing about bodies: one after the other is compared.
    let (_, body) = load::once(fanin.addr, &load::get(&format!("/slow?email={EMAIL}")), Duration::from_secs(10))?;
    let right = String::from_utf8_lossy(&body).starts_with("{\"customer\":{\"id\":7,\"name\":\"Customer 7\"");
    report.holds("killed and back: the answer is right", if right { "right" } else { "wrong" }.into(), right);
    Ok(())
}

fn costs(report: &mut Report, options: &Options, database: &Database) -> Result<(), Failure> {
    let fanin = fanin(database, false)?;
    let direct = Server::role("by hand", process::SERVER_CORE, &["sql-direct", "--database", &database.url])?;
    let servers = [&fanin, &direct];
    for server in servers {
        let mut session = Session::connect(plan(server, "/quick", 16))?;
        session.window(Duration::from_millis(100), Duration::from_secs(1), || {})?;
    }
    let pairs = if options.quick { 3 } else { 7 };
    let mut ratios = Vec::new();
    let mut table =
        Table::new("CPU of one request with three queries by index, one worker", &["server", "CPU us", "requests/s"]);
    let mut rows = [(Vec::new(), Vec::new()), (Vec::new(), Vec::new())];
    for pair in 0..pairs {
        let plans: Vec<_> = servers.iter().map(|server| (*server, plan(server, "/quick", 16))).collect();
        let costs = run_interleaved(&plans, 1, pair % 2 == 1, Duration::from_millis(10))?;
        if let Some(wrong) = costs.iter().find(|cost| cost.figures.errors > 0) {
            return Err(Failure::Wrong(format!("{} wrong responses", wrong.figures.errors)));
        }
        ratios.push(costs[0].cpu / costs[1].cpu);
        for (row, cost) in rows.iter_mut().zip(&costs) {
            row.0.push(cost.cpu);
            row.1.push(cost.figures.rate);
        }
    }
    for (server, (cpu, rate)) in servers.iter().zip(rows) {
        table.rows.push(vec![server.name.clone(), format!("{:.1}", median(cpu)), format!("{:.0}", median(rate))]);
    }
    report.tables.push(table);
    report.at_most("CPU of fanin / of hyper and tokio-postgres by hand", median(ratios), 1.3, "");
    Ok(())
}
