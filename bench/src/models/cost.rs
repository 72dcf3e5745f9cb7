//! CPU of a ModelInfer of 300 trees beside a bare tonic echo, and what 3 million a minute take.

use std::time::Duration;

use serde_json::json;

use super::load::{self, Clients};
use super::{Folder, Plans, trees};
use crate::process::{self, Server};
use crate::report::{Report, Table, median};
use crate::{Failure, Options};

pub const TREES: usize = 300;
pub const LEAVES: usize = 31;
pub const FEATURES: usize = 100;
pub const CONNECTIONS: usize = 16;
/// Requests a second of 3 million a minute.
const WANTED: f64 = 50_000.0;

/// Measures, and prints what it would take.
pub fn run(options: &Options, _: &Plans, report: &mut Report) -> Result<(), Failure> {
    let folder = Folder::new("cost")?;
    folder.put("trees", 1, &trees::model(TREES, LEAVES, FEATURES))?;
    let fanin = folder.serve(process::free_port()?, None, "")?;
    let echo = Server::role("tonic echo", process::SERVER_CORE, &["tonic-echo"])?;
    let body = load::request("trees", 1, FEATURES, &["output"]);
    let mut table = Table::new(
        "CPU of one ModelInfer, 100 features in, 300 trees of 31 leaves; medians over the turns",
        &["server", "CPU us", "req/s", "peak MB", "threads", "failed"],
    );
    let (pairs, window) = if options.quick { (5, 500) } else { (15, 1000) };
    let mut costs = [Vec::new(), Vec::new()];
    let mut rates = [Vec::new(), Vec::new()];
    let mut failed = [0, 0];
    let all = [&fanin, &echo];
    let clients = [
        Clients::start(fanin.addr, CONNECTIONS, std::slice::from_ref(&body))?,
        Clients::start(echo.addr, CONNECTIONS, &[body])?,
    ];
    for clients in &clients {
        clients.window(Duration::from_millis(window));
    }
    for pair in 0..pairs {
        for turn in 0..2 {
            let at = (pair + turn) % 2;
            let before = all[at].usage()?.cpu;
            let (asked, wrong) = clients[at].window(Duration::from_millis(window));
            let used = all[at].usage()?.cpu.saturating_sub(before);
            costs[at].push(used.as_secs_f64() * 1e6 / asked.max(1) as f64);
            rates[at].push(asked as f64 * 1000.0 / window as f64);
            failed[at] += wrong;
        }
    }
    for (at, server) in all.iter().enumerate() {
        let usage = server.usage()?;
        table.rows.push(vec![
            server.name.clone(),
            format!("{:.1}", median(costs[at].iter().copied())),
            format!("{:.0}", median(rates[at].iter().copied())),
            format!("{:.1}", usage.peak as f64 / 1e6),
            usage.threads.to_string(),
            failed[at].to_string(),
        ]);
    }
    let ratio = median(costs[0].iter().zip(&costs[1]).map(|(ours, theirs)| ours / theirs));
    let cost = median(costs[0].iter().copied());
    let cores = cost * WANTED / 1e6;
    let mut sizes = Table::new(
        "What 3 million of these a minute take, at 60 % of a core",
        &["CPU-seconds a second", "cores", "4-core pods"],
    );
    sizes.rows.push(vec![
        format!("{cores:.2}"),
        format!("{:.1}", cores / 0.6),
        format!("{:.0}", (cores / 0.6 / 4.0).ceil()),
    ]);
    report.at_most("CPU of a ModelInfer / of a bare tonic echo", ratio, 1.4, "");
    report.holds("no failed request", format!("{} failed", failed[0]), failed[0] == 0);
    report.tables.extend([table, sizes]);
    report.data["cost"] = json!({"fanin_us": costs[0], "echo_us": costs[1]});
    Ok(())
}
