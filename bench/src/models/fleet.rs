//! Two thousand clients that all come anew in waves, while a model is swapped each second: nothing fails, each answer is of one
//! version, and neither threads nor memory grow.
//!
//! All leaves of version V say V/1024, so that the raw score tells which version computed it; the answer says which it was.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::json;
use tokio::runtime::{Builder, LocalOptions};
use tokio::task::spawn_local;
use tokio::time::sleep;

use super::load::{self, ask, connect};
use super::messages::InferResponse;
use super::{Folder, Plans, trees};
use crate::cgroup::Cgroup;
use crate::process::{self, Usage};
use crate::report::{Report, Table};
use crate::{Failure, Options};

const CONNECTIONS: usize = 2000;
const WAVES: u32 = 6;
const MODELS: usize = 10;
const TREES: usize = 300;
const LEAVES: usize = 31;
const FEATURES: usize = 20;
/// Between two requests of a client.
const THINKS: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
struct Seen {
    answers: Cell<u64>,
    failed: RefCell<BTreeMap<String, u64>>,
    mixed: Cell<u64>,
    versions: RefCell<BTreeMap<String, u64>>,
    slowest: Cell<Duration>,
}

fn text(version: u64) -> String {
    trees::constant(TREES, LEAVES, FEATURES, version as f64 / 1024.0)
}

/// Measures.
pub fn run(options: &Options, plans: &Plans, report: &mut Report) -> Result<(), Failure> {
    let duration = match (plans.full, options.quick) {
        (true, _) => Duration::from_secs(600),
        (false, false) => Duration::from_secs(120),
        (false, true) => Duration::from_secs(30),
    };
    let folder = Folder::new("fleet")?;
    let names: Vec<String> = (0..MODELS).map(|number| format!("m{number}")).collect();
    for name in &names {
        folder.put(name, 1, &text(1))?;
    }
    let admin = process::free_port()?;
    // Before the server, so that it is dropped after it.
    let group = Cgroup::new("fanin-bench");
    let fanin = folder.serve_in(group.as_ref().ok(), process::free_port()?, Some(admin), "")?;
    let own = metric(admin, "fanin_models_memory_used_bytes")?;
    let largest = own / MODELS as f64;
    let bound = 1.25 * (own + largest) + 64e6 + 32768.0 * CONNECTIONS as f64;
    let limited = group.as_ref().map_err(String::clone).and_then(|group| {
        group.limit(bound as u64).map_err(|error| error.to_string())?;
        Ok(group)
    });
    let bodies: Vec<Bytes> = names.iter().map(|name| load::request(name, 1, FEATURES, &["raw"])).collect();
    let seen = Rc::new(Seen::default());
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
    let mut usages: Vec<Usage> = Vec::new();
    let mut swaps = 0_u64;
    let begun = Instant::now();
    for wave in 1..=WAVES {
        let end = begun + duration * wave / WAVES;
        runtime.block_on(async {
            let clients: Vec<_> = (0..CONNECTIONS)
                .map(|number| {
                    let (seen, body) = (seen.clone(), bodies[number % MODELS].clone());
                    // They come at once, and then ask at moments of their own.
                    let first = THINKS.mul_f64(number as f64 / CONNECTIONS as f64);
                    spawn_local(client(fanin.addr, body, first, end, seen))
                })
                .collect();
            while Instant::now() + THINKS < end {
                sleep(THINKS).await;
                let (name, version) = (&names[swaps as usize % MODELS], 2 + swaps / MODELS as u64);
                folder.put(name, version, &text(version))?;
                // The one before the last: nobody is sent to it any more.
                if version > 2 {
                    folder.remove(name, version - 2)?;
                }
                swaps += 1;
            }
            usages.push(fanin.usage()?);
            for client in clients {
                // A client never panics; if one did, its answers are missing.
                let _ = client.await;
            }
            Ok::<(), Failure>(())
        })?;
    }
    let (first, last) = (usages.first().copied().unwrap_or_default(), usages.last().copied().unwrap_or_default());
    let refused = metric(admin, "fanin_model_refused_total")?;
    let failed: u64 = seen.failed.borrow().values().sum();
    let mut table = Table::new(
        &format!(
            "{CONNECTIONS} connections, {WAVES} waves of reconnection in {} s, a model swapped each second ({swaps} swaps, {refused:.0} refused)",
            duration.as_secs()
        ),
        &["wave", "resident MB", "peak MB", "threads", "answers so far"],
    );
    for (wave, usage) in usages.iter().enumerate() {
        table.rows.push(vec![
            (wave + 1).to_string(),
            format!("{:.1}", usage.rss as f64 / 1e6),
            format!("{:.1}", usage.peak as f64 / 1e6),
            usage.threads.to_string(),
            if wave + 1 == usages.len() { seen.answers.get().to_string() } else { String::new() },
        ]);
    }
    report.tables.push(table);
    let told = format!("{failed} of {} {:?}", seen.answers.get() + failed, seen.failed.borrow());
    report.holds("fleet: no failed request", told, failed == 0 && refused == 0.0);
    let versions = seen.versions.borrow().len();
    let told = format!("{} mixed, {versions} versions seen", seen.mixed.get());
    report.holds("fleet: every answer is of one version", told, seen.mixed.get() == 0 && versions > 1);
    let same = usages.iter().all(|usage| usage.threads == first.threads);
    report.holds("fleet: threads constant", format!("{} then {}", first.threads, last.threads), same);
    report.at_most("fleet: memory / after the first wave", last.rss as f64 / first.rss as f64, 1.1, "");
    let bar = "fleet: peak MB / (1.25 x (models + largest) + 64 MB + 32 KB a connection)";
    report.at_most(bar, last.peak as f64 / bound, 1.0, "");
    let bar = format!("fleet: a cgroup limit of {:.1} MB is never met", bound / 1e6);
    match limited.and_then(|group| group.met().map_err(|error| error.to_string())) {
        Ok((met, peak)) => {
            report.holds(&bar, format!("met {met} times, peak {:.1} MB", peak as f64 / 1e6), met == 0);
        }
        // Asked for only where one can be set.
        Err(why) => report.holds(&bar, format!("none can be set here: {why}"), true),
    }
    report.data["fleet"] = json!({
        "models_bytes": own, "bound_bytes": bound, "peak_bytes": last.peak, "slowest_ms": seen.slowest.get().as_secs_f64() * 1e3,
        "versions": *seen.versions.borrow(),
    });
    Ok(())
}

/// A number of the admin side.
fn metric(admin: std::net::SocketAddr, name: &str) -> Result<f64, Failure> {
    let (_, body) = crate::load::once(admin, &crate::load::get("/metrics"), Duration::from_secs(10))?;
    let text = String::from_utf8_lossy(&body).into_owned();
    let samples = text.lines().filter(|line| line.starts_with(name) && !line.starts_with('#'));
    Ok(samples.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum())
}

async fn client(addr: std::net::SocketAddr, body: Bytes, first: Duration, end: Instant, seen: Rc<Seen>) {
    let fail = |why: String| *seen.failed.borrow_mut().entry(why).or_default() += 1;
    let mut sender = match connect(addr).await {
        Ok(sender) => sender,
        Err(why) => return fail(why),
    };
    sleep(first.min(end.saturating_duration_since(Instant::now()))).await;
    loop {
        let asked = Instant::now();
        match ask(&mut sender, addr, &body).await {
            Ok(answer) => {
                seen.answers.set(seen.answers.get() + 1);
                if !is_of_one_version(&answer) {
                    seen.mixed.set(seen.mixed.get() + 1);
                }
                *seen.versions.borrow_mut().entry(answer.model_version).or_default() += 1;
                seen.slowest.set(seen.slowest.get().max(asked.elapsed()));
            }
            Err(why) => fail(why),
        }
        if Instant::now() + THINKS >= end {
            return;
        }
        sleep(THINKS).await;
    }
}

fn is_of_one_version(answer: &InferResponse) -> bool {
    let Ok(version) = answer.model_version.parse::<u64>() else { return false };
    let expected = (TREES as u64 * version) as f64 / 1024.0;
    let raw = answer.raw_output_contents.first().and_then(|raw| raw.first_chunk::<8>());
    raw.is_some_and(|raw| f64::from_le_bytes(*raw) == expected)
}
