//! `slow-backend`: one of three backends becomes slow or hangs. Who else suffers?

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use fanin_load::{Arrivals, Outcome as Loaded, Plan, Request, Shape};

use super::chart::{Axis, Series, bars};
use super::error::LabError;
use super::outcome::{Found, Table, digits};
use super::process::Served;
use super::stub::{Reply, Stub};
use super::{Context, Experiment};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "slow-backend",
    title: "One of three backends becomes slow, and requests that do not need it wait too",
    asked: "The job site uses a thread for each request. When a backend becomes 2, 4 or 10 times slower, or hangs, \
    all threads can end up blocked on it. Requests that do not need it starve. What do limits and coroutines change?",
    run,
};

/// A backend's usual delay.
const USUAL: Duration = Duration::from_millis(20);
/// Requests a second to each of the three pages; each needs one backend.
const RATE: f64 = 60.0;
/// Three pages of 60 a second that take 20 ms keep 3.6 threads busy. Four times that, by the story's rule for bursts.
const THREADS: usize = 16;
const WAITING: usize = 64;
/// How many times slower; 0 hangs.
const FACTORS: [u64; 5] = [1, 2, 4, 10, 0];

const STAR: &str = "
load(\"@upstreams\", \"first\", \"second\", \"third\")

def page(req):
    name = req.params[\"name\"]
    if name == \"third\":
        return third.get(\"/third\")
    if name == \"second\":
        return second.get(\"/second\")
    return first.get(\"/first\")
";

/// One of the three ways.
#[derive(Clone, Copy)]
struct Way {
    name: &'static str,
    executor: &'static str,
    /// What is said of the slow upstream.
    upstream: &'static str,
}

const WAYS: [Way; 3] = [
    Way {
        name: "threads, no limits",
        executor: "executor = { threads = 16, waiting = 64 }\n",
        upstream: "timeout = '5s'\nlimit = 1000\nmax_waiting = 1000\nbreaker = 'off'\nretry = 'off'\n",
    },
    Way {
        name: "threads, limits",
        executor: "executor = { threads = 16, waiting = 64 }\n",
        upstream: "timeout = '100ms'\nlimit = 6\nmax_waiting = 2\nretry = 'off'\n",
    },
    Way {
        name: "coroutines, no limits",
        executor: "",
        upstream: "timeout = '5s'\nlimit = 1000\nmax_waiting = 1000\nbreaker = 'off'\nretry = 'off'\n",
    },
];

fn toml(stub: &Stub, way: Way) -> String {
    let mut text = String::new();
    for name in ["first", "second", "third"] {
        let said = if name == "third" { way.upstream } else { "timeout = '5s'\nlimit = 1000\nmax_waiting = 1000\n" };
        text.push_str(&format!("[upstreams.{name}]\nurl = '{}'\nmax_connections = 1000\n{said}", stub.url()));
    }
    // One route, as one pool serves all pages of such a service.
    text + "[[routes]]\npath = '/{name}'\nflow = 'flow.star:page'\ntimeout = '5s'\n" + way.executor
}

/// What came of the two pages that do not need the slow backend, and of the one that does.
struct Seen {
    healthy: Loaded,
    slow: Loaded,
}

fn load(served: &Served, seconds: f64) -> Result<Seen, LabError> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(LabError::io("a runtime"))?;
    let plan = |path: &str, rate: f64, seed| -> Result<Plan, LabError> {
        let request = Request::get(&format!("http://{}/{path}", served.addr))?;
        let mut plan = Plan::new(request, Shape::constant(rate, Duration::from_secs_f64(seconds)));
        plan.arrivals = Arrivals::Poisson { seed };
        plan.connections = 5_000;
        plan.max_in_flight = 10_000;
        plan.timeout = Duration::from_secs(6);
        // A page is good if a person would not have noticed.
        plan.good_within = Some(Duration::from_millis(500));
        Ok(plan)
    };
    let (healthy, other, slow) = (plan("first", RATE, 1)?, plan("second", RATE, 2)?, plan("third", RATE, 3)?);
    runtime.block_on(async {
        let (healthy, _, slow) = tokio::try_join!(
            fanin_load::run(&healthy, |_| {}),
            fanin_load::run(&other, |_| {}),
            fanin_load::run(&slow, |_| {})
        )?;
        Ok(Seen { healthy, slow })
    })
}

fn run(context: &Context) -> Result<Found, LabError> {
    let seconds = context.pick(3.0, 7.0);
    let factor = Arc::new(AtomicU64::new(1));
    let mine = factor.clone();
    let stub = Stub::start(false, move |target| {
        let times = if target == "/third" { mine.load(Relaxed) } else { 1 };
        Reply { after: (times > 0).then(|| USUAL * times as u32), json: true, body: "{\"ok\": true}".into() }
    })?;
    let mut found = Found::default();
    let mut table = Table::new(
        format!("two pages that do not need the slow backend, {RATE} requests a second each; a third page that does"),
        &[
            "the third backend is",
            "executor",
            "others: good within 500 ms",
            "others: p50 ms",
            "others: p99 ms",
            "third page: good",
            "third page: p99 ms",
        ],
    );
    let mut charted: Vec<Series> = WAYS.iter().map(|way| Series::new(way.name, Vec::new())).collect();
    let mut worst = [0.0; WAYS.len()];
    let mut hanging = [0.0; WAYS.len()];
    for (group, times) in FACTORS.iter().enumerate() {
        for (at, way) in WAYS.iter().enumerate() {
            factor.store(1, Relaxed);
            let served = Served::start(&context.program, 1, &toml(&stub, *way), STAR)?;
            load(&served, 0.5)?;
            factor.store(*times, Relaxed);
            let seen = load(&served, seconds)?;
            let good = |loaded: &Loaded| format!("{:.1} %", loaded.good_share() * 100.0);
            table.row([
                match times {
                    0 => "hanging".to_owned(),
                    1 => "as usual".to_owned(),
                    times => format!("{times} times slower"),
                },
                way.name.to_owned(),
                good(&seen.healthy),
                digits(seen.healthy.latency.p50),
                digits(seen.healthy.latency.p99),
                good(&seen.slow),
                digits(seen.slow.latency.p99),
            ]);
            charted[at].points.push((group as f64, seen.healthy.good_share() * 100.0));
            worst[at] = f64::max(worst[at], seen.healthy.latency.p99);
            hanging[at] = seen.healthy.good_share() * 100.0;
        }
    }
    found.tables.push(table);
    let groups = ["as usual", "2 times", "4 times", "10 times", "hanging"];
    let svg =
        bars("Pages that do not need the slow backend: good answers, per cent", &groups, Axis::even("%"), &charted);
    found.plots.push((
        "The third backend becomes slower from left to right. Only its own pages should become \
        slower."
            .into(),
        svg,
    ));
    found.shows = format!(
        "With the third backend hanging, {:.0} % of the other pages are still good on threads without limits, {:.0} % \
         with a limit and a short timeout, and {:.0} % on coroutines.",
        hanging[0], hanging[1], hanging[2]
    );
    found.measured(format!(
        "Three backends that answer after {} ms. One route whose flow calls one of them, on a pool of {THREADS} \
        threads with {WAITING} \
         requests that may wait. On average 3.6 threads are busy; four times that is the story's rule for bursts. Open load at {RATE} requests a \
         second for each page with Poisson arrivals, {seconds} s for each row. \
         Requests time out after 5 s. A good answer is a 200 within 500 ms of the scheduled moment.",
        USUAL.as_millis()
    ));
    found.measured(
        "`limits` gives the third backend 6 calls in flight, 2 waiting, a timeout of 100 ms, and a circuit \
    breaker.",
    );
    found.note("The story has no figures for this.");
    Ok(found)
}
