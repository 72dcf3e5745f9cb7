//! `push`: what an idle subscriber takes, how soon an event reaches the last of 10,000, and whether subscribers slow a publisher.
//!
//! The server has core 0. Subscribers, in processes of their own, and the publisher share core 1.

mod clients;
mod idle;
pub mod subscribers;

use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;

use crate::process::{self, OTHER_CORE, Server};
use crate::report::{Report, Table, median};
use crate::{Failure, Options, servers};
use clients::{Publisher, Subscribers};

/// Is in every event of the benchmark once, and in nothing else.
const MARK: u8 = b'~';
const MOST_LAST_MS: f64 = 250.0;
/// By how much subscribers may slow a publisher at p99.
const MOST_SLOWER_MS: f64 = 10.0;
/// Bytes of an event.
const SIZE: usize = 100;
/// Of an event to subscribers that do not read, so that their sockets are full soon.
const LARGE: usize = 2000;

/// Runs the benchmark.
pub fn run(options: &Options) -> Result<Report, Failure> {
    process::pin(OTHER_CORE)?;
    let limit = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: limit, maximum: limit }).map_err(std::io::Error::from)?;
    let files = limit.map_or(usize::MAX, |files| files as usize);
    let mut report = Report::new("push");
    report.data = json!({});
    idle::run(options, files, &mut report)?;
    let subscribers = if options.quick { 2_000 } else { 10_000 };
    event(options, subscribers, &mut report)?;
    publisher(options, subscribers, &mut report)?;
    Ok(report)
}

fn server() -> Result<(Server, std::net::SocketAddr), Failure> {
    let admin = process::free_port()?;
    // The configuration has no upstream, so no backend is asked.
    let fanin = servers::alone("push", &[("FANIN_BENCH_ADMIN", &admin.to_string())])?;
    Ok((fanin, admin))
}

/// How soon one event reaches the last subscriber.
fn event(options: &Options, count: usize, report: &mut Report) -> Result<(), Failure> {
    let (fanin, _) = server()?;
    let subscribers = Subscribers::start(fanin.addr, count, 0, 0)?;
    subscribers.wait()?;
    let mut publisher = Publisher::connect(fanin.addr, SIZE)?;
    let mut last = Vec::new();
    let before = fanin.usage()?.cpu;
    let rounds = if options.quick { 5 } else { 30 };
    for round in 1..=rounds {
        let (at, _) = publisher.publish()?;
        last.push(subscribers.delivered(round)?.saturating_sub(at) as f64 / 1e6);
        process::pause(Duration::from_millis(50));
    }
    let cpu = (fanin.usage()?.cpu - before).as_secs_f64() * 1e6 / (rounds * count) as f64;
    let worst = last.iter().copied().fold(0.0, f64::max);
    let mut table = Table::new(
        &format!("One event to {count} subscribers, {rounds} times"),
        &["median until the last has it, ms", "worst, ms", "CPU us a delivery"],
    );
    table.rows.push(vec![format!("{:.1}", median(last.iter().copied())), format!("{worst:.1}"), format!("{cpu:.1}")]);
    report.tables.push(table);
    report.at_most(&format!("an event reaches the last of {count}, worst of {rounds}"), worst, MOST_LAST_MS, " ms");
    report.data["event"] = json!({"subscribers": count, "last_ms": last, "cpu_us_each": cpu});
    Ok(())
}

/// What publishing takes without subscribers, with some that read, and with some that never do.
fn publisher(options: &Options, count: usize, report: &mut Report) -> Result<(), Failure> {
    let silent = count / 10;
    let rounds = if options.quick { 100 } else { 300 };
    let mut table = Table::new(
        &format!("Publishing {rounds} times: an event of {LARGE} bytes, the next when all that read have it"),
        &["subscribers", "that never read", "p50 ms", "p99 ms", "of a second at once, p50 ms", "p99 ms", "left"],
    );
    let mut p99 = Vec::new();
    for (reading, silent) in [(0, 0), (count, 0), (count - silent, silent)] {
        let (fanin, admin) = server()?;
        let subscribers = match reading {
            0 => None,
            _ => Some(Subscribers::start(fanin.addr, reading, silent, 0)?),
        };
        if let Some(subscribers) = &subscribers {
            subscribers.wait()?;
        }
        let mut publisher = Publisher::connect(fanin.addr, LARGE)?;
        // The connection and the flow are warm, and sockets of those that do not read are full.
        let mut event = 0;
        let mut publish = |measured: bool, first: &mut Vec<f64>, second: &mut Vec<f64>| -> Result<(), Failure> {
            for list in [first, second] {
                let (_, took) = publisher.publish()?;
                if measured {
                    list.push(took.as_secs_f64() * 1e3);
                }
            }
            for _ in 0..2 {
                event += 1;
                if let Some(subscribers) = &subscribers {
                    subscribers.delivered(event)?;
                }
            }
            process::pause(Duration::from_millis(5));
            Ok(())
        };
        let (mut first, mut second) = (Vec::new(), Vec::new());
        for round in 0..20 + rounds {
            publish(round >= 20, &mut first, &mut second)?;
        }
        let left = clients::gauge(admin, "fanin_push_subscribers")?;
        let quantiles = [&mut first, &mut second].map(|times| [0.5, 0.99].map(|share| quantile(times, share)));
        p99.push(quantiles[0][1]);
        let mut row = vec![(reading + silent).to_string(), silent.to_string()];
        row.extend(quantiles.iter().flatten().map(|ms| format!("{ms:.2}")));
        row.push(format!("{left:.0}"));
        table.rows.push(row);
        report.data["publisher"][format!("{reading} and {silent}")] = json!({"first_ms": first, "second_ms": second});
    }
    report.tables.push(table);
    for (at, who) in [(1, "of whom all read"), (2, "of whom a tenth never reads")] {
        let bar = format!("p99 of publishing to {count}, {who}, over that to none");
        report.at_most(&bar, p99[at] - p99[0], MOST_SLOWER_MS, " ms");
    }
    Ok(())
}

fn quantile(times: &mut [f64], share: f64) -> f64 {
    times.sort_by(f64::total_cmp);
    let at = (times.len() as f64 * share).ceil() as usize;
    times.get(at.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}
