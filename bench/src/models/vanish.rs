//! Two instances behind an upstream of a third: one stops without a word, is killed, comes back. Callers notice nothing.

use std::fs;
use std::time::Duration;

use fanin_load::{Arrivals, Plan, Shape};
use rustix::process::Signal;
use serde_json::json;

use super::{Folder, Plans, trees};
use crate::process::{self, Server};
use crate::report::{Report, Table};
use crate::{Failure, Options, servers};

const RATE: f64 = 300.0;
const DEADLINE: Duration = Duration::from_millis(50);
/// A client's clock and a busy core beside the deadline itself.
const GRACE: Duration = Duration::from_millis(10);

const FLOW: &str = r#"
load("@upstreams", "models")

def ask(req):
    asked = {"inputs": [{"name": "input", "datatype": "FP64", "shape": [1, 4], "data": [1.0, 2.0, 3.0, 4.0]}]}
    return models.infer(json = asked)["outputs"]
"#;

fn instance(folder: &Folder, addr: std::net::SocketAddr) -> Result<Server, Failure> {
    Ok(Server::command("instance", addr, servers::fanin_command(&folder.0)?, Duration::from_secs(10))?)
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
        "[server]\nlisten = \"{listen}\"\nadmin = \"off\"\nworkers = 1\nlog = \"error\"\n[upstreams.models]\nurls = \
         [\"http://{}\", \"http://{}\"]\nhttp = \"2\"\ntimeout = \"50ms\"\nkeepalive = \"200ms\"\nkeepalive_timeout = \"100ms\"\n\
         [upstreams.models.operations.infer]\nmethod = \"POST\"\npath = \"/v2/models/trees/infer\"\nsafe = true\n\
         [[routes]]\npath = \"/\"\nflow = \"ask.star:ask\"\ntimeout = \"50ms\"\n",
        servers[0].addr, servers[1].addr
    );
    fs::write(front.0.join("fanin.toml"), toml)?;
    fs::write(front.0.join("ask.star"), FLOW)?;
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
    let faults = async {
        tokio::time::sleep(step).await;
        if let Some(server) = &second {
            server.signal(Signal::STOP)?;
        }
        tokio::time::sleep(step).await;
        if let Some(mut server) = second.take() {
            server.kill()?;
        }
        tokio::time::sleep(step).await;
        second = Some(instance(&folders[1], addr)?);
        Ok::<(), Failure>(())
    };
    let (outcome, faults) =
        tokio::task::LocalSet::new().block_on(&runtime, async { tokio::join!(fanin_load::run(&plan, |_| {}), faults) });
    faults?;
    let outcome = outcome.map_err(wrong)?;
    drop((second, fanin));
    let failed = outcome.offered - outcome.good;
    let share = failed as f64 / outcome.offered.max(1) as f64 * 100.0;
    let mut table = Table::new(
        &format!(
            "Two instances behind an upstream, {RATE:.0}/s; one stopped, {0} s later killed, {0} s later started again",
            step.as_secs()
        ),
        &["offered", "good", "by status", "p50 ms", "p99 ms", "p99.9 ms", "max ms"],
    );
    table.rows.push(vec![
        outcome.offered.to_string(),
        outcome.good.to_string(),
        format!("{:?}", outcome.status),
        format!("{:.1}", outcome.latency.p50),
        format!("{:.1}", outcome.latency.p99),
        format!("{:.1}", outcome.latency.p999),
        format!("{:.1}", outcome.latency.max.max(outcome.failures.max).max(outcome.refused.max)),
    ]);
    report.tables.push(table);
    report.at_most("an instance stopped, killed, started: failed", share, 0.1, " %");
    let most = outcome.latency.max.max(outcome.failures.max).max(outcome.refused.max);
    let bar = "the slowest call, with 50 ms deadline and 10 ms for the client";
    report.at_most(bar, most, (DEADLINE + GRACE).as_secs_f64() * 1e3, " ms");
    report.data["vanish"] = json!({"status": outcome.status, "max_ms": most});
    Ok(())
}
