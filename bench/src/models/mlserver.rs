//! MLServer of PyPI on the same model: CPU of a ModelInfer beside ours.
//!
//! It is found in `.venv/mlserver` (`.ci/setup mlserver`) or where `FANIN_BENCH_MLSERVER` says. Its inference runs in its own
//! process (`parallel_workers` 0), which is its cheapest way.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use serde_json::json;

use super::cost::{CONNECTIONS, FEATURES, LEAVES, TREES};
use super::load::{self, Clients};
use super::{Folder, Plans, trees};
use crate::process::{self, SERVER_CORE, Server};
use crate::report::{Report, Table, median};
use crate::{Failure, Options};

fn program() -> Option<PathBuf> {
    let program = match std::env::var_os("FANIN_BENCH_MLSERVER") {
        Some(program) => PathBuf::from(program),
        None => PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../.venv/mlserver/bin/mlserver"),
    };
    program.exists().then_some(program)
}

/// Measures, if it is there.
pub fn run(options: &Options, plans: &Plans, report: &mut Report) -> Result<(), Failure> {
    let Some(program) = program() else {
        if plans.only.iter().any(|only| only == "mlserver") {
            return Err(Failure::Usage("MLServer is not there: .ci/setup mlserver".into()));
        }
        eprintln!("models: without MLServer, which is not there (.ci/setup mlserver)");
        return Ok(());
    };
    let folder = Folder::new("mlserver")?;
    folder.put("trees", 1, &trees::model(TREES, LEAVES, FEATURES))?;
    let fanin = folder.serve(process::free_port()?, None, "")?;
    let model = folder.0.join("mlserver");
    fs::create_dir_all(&model)?;
    fs::write(model.join("model.txt"), trees::model(TREES, LEAVES, FEATURES))?;
    let (http, grpc, metrics) = (process::free_port()?, process::free_port()?, process::free_port()?);
    let settings = json!({
        "host": "127.0.0.1", "http_port": http.port(), "grpc_port": grpc.port(), "metrics_port": metrics.port(),
        "parallel_workers": 0, "debug": false,
    });
    fs::write(model.join("settings.json"), settings.to_string())?;
    let settings = json!({
        "name": "trees", "implementation": "mlserver_lightgbm.LightGBMModel", "parameters": {"uri": "./model.txt"},
    });
    fs::write(model.join("model-settings.json"), settings.to_string())?;
    let mut command = process::on_core(SERVER_CORE, program);
    command.arg("start").arg(&model).stdout(Stdio::null()).stderr(Stdio::null());
    let theirs = Server::command("MLServer", grpc, command, Duration::from_secs(60))?;
    ready(http)?;
    let body = load::request("trees", 1, FEATURES, &[]);
    let all = [&fanin, &theirs];
    let clients = [
        Clients::start(fanin.addr, CONNECTIONS, std::slice::from_ref(&body))?,
        Clients::start(theirs.addr, CONNECTIONS, &[body])?,
    ];
    let (pairs, window) = if options.quick { (3, 1000) } else { (7, 2000) };
    let mut costs = [Vec::new(), Vec::new()];
    let mut failed = [0, 0];
    for _ in 0..pairs {
        for at in 0..2 {
            let before = all[at].usage()?.cpu;
            let (asked, wrong) = clients[at].window(Duration::from_millis(window));
            let used = all[at].usage()?.cpu.saturating_sub(before);
            costs[at].push(used.as_secs_f64() * 1e6 / asked.max(1) as f64);
            failed[at] += wrong;
        }
    }
    let mut table = Table::new(
        "CPU of one ModelInfer on the same model, beside MLServer of PyPI",
        &["server", "CPU us", "resident MB", "threads", "failed"],
    );
    for (at, server) in all.iter().enumerate() {
        let usage = server.usage()?;
        table.rows.push(vec![
            server.name.clone(),
            format!("{:.1}", median(costs[at].iter().copied())),
            format!("{:.1}", usage.rss as f64 / 1e6),
            usage.threads.to_string(),
            failed[at].to_string(),
        ]);
    }
    let ratio = median(costs[1].iter().zip(&costs[0]).map(|(theirs, ours)| theirs / ours));
    report.tables.push(table);
    report.holds("CPU of MLServer / of fanin ≥ 20", format!("{ratio:.1}"), ratio >= 20.0);
    report.data["mlserver"] = json!({"fanin_us": costs[0], "mlserver_us": costs[1]});
    Ok(())
}

/// Its ports are open before its model is loaded.
fn ready(http: std::net::SocketAddr) -> Result<(), Failure> {
    for _ in 0..600 {
        let asked = crate::load::once(http, &crate::load::get("/v2/models/trees/ready"), Duration::from_secs(5));
        if matches!(asked, Ok((200, _))) {
            return Ok(());
        }
        process::pause(Duration::from_millis(100));
    }
    Err(Failure::Wrong("MLServer does not load the model".into()))
}
