//! Memory and threads of subscribers that wait, over HTTP/1.1 and over HTTP/2.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::json;

use super::clients::{self, Subscribers};
use super::server;
use crate::load::streams::Streams;
use crate::process::{self, Server, Usage};
use crate::report::{Report, Table};
use crate::{Failure, Options};

const MOST_KB_EACH: f64 = 12.0;
/// Files of a server or client besides the connections.
const OTHER_FILES: usize = 500;
/// Longer than a heartbeat of 15 s, so that each subscriber has had one: its buffers are as they stay.
const SETTLES: Duration = Duration::from_secs(20);
const PATIENCE: Duration = Duration::from_secs(120);

/// Measures both.
pub fn run(options: &Options, files: usize, report: &mut Report) -> Result<(), Failure> {
    let count = if options.quick { 5_000 } else { 100_000 };
    let header =
        ["subscribers", "over", "server processes", "KB each", "threads of each", "CPU % at rest", "kernel KB each"];
    let mut table = Table::new("Subscribers that wait", &header);
    for over in [Over::Http1, Over::Http2] {
        let figures = measure(over, count, files)?;
        let Figures { processes, each, rest, full, cpu, kernel } = &figures;
        table.rows.push(vec![
            count.to_string(),
            over.name().into(),
            processes.to_string(),
            format!("{each:.2}"),
            full.threads.to_string(),
            format!("{:.1}", cpu * 100.0),
            kernel.map_or("unknown".into(), |kernel| format!("{kernel:.1}")),
        ]);
        report.at_most(&format!("memory of a subscriber over {}", over.name()), *each, MOST_KB_EACH, " KB");
        let threads = format!("{} and {}", rest.threads, full.threads);
        report.holds(&format!("{}: as many threads as at rest", over.name()), threads, rest.threads == full.threads);
        report.data["idle"][over.name()] = json!({
            "subscribers": count, "processes": processes, "kb_each": each, "threads": full.threads, "cpu": cpu,
            "kernel_kb_each": kernel,
        });
    }
    report.tables.push(table);
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Over {
    Http1,
    Http2,
}

impl Over {
    fn name(self) -> &'static str {
        match self {
            Over::Http1 => "HTTP/1.1",
            Over::Http2 => "HTTP/2",
        }
    }
}

struct Figures {
    processes: usize,
    /// Growth of the server's resident memory for each subscriber, without the kernel's.
    each: f64,
    /// Of one process.
    rest: Usage,
    full: Usage,
    /// Cores that the servers need for heartbeats.
    cpu: f64,
    /// Growth of the kernel's memory for each subscriber: both ends.
    kernel: Option<f64>,
}

fn measure(over: Over, count: usize, files: usize) -> Result<Figures, Failure> {
    let per_process = match over {
        Over::Http1 => files.saturating_sub(OTHER_FILES).min(count),
        Over::Http2 => count,
    };
    let processes = count.div_ceil(per_process);
    let servers = (0..processes).map(|_| server()).collect::<Result<Vec<_>, _>>()?;
    let kernel = kernel_memory();
    let mut rest = Vec::new();
    for (server, _) in &servers {
        // What the first subscriber needs is not the price of those that follow.
        Subscribers::start(server.addr, 1, 0, 0)?.wait()?;
        rest.push(server.usage()?);
    }
    let mut open = Vec::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut left = count;
    for (at, (server, admin)) in servers.iter().enumerate() {
        let now = left.min(per_process);
        left -= now;
        let clients = match over {
            Over::Http1 => {
                let clients = Subscribers::start(server.addr, now, 0, at)?;
                clients.wait()?;
                Clients::Processes(clients)
            }
            Over::Http2 => Clients::Streams(runtime.block_on(streams(server, *admin, now))?),
        };
        open.push(clients);
    }
    let before = cpu(&servers)?;
    let begun = Instant::now();
    match over {
        Over::Http1 => process::pause(SETTLES),
        Over::Http2 => runtime.block_on(async { tokio::time::sleep(SETTLES).await }),
    }
    let cores = (cpu(&servers)? - before).as_secs_f64() / begun.elapsed().as_secs_f64();
    let mut grown = 0;
    let mut full = Usage::default();
    for ((server, admin), rest) in servers.iter().zip(&rest) {
        let usage = server.usage()?;
        grown += usage.rss.saturating_sub(rest.rss);
        full = if full.threads > usage.threads { full } else { usage };
        let subscribers = clients::gauge(*admin, "fanin_push_subscribers")?;
        let least = per_process.min(count % per_process).max(1);
        if subscribers < least as f64 {
            return Err(Failure::Wrong(format!("{subscribers} subscribers are left")));
        }
    }
    let each = |bytes: u64| bytes as f64 / count as f64 / 1024.0;
    let kernel = kernel.zip(kernel_memory()).map(|(before, after)| each(after.saturating_sub(before)));
    let first = rest.first().copied().unwrap_or_default();
    Ok(Figures { processes, each: each(grown), rest: first, full, cpu: cores, kernel })
}

/// Kept until the figures are taken.
enum Clients {
    Processes(#[allow(dead_code, reason = "its drop ends them")] Subscribers),
    Streams(#[allow(dead_code, reason = "its drop ends them")] Box<dyn std::any::Any>),
}

/// Opens so many streams, and waits until the server has them as subscribers.
async fn streams(server: &Server, admin: SocketAddr, count: usize) -> Result<Box<dyn std::any::Any>, Failure> {
    let streams = Streams::connect(server.addr, "/events", count).await?;
    let mut hanging = streams.send(count);
    let end = Instant::now() + PATIENCE;
    loop {
        tokio::time::sleep(Duration::from_millis(200)).await;
        if let Some(ended) = hanging.try_join_next() {
            return Err(Failure::Wrong(format!("a subscription ended: {ended:?}")));
        }
        let asked = tokio::task::spawn_blocking(move || clients::gauge(admin, "fanin_push_subscribers")).await;
        let subscribers = asked.map_err(io::Error::other)??;
        if subscribers >= count as f64 {
            return Ok(Box::new((streams, hanging)));
        }
        if Instant::now() > end {
            return Err(Failure::Wrong(format!("{subscribers} of {count} have subscribed")));
        }
    }
}

fn cpu(servers: &[(Server, SocketAddr)]) -> io::Result<Duration> {
    servers.iter().map(|(server, _)| Ok(server.usage()?.cpu)).sum()
}

/// The kernel's objects and socket buffers, of all processes.
fn kernel_memory() -> Option<u64> {
    let number = |text: &str, key: &str| -> Option<u64> {
        let mut words = text.split_whitespace().skip_while(|word| *word != key);
        words.nth(1)?.parse().ok()
    };
    let slab = number(&fs::read_to_string("/proc/meminfo").ok()?, "Slab:")? * 1024;
    let sockets = fs::read_to_string("/proc/net/sockstat").ok()?;
    let tcp = sockets.lines().find(|line| line.starts_with("TCP:"))?;
    Some(slab + number(tcp, "mem")? * rustix::param::page_size() as u64)
}
