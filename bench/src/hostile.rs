//! `hostile`: ten programs that use all they may run on the one worker, again and again. How long do other requests wait
//! for it meanwhile?

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::load;
use crate::process::{self, OTHER_CORE};
use crate::report::{Report, Table};
use crate::workload::{Workload, bare};
use crate::{Failure, Options, servers};

const PROGRAMS: [&str; 18] = [
    "nested",
    "loops",
    "doubling",
    "building",
    "splitting",
    "lists",
    "deep",
    "sorting",
    "dicts",
    "comparing",
    "decoding",
    "integers",
    "formats",
    "words",
    "copies",
    "ordering",
    "equals",
    "remainders",
];
/// So many of them run at the same time.
const AT_ONCE: usize = 10;
const MOST_RISE_MS: f64 = 5.0;
/// The p99 of this many requests.
const PROBES: usize = 400;
const PAUSE: Duration = Duration::from_millis(3);
/// Milliseconds of p99 with nothing running, beside a program: with more it is the machine beneath that is late, and the program is
/// run again.
const MOST_IDLE_MS: f64 = 3.0;
/// So often at most, all programs together.
const AGAIN: usize = 18;

/// Runs the benchmark with all programs, or only those.
pub fn run(options: &Options, only: &[String]) -> Result<Report, Failure> {
    if let Some(unknown) = only.iter().find(|program| !PROGRAMS.contains(&program.as_str())) {
        return Err(Failure::Wrong(format!("there is no program {unknown}")));
    }
    process::pin(OTHER_CORE)?;
    let stub = servers::stub()?;
    let fanin = servers::fanin("hostile", &stub, None)?;
    Workload::Raw.verify(fanin.addr, &load::get("/raw"), bare).map_err(Failure::Wrong)?;
    let probes = if options.quick { PROBES / 2 } else { PROBES };
    let mut report = Report::new("hostile");
    let mut table = Table::new(
        &format!("Another route's requests while {AT_ONCE} such programs run"),
        &["program", "stopped", "p50 ms", "p99 ms", "slowest ms", "p99 idle ms", "p99 rises by ms"],
    );
    let mut all = serde_json::Map::new();
    let mut again = 0;
    let mut before = probe(fanin.addr, probes)?;
    for program in PROGRAMS.into_iter().filter(|program| only.is_empty() || only.iter().any(|one| one == program)) {
        loop {
            let (busy, stopped) = beside(fanin.addr, program, probes)?;
            let after = probe(fanin.addr, probes)?;
            // The machine may be busier by now: what counts as idle is measured around the program.
            let idle = (before.p99 + after.p99) / 2.0;
            let late = before.p99.max(after.p99) > MOST_IDLE_MS;
            before = after;
            if late && again < AGAIN {
                again += 1;
                continue;
            }
            table.rows.push(row(program, stopped, &busy, idle));
            report.at_most(&format!("{program}: p99 of others rises by"), busy.p99 - idle, MOST_RISE_MS, " ms");
            let of = json!({"stopped": stopped, "p50": busy.p50, "p99": busy.p99, "max": busy.max, "idle p99": idle});
            all.insert(program.to_owned(), of);
            break;
        }
    }
    if again > 0 {
        table.title += &format!(
            "; {again} runs, beside which the p99 was over {MOST_IDLE_MS} ms with nothing running, were run again and are not here"
        );
    }
    report.tables.push(table);
    report.data = json!({"programs": all, "run again": again});
    Ok(report)
}

struct Latencies {
    p50: f64,
    p99: f64,
    max: f64,
}

fn row(name: &str, stopped: u64, busy: &Latencies, idle: f64) -> Vec<String> {
    let figures = [busy.p50, busy.p99, busy.max, idle, busy.p99 - idle].map(|figure| format!("{figure:.2}"));
    [name.into(), stopped.to_string()].into_iter().chain(figures).collect()
}

/// Other requests while the program runs, and how often it was stopped.
fn beside(addr: SocketAddr, program: &'static str, probes: usize) -> Result<(Latencies, u64), Failure> {
    let (stop, stopped) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let attackers: Vec<_> = (0..AT_ONCE)
        .map(|_| {
            let (stop, stopped) = (Arc::clone(&stop), Arc::clone(&stopped));
            std::thread::spawn(move || attack(addr, program, &stop, &stopped))
        })
        .collect();
    process::pause(Duration::from_millis(100));
    let busy = probe(addr, probes)?;
    stop.store(true, Ordering::Relaxed);
    for attacker in attackers {
        attacker.join().map_err(|_| Failure::Wrong(format!("{program}: an attacker panicked")))??;
    }
    Ok((busy, stopped.load(Ordering::Relaxed)))
}

/// Requests one after another, with pauses, so that they come at all points of the others' turns.
fn probe(addr: SocketAddr, count: usize) -> Result<Latencies, Failure> {
    let mut latencies = Vec::with_capacity(count);
    for _ in 0..count {
        let start = Instant::now();
        let (status, _) = load::once(addr, &load::get("/raw"), Duration::from_secs(30))?;
        if status != 200 {
            return Err(Failure::Wrong(format!("another route answers {status}")));
        }
        latencies.push(start.elapsed().as_secs_f64() * 1e3);
        process::pause(PAUSE);
    }
    latencies.sort_by(f64::total_cmp);
    let at = |share: f64| latencies[((latencies.len() - 1) as f64 * share).round() as usize];
    Ok(Latencies { p50: at(0.5), p99: at(0.99), max: at(1.0) })
}

/// Runs a program again and again. Each time it must be stopped by a limit.
fn attack(addr: SocketAddr, program: &str, stop: &AtomicBool, stopped: &AtomicU64) -> Result<(), Failure> {
    while !stop.load(Ordering::Relaxed) {
        let (status, body) = load::once(addr, &load::get(&format!("/hostile/{program}")), Duration::from_secs(90))?;
        if status != 500 {
            let body = String::from_utf8_lossy(&body[..body.len().min(200)]).into_owned();
            return Err(Failure::Wrong(format!("{program} is answered {status}: {body}")));
        }
        stopped.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}
