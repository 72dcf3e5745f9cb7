//! Two instances behind a gRPC upstream of a third: one stops without a word, is killed, comes back. Callers notice nothing.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use fanin_load::{Arrivals, Plan, Shape};
use rustix::process::Signal;
use serde_json::json;

use super::{Folder, Plans, trees};
use crate::process::{self, OTHER_CORE, SERVER_CORE, Server};
use crate::report::{Report, Table};
use crate::stalls::StallMonitor;
use crate::{Failure, Options, servers};

const RATE: f64 = 300.0;
const DEADLINE: Duration = Duration::from_millis(50);
/// A client's clock and a busy core beside the deadline itself.
const GRACE: Duration = Duration::from_millis(10);

const FLOW: &str = r#"
load("@upstreams", "models")

def ask(req):
    row = {"name": "input", "datatype": "FP64", "shape": [1, 4], "contents": {"fp64_contents": [1.0, 2.0, 3.0, 4.0]}}
    return models.ModelInfer({"model_name": "trees", "inputs": [row]})["outputs"]
"#;

fn instance(folder: &Path, addr: SocketAddr) -> Result<Server, Failure> {
    Ok(Server::command("instance", addr, servers::fanin_command(folder)?, Duration::from_secs(10))?)
}

/// Measures.
pub fn run(options: &Options, _: &Plans, report: &mut Report) -> Result<(), Failure> {
    let folders = [Folder::new("one")?, Folder::new("two")?];
    let mut servers = Vec::new();
    for folder in &folders {
        folder.put("trees", 1, &trees::model(100, 31, 4))?;
        servers.push(folder.serve(process::free_port()?, None, "")?);
    }
    let front = Folder::new("front")?;
    let listen = process::free_port()?;
    let toml = format!(
        "[server]\nlisten = \"{listen}\"\nadmin = \"off\"\nworkers = 1\nlog = \"error\"\naccess_log = \"access.log\"\n\
         [upstreams.models]\ngrpc = [\"http://{}\", \"http://{}\"]\nproto = \"inference.proto\"\ntimeout = \"50ms\"\n\
         keepalive = \"200ms\"\nkeepalive_timeout = \"100ms\"\n\
         [[routes]]\npath = \"/\"\nflow = \"ask.star:ask\"\ntimeout = \"50ms\"\n",
        servers[0].addr, servers[1].addr
    );
    fs::write(front.0.join("fanin.toml"), toml)?;
    fs::write(front.0.join("ask.star"), FLOW)?;
    let proto = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/fanin-model/proto/inference.proto");
    fs::copy(proto, front.0.join("inference.proto"))?;
    let fanin = Server::command("fanin", listen, servers::fanin_command(&front.0)?, Duration::from_secs(10))?;
    let step = Duration::from_secs(if options.quick { 3 } else { 10 });
    let wrong = |error: fanin_load::LoadError| Failure::Wrong(error.to_string());
    let request = fanin_load::Request::get(&format!("http://{listen}/")).map_err(wrong)?;
    let mut plan = Plan::new(request, Shape::constant(RATE, step * 4));
    plan.arrivals = Arrivals::Poisson { seed: 5 };
    plan.connections = 64;
    plan.good_within = Some(DEADLINE + GRACE);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let addr = servers[1].addr;
    let mut second = servers.pop();
    let stall_monitors = [StallMonitor::start(SERVER_CORE)?, StallMonitor::start(OTHER_CORE)?];
    let begun = Instant::now();
    let faults = async {
        tokio::time::sleep(step).await;
        if let Some(server) = &second {
            server.signal(Signal::STOP)?;
        }
        tokio::time::sleep(step).await;
        if let Some(mut server) = second.take() {
            aside(move || Ok(server.kill()?)).await?;
        }
        tokio::time::sleep(step).await;
        let folder = folders[1].0.clone();
        second = Some(aside(move || instance(&folder, addr)).await?);
        Ok::<(), Failure>(())
    };
    let (outcome, faults) =
        tokio::task::LocalSet::new().block_on(&runtime, async { tokio::join!(fanin_load::run(&plan, |_| {}), faults) });
    faults?;
    let outcome = outcome.map_err(wrong)?;
    drop((second, fanin));
    let failed = outcome.offered - outcome.good;
    let share = failed as f64 / outcome.offered.max(1) as f64 * 100.0;
    let seen = from_inside(&front.0.join("access.log"))?;
    let mut table = Table::new(
        &format!(
            "Two instances behind a gRPC upstream, {RATE:.0}/s; one stopped, {0} s later killed, {0} s later started again",
            step.as_secs()
        ),
        &["offered", "good", "by status", "p50 ms", "p99 ms", "p99.9 ms", "by the server's clock: max ms"],
    );
    table.rows.push(vec![
        outcome.offered.to_string(),
        outcome.good.to_string(),
        format!("{:?}", outcome.status),
        format!("{:.1}", outcome.latency.p50),
        format!("{:.1}", outcome.latency.p99),
        format!("{:.1}", outcome.latency.p999),
        format!("{seen:.1}"),
    ]);
    report.tables.push(table);
    let mut slowest = Table::new(
        "The slowest calls: how long, and for how much of that the client had not begun, or a bystander on either core could not run",
        &["at s", "ms", "status", "not begun ms", "server's core ms", "client's core ms", "left ms"],
    );
    let mut most = 0.0_f64;
    for slow in &outcome.slowest {
        let from = begun + Duration::from_secs_f64(slow.at);
        let to = from + Duration::from_secs_f64(slow.latency / 1e3);
        let [server, client] = stall_monitors.each_ref().map(|core| core.stalled(from, to).as_secs_f64() * 1e3);
        // Delays of the two cores and of the client's beginning may be one and the same: only the longest is taken off.
        let left = slow.latency - server.max(client).max(slow.lag);
        most = most.max(left);
        let status = slow.status.map_or("none".to_owned(), |status| status.to_string());
        let ms = |ms: f64| format!("{ms:.1}");
        slowest.rows.push(vec![ms(slow.at), ms(slow.latency), status, ms(slow.lag), ms(server), ms(client), ms(left)]);
    }
    report.tables.push(slowest);
    report.at_most("an instance stopped, killed, started: failed", share, 0.1, " %");
    let bar = "the slowest call but for what the machine took, with 50 ms deadline and 10 ms for the client";
    report.at_most(bar, most, (DEADLINE + GRACE).as_secs_f64() * 1e3, " ms");
    report.data["vanish"] = json!({
        "status": outcome.status, "left_ms": most, "server_ms": seen,
        "max_ms": outcome.slowest.first().map(|slow| slow.latency),
    });
    Ok(())
}

/// Waits for what blocks on another thread: on this one it would keep the load from asking.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> Result<T, Failure> + Send + 'static) -> Result<T, Failure> {
    tokio::task::spawn_blocking(work).await.map_err(|error| Failure::Wrong(error.to_string()))?
}

/// The longest request by the access log, milliseconds.
fn from_inside(log: &Path) -> Result<f64, Failure> {
    let text = fs::read_to_string(log)?;
    let durations = text.lines().filter_map(|line| {
        let line: serde_json::Value = serde_json::from_str(line).ok()?;
        line["duration_ms"].as_f64()
    });
    Ok(durations.fold(f64::NAN, f64::max))
}
