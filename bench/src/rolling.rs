//! `rolling`: three instances of an upstream are restarted one after the other under constant load, then one of them vanishes
//! without closing its connections.
//!
//! An instance that is restarted is killed, with the calls that it works on, and its port refuses for a second. One that
//! vanishes still takes bytes (its kernel's, or a router's doing) and never says anything again, which is what made clients
//! hang for 20 s in a rolling restart. What is configured is in `bench/rolling`: where the instances are, and nothing else.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use fanin_load::fault_injector::{Fault, FaultInjector};
use fanin_load::{Arrivals, Outcome, Plan, Request, Shape};
use serde_json::json;
use tokio::runtime::Runtime;

use crate::process::{self, OTHER_CORE, Server};
use crate::report::{Report, Table};
use crate::{Failure, Options, servers};

const SECOND: Duration = Duration::from_secs(1);
const RATE: f64 = 500.0;
/// The default `timeout` of an upstream: no call may take longer, and so no request with one call.
const CALL_TIMEOUT_MS: f64 = 1000.0;

/// Runs the benchmark.
pub fn run(options: &Options) -> Result<Report, Failure> {
    process::pin(OTHER_CORE)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut instances = (0..3).map(|_| instance(None)).collect::<Result<Vec<_>, _>>()?;
    let gate = runtime.block_on(FaultInjector::start(instances[2].addr, 1))?;
    let fanin = fanin([instances[0].addr, instances[1].addr, gate.addr()])?;
    let load = |lasts| -> Result<Plan, Failure> {
        let mut plan = Plan::new(Request::get(&format!("http://{}/item", fanin.addr))?, Shape::constant(RATE, lasts));
        plan.arrivals = Arrivals::Poisson { seed: 7 };
        Ok(plan)
    };
    let pause = if options.quick { SECOND } else { 2 * SECOND };

    // Warm, so that what follows is about the instances.
    runtime.block_on(fanin_load::run(&load(SECOND)?, |_| ()))?;
    let (restarted, restarts) = during(&runtime, &load(12 * pause)?, || {
        for instance in &mut instances {
            process::pause(pause);
            restart(instance, pause)?;
        }
        Ok::<_, Failure>(())
    })?;
    restarts?;
    let (vanished, ()) = during(&runtime, &load(6 * pause)?, || {
        process::pause(pause);
        gate.set(Fault::Hang);
        process::pause(4 * pause);
        gate.set(Fault::Pass);
        gate.reset_connections();
    })?;

    let mut report = Report::new("rolling");
    let header = ["", "offered", "good", "p50 ms", "p99 ms", "p99.9 ms", "max ms"];
    let mut table = Table::new(&format!("{RATE} requests/s on an upstream of three instances"), &header);
    for (name, outcome) in [("each restarted in turn", &restarted), ("one vanishes", &vanished)] {
        table.rows.push(row(name, outcome));
        let failed = outcome.offered - outcome.good;
        report.holds(&format!("{name}: failed requests"), failed.to_string(), failed == 0);
        let slowest = outcome.latency.max.max(outcome.failures.max);
        report.at_most(&format!("{name}: slowest request"), slowest, CALL_TIMEOUT_MS, " ms");
    }
    report.tables.push(table);
    report.data = json!({"restarted": restarted, "vanished": vanished});
    Ok(report)
}

/// Load, and what happens meanwhile.
fn during<T: Send>(
    runtime: &Runtime,
    plan: &Plan,
    happens: impl FnOnce() -> T + Send,
) -> Result<(Outcome, T), Failure> {
    std::thread::scope(|scope| {
        let happening = scope.spawn(happens);
        let outcome = runtime.block_on(fanin_load::run(plan, |_| ()))?;
        let happened = happening.join().map_err(|_| Failure::Wrong("what was to happen has panicked".into()))?;
        Ok((outcome, happened))
    })
}

fn row(name: &str, outcome: &Outcome) -> Vec<String> {
    let latency = &outcome.latency;
    let mut row = vec![name.into(), outcome.offered.to_string(), outcome.good.to_string()];
    row.extend([latency.p50, latency.p99, latency.p999, latency.max].map(|ms| format!("{ms:.1}")));
    row
}

fn instance(addr: Option<SocketAddr>) -> Result<Server, Failure> {
    let listen = addr.map_or_else(|| "127.0.0.1:0".into(), |addr| addr.to_string());
    Ok(Server::role("instance", OTHER_CORE, &["stub", "--listen", &listen])?)
}

/// Kills an instance, waits, and starts another at the same address.
fn restart(instance_: &mut Server, pause: Duration) -> Result<(), Failure> {
    let addr = instance_.addr;
    instance_.kill()?;
    process::pause(pause / 2);
    *instance_ = instance(Some(addr))?;
    Ok(())
}

fn fanin(instances: [SocketAddr; 3]) -> Result<Server, Failure> {
    let mut command = servers::fanin_command(&Path::new(env!("CARGO_MANIFEST_DIR")).join("rolling"))?;
    let (listen, admin) = (process::free_port()?, process::free_port()?);
    command.env("FANIN_BENCH_LISTEN", listen.to_string()).env("FANIN_BENCH_ADMIN", admin.to_string());
    for (name, addr) in ["FANIN_BENCH_A", "FANIN_BENCH_B", "FANIN_BENCH_C"].iter().zip(instances) {
        command.env(name, addr.to_string());
    }
    Ok(Server::command("fanin", listen, command, Duration::from_secs(10))?)
}
