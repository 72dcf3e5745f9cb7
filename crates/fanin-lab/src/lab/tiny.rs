//! `tiny`: how small may a task be before a coroutine costs more than it saves?

use std::time::{Duration, Instant};

use super::chart::{Axis, Series, lines};
use super::error::LabError;
use super::outcome::{Found, Table, digits, median};
use super::{Context, Experiment};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "tiny",
    title: "When a task is too small for a coroutine",
    asked: "\"Tiny tasks do not pay\", said the team with coroutines. How small is tiny? From how much work on does \
    splitting it into tasks save time?",
    run,
};

/// Work of a task in steps of about a nanosecond.
const WORK: [u32; 7] = [10, 30, 100, 300, 1_000, 10_000, 100_000];

/// So many dependent additions and shifts, about 1 ns each.
fn work(steps: u32) -> u64 {
    let mut x = u64::from(steps) | 1;
    for _ in 0..steps {
        x ^= x << 13;
        x ^= x >> 7;
    }
    x
}

fn inline(tasks: u32, steps: u32) -> Duration {
    let start = Instant::now();
    for _ in 0..tasks {
        std::hint::black_box(work(steps));
    }
    start.elapsed()
}

fn spawned(runtime: &tokio::runtime::Runtime, tasks: u32, steps: u32) -> Duration {
    runtime.block_on(async {
        // From a task of the runtime's own threads, as a server would.
        let all = tokio::spawn(async move {
            let start = Instant::now();
            let tasks: Vec<_> =
                (0..tasks).map(|_| tokio::spawn(async move { std::hint::black_box(work(steps)) })).collect();
            for task in tasks {
                let _ = task.await;
            }
            start.elapsed()
        });
        all.await.unwrap_or_default()
    })
}

fn threads(tasks: u32, steps: u32) -> Duration {
    let start = Instant::now();
    for _ in 0..tasks {
        let thread = std::thread::Builder::new().stack_size(128 << 10).spawn(move || std::hint::black_box(work(steps)));
        let _ = thread.map(|thread| thread.join());
    }
    start.elapsed()
}

fn run(context: &Context) -> Result<Found, LabError> {
    let turns = context.pick(5, 15);
    let failed = || LabError::io("a runtime");
    let one = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed())?;
    let cores = super::process::cores().len().min(2);
    let two =
        tokio::runtime::Builder::new_multi_thread().worker_threads(cores).enable_all().build().map_err(failed())?;
    let mut found = Found::default();
    let mut table = Table::new(
        "nanoseconds a task, the median of several turns",
        &[
            "work of a task",
            "inline",
            "task, 1 thread",
            "it adds",
            "task, 2 threads",
            "against inline",
            "thread of its own",
        ],
    );
    let (mut on_two, mut on_one, mut by_thread) = (Vec::new(), Vec::new(), Vec::new());
    let mut costs = Vec::new();
    for steps in WORK {
        let tasks = (20_000_000 / steps.max(400)).clamp(200, 20_000);
        let each = |took: Duration, count: u32| took.as_secs_f64() * 1e9 / f64::from(count);
        let (mut times, few) = ([Vec::new(), Vec::new(), Vec::new(), Vec::new()], tasks.min(300));
        for _ in 0..turns {
            times[0].push(each(inline(tasks, steps), tasks));
            times[1].push(each(spawned(&one, tasks, steps), tasks));
            times[2].push(each(spawned(&two, tasks, steps), tasks));
            times[3].push(each(threads(few, steps), few));
        }
        let [alone, single, double, thread] = times.map(|list| median(&list));
        costs.push(single - alone);
        on_one.push((alone, single / alone));
        on_two.push((alone, double / alone));
        by_thread.push((alone, thread / alone));
        table.row([
            format!("{} ns", digits(alone)),
            digits(alone),
            digits(single),
            digits(single - alone),
            digits(double),
            format!("{:.2} times", double / alone),
            digits(thread),
        ]);
    }
    found.tables.push(table);
    let even = Series::new("as long as inline", on_two.iter().map(|(at, _)| (*at, 1.0)).collect());
    let svg = lines(
        "Time of a task against the same work inline",
        Axis::log("work of a task, ns"),
        Axis::log("times as long"),
        &[
            Series::new("tasks on 1 thread", on_one),
            Series::new("tasks on 2 threads", on_two.clone()),
            Series::new("a thread each", by_thread),
            even,
        ],
    );
    found
        .plots
        .push(("Below 1 a task saves time. Left of where its line crosses 1, the work is too small.".into(), svg));
    let crossing = on_two.iter().find(|(_, times)| *times < 1.0).map(|(work, _)| *work);
    let cost = median(&costs[..3]);
    found.shows = match crossing {
        Some(work) => format!(
            "A task costs about {} ns to make, wake and end. On two cores it pays from about {} ns of work on. Calls \
            to backends take a thousand times that, so running them in parallel always pays.",
            digits(cost),
            digits(work)
        ),
        None => format!(
            "A task costs about {} ns to make, wake and end; on this machine none of these sizes paid.",
            digits(cost)
        ),
    };
    found.measured(format!(
        "The same work, repeated up to 20,000 times: in a plain loop, as tokio tasks on one thread, as tokio tasks on \
        {cores} threads, and on a new thread each time. {turns} interleaved rounds; medians."
    ));
    found.note("The story gives no figures for this.");
    Ok(found)
}
