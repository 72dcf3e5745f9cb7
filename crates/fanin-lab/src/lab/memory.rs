//! `memory`: threads that come and go, and what allocators make of it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use allocator_api2::alloc::{Allocator, Global, System};
use allocator_api2::vec::Vec as VecIn;
use serde::{Deserialize, Serialize};

use super::chart::{Axis, Series, lines};
use super::error::LabError;
use super::outcome::{Found, Table, digits};
use super::process::{self, Served, own, pause};
use super::stub::{Reply, Stub};
use super::{Context, Experiment};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "memory",
    title: "Threads that start and end, and memory that is not released",
    asked: "An antispam team ran a model server with over 1,000 connections. Its RPC library kept starting and ending \
    threads, and each got an arena of the C library's allocator. Memory grew from 2 GB to 20 GB until the process was \
    killed. A thread-caching allocator kept it at 2 to 2.5 GB. What happens here?",
    run,
};

/// Threads alive at a time, as in the story.
const ALIVE: usize = 50;
/// Bytes that live requests hold, over all threads: what memory should be.
const LIVE: usize = 64 << 20;
const CONNECTIONS: usize = 1_000;

/// Memory over the generations of threads.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Grown {
    /// Megabytes, sampled evenly.
    samples: Vec<f64>,
    /// Megabytes that were in use at the end.
    live: f64,
    seconds: f64,
}

/// The measuring process.
pub(super) fn role(allocator: &str, generations: usize) -> Result<Grown, LabError> {
    match allocator {
        // Through the C library, whatever this program's own allocator is.
        "system" => churn(System, generations),
        // This program's own: mimalloc in `fanin`.
        "ours" => churn(Global, generations),
        _ => Err(LabError::Wrong(format!("there is no allocator {allocator:?}"))),
    }
}

/// Buffers in flight, in order of age.
type Held<A> = Mutex<(VecDeque<VecIn<u8, A>>, usize)>;

/// Threads come, work on requests whose buffers others free later, and go.
fn churn<A: Allocator + Copy + Send + Sync + 'static>(allocator: A, generations: usize) -> Result<Grown, LabError> {
    let held: Arc<Held<A>> = Arc::new(Mutex::new((VecDeque::new(), 0)));
    let start = Instant::now();
    let mut samples = vec![own()?.resident as f64 / 1e6];
    let mut threads: VecDeque<std::thread::JoinHandle<()>> = VecDeque::new();
    let every = (generations / 60).max(1);
    for generation in 0..generations {
        let held = held.clone();
        let work = move || serve(allocator, &held, generation as u64);
        let thread = std::thread::Builder::new().stack_size(256 << 10).spawn(work).map_err(LabError::io("a thread"))?;
        threads.push_back(thread);
        if threads.len() >= ALIVE
            && let Some(oldest) = threads.pop_front()
        {
            let _ = oldest.join();
        }
        if generation % every == 0 {
            samples.push(own()?.resident as f64 / 1e6);
        }
    }
    for thread in threads {
        let _ = thread.join();
    }
    let live = held.lock().unwrap_or_else(PoisonError::into_inner).1 as f64 / 1e6;
    Ok(Grown { samples, live, seconds: start.elapsed().as_secs_f64() })
}

/// One thread's life: some requests, each with buffers of 1 to 512 KB that outlive the thread by a while.
fn serve<A: Allocator + Copy>(allocator: A, held: &Held<A>, seed: u64) {
    let mut random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    for _ in 0..40 {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        // Most are small, some are large: 1 KB to 512 KB.
        let size = 1024 << (random % 10);
        let mut buffer: VecIn<u8, A> = VecIn::with_capacity_in(size, allocator);
        buffer.resize(size, 1);
        let mut scratch: VecIn<u8, A> = VecIn::with_capacity_in(size / 2, allocator);
        scratch.resize(size / 2, 2);
        let mut held = held.lock().unwrap_or_else(PoisonError::into_inner);
        held.1 += size;
        held.0.push_back(buffer);
        // The oldest are freed here, by another thread than the one that made them.
        while held.1 > LIVE {
            let Some(old) = held.0.pop_front() else { break };
            held.1 -= old.len();
        }
        drop(held);
        drop(scratch);
    }
}

/// Threads and megabytes of `fanin serve` over time, under load on 1,000 connections.
fn fanin(context: &Context, seconds: u64) -> Result<Vec<(f64, u64, f64)>, LabError> {
    let stub = Stub::start(false, |_| Reply::json(Duration::from_millis(10), vec![b'7'; 2000]))?;
    let toml = format!(
        "[upstreams.model]\nurl = '{}'\nlimit = 2000\nmax_connections = 1000\nmax_waiting = 2000\ntimeout = '5s'\n\
         [[routes]]\npath = '/score/{{id}}'\nflow = 'flow.star:score'\n",
        stub.url()
    );
    let star = "load(\"@upstreams\", \"model\")\ndef score(req):\n    return model.get(\"/score\", query = {\"id\": \
    req.params[\"id\"]})\n";
    let served = Served::start(&context.program, process::cores().len(), &toml, star)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.map_err(LabError::io("a runtime"))?;
    let request = fanin_load::Request::get(&format!("http://{}/score/7", served.addr))?;
    // Latency of a fifth of a second over 1,000 connections would be 5,000 a second; bursts open them all.
    let shape = fanin_load::Shape::of((0..seconds * 2).map(|half| fanin_load::Segment {
        from: if half % 2 == 0 { 300.0 } else { 3_000.0 },
        to: if half % 2 == 0 { 300.0 } else { 3_000.0 },
        duration: Duration::from_millis(500),
    }));
    let mut plan = fanin_load::Plan::new(request, shape);
    plan.connections = CONNECTIONS;
    let load = runtime.spawn(async move { fanin_load::run(&plan, |_| {}).await });
    let (start, mut samples) = (Instant::now(), Vec::new());
    while !load.is_finished() {
        let usage = served.usage()?;
        samples.push((start.elapsed().as_secs_f64(), usage.threads, usage.resident as f64 / 1e6));
        pause(Duration::from_millis(250));
    }
    runtime.block_on(load).map_err(|error| LabError::wrong(error.to_string()))??;
    Ok(samples)
}

fn run(context: &Context) -> Result<Found, LabError> {
    let generations = context.pick(3_000, 20_000).to_string();
    let role = |allocator: &str| process::role::<Grown>(&context.program, &["memory", allocator, &generations]);
    let (system, ours) = (role("system")?, role("ours")?);
    let seconds = context.pick(8, 30);
    let served = fanin(context, seconds)?;

    let mut found = Found::default();
    let last = |grown: &Grown| grown.samples.last().copied().unwrap_or(f64::NAN);
    let most = |grown: &Grown| grown.samples.iter().copied().fold(0.0, f64::max);
    let mut table = Table::new(
        format!("{generations} threads, {ALIVE} alive at a time, requests of 1 to 512 KB freed by other threads"),
        &["allocator", "in use MB", "resident at the end MB", "most MB", "most over in use", "seconds", "story"],
    );
    for (name, grown, story) in [
        ("the C library's, an arena a thread", &system, "2 GB became 20 GB: 10 times"),
        ("Fanin's (mimalloc)", &ours, "2 to 2.5 GB: 1.25 times"),
    ] {
        table.row([
            name.to_owned(),
            digits(grown.live),
            digits(last(grown)),
            digits(most(grown)),
            format!("{:.2} times", most(grown) / grown.live),
            format!("{:.1}", grown.seconds),
            story.to_owned(),
        ]);
    }
    let threads = |pick: fn(u64, u64) -> u64| served.iter().map(|(_, threads, _)| *threads).reduce(pick).unwrap_or(0);
    let megabytes = |share: f64| {
        let at = ((served.len() as f64 * share) as usize).min(served.len().saturating_sub(1));
        served.get(at).map_or(f64::NAN, |(.., megabytes)| *megabytes)
    };
    let mut fanin_table = Table::new(
        format!("fanin serve, bursts of 3,000 requests a second over up to {CONNECTIONS} connections, {seconds} s"),
        &["", "least", "most", "story"],
    );
    fanin_table.row([
        "threads".to_owned(),
        threads(u64::min).to_string(),
        threads(u64::max).to_string(),
        "kept being made and ended, about 50 at once".to_owned(),
    ]);
    let all: Vec<f64> = served.iter().map(|(.., megabytes)| *megabytes).collect();
    fanin_table.row([
        "resident MB".to_owned(),
        digits(all.iter().copied().fold(f64::INFINITY, f64::min)),
        digits(all.iter().copied().fold(0.0, f64::max)),
        "climbed to 20 GB".to_owned(),
    ]);
    found.tables = vec![table, fanin_table];
    found.holds(
        "the number of fanin's threads does not change under load",
        format!("{} to {}", threads(u64::min), threads(u64::max)),
        threads(u64::min) == threads(u64::max),
    );
    let over = |grown: &Grown| {
        let step = 100.0 / (grown.samples.len().max(2) - 1) as f64;
        grown.samples.iter().enumerate().map(|(at, megabytes)| (at as f64 * step, *megabytes)).collect::<Vec<_>>()
    };
    let svg = lines(
        "Resident memory while threads come and go",
        Axis::even("per cent of the run"),
        Axis::even("MB"),
        &[
            Series::new("the C library's allocator", over(&system)),
            Series::new("Fanin's (mimalloc)", over(&ours)),
            Series::new("in use", vec![(0.0, ours.live), (100.0, ours.live)]),
        ],
    );
    found.plots.push(("The same requests and threads with two allocators.".into(), svg));
    let svg = lines(
        "fanin serve under bursts on 1,000 connections",
        Axis::even("seconds"),
        Axis::even("MB, threads"),
        &[
            Series::new("resident MB", served.iter().map(|(at, _, megabytes)| (*at, *megabytes)).collect()),
            Series::new("threads", served.iter().map(|(at, threads, _)| (*at, *threads as f64)).collect()),
        ],
    );
    found.plots.push(("The number of threads is constant; memory depends on connections, not on time.".into(), svg));
    found.shows = format!(
        "With threads that start and end, the C library's allocator held up to {:.1} times the memory in use, and \
        mimalloc {:.1} times. Fanin does not start such threads: {} throughout, and {} MB half-way as at the end ({} \
        MB).",
        most(&system) / system.live,
        most(&ours) / ours.live,
        threads(u64::max),
        digits(megabytes(0.5)),
        digits(megabytes(1.0))
    );
    found.measured(format!(
        "Hours in short form: {generations} threads one after another, {ALIVE} alive at a time. Each handles 40 \
        requests with buffers of 1 to 512 KB; {} MB stay in use, and later threads free the oldest. Each allocator \
        runs in a process of its own.",
        LIVE >> 20
    ));
    found.note(
        "The C library limits arenas to 8 per core, so memory grows less on a machine with few cores. The story's \
        server also held models and RPC buffers.",
    );
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stays_in_use_is_bounded() {
        for allocator in ["system", "ours"] {
            let grown = role(allocator, 60).unwrap();
            assert!(grown.live > 10.0 && grown.live <= LIVE as f64 / 1e6 + 1.0, "{allocator}: {}", grown.live);
            assert!(grown.samples.len() > 10);
        }
    }
}
