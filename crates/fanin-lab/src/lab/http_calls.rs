//! `http`: 100 calls in sequence and in parallel.

use std::net::SocketAddr;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use super::chart::{Axis, Series, bars};
use super::client::Client;
use super::error::LabError;
use super::outcome::{Found, Table, digits, mean_and_deviation, median};
use super::process::{Served, cores, on_cores};
use super::stub::{Reply, Stub};
use super::{Context, Experiment};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "http",
    title: "A hundred calls, in sequence and in parallel",
    asked: "A team with coroutines on the JVM measured a service that makes 100 calls of 1.5 ms for each request, in \
    sequence and in parallel. It had 1 and 6 clients on 1, 2 and 4 cores, blocking threads and coroutines.",
    run,
};

const CALLS: usize = 100;
const DELAY: Duration = Duration::from_micros(1500);
/// What the story's parallel call took with coroutines on 1 core; ours must take at most this.
const BAR_MS: f64 = 5.0;

/// Cores, callers, and the story's means: sequential sync and async, parallel sync and async.
const STORY: [(usize, usize, [f64; 4]); 6] = [
    (1, 1, [160.3, 154.1, 163.9, 10.7]),
    (2, 1, [159.3, 156.3, 57.6, 15.4]),
    (4, 1, [159.0, 157.4, 25.7, 14.8]),
    (1, 6, [146.8, 146.3, 984.8, 79.3]),
    (2, 6, [151.3, 143.8, 343.9, 86.7]),
    (4, 6, [152.3, 144.7, 135.0, 81.7]),
];

/// One flow for both executors. The sequence is forced: each call decides on the answer before it.
const STAR: &str = "
load(\"@upstreams\", \"stub\")

def sequential(req):
    sum = 0
    for i in range(100):
        sum += stub.get(\"/one\")[\"n\"]
    return sum

def parallel(req):
    answers = [stub.get(\"/one\") for i in range(100)]
    return [answer[\"n\"] for answer in answers]
";

fn toml(stub: &Stub) -> String {
    let mut text = format!(
        "[upstreams.stub]\nurl = '{}'\ntimeout = '20s'\nlimit = 1024\nmax_waiting = 1024\nmax_connections = 1024\n\
         max_connecting = 64\n[flow]\nmax_calls = 200\n",
        stub.url()
    );
    for flow in ["sequential", "parallel"] {
        text.push_str(&format!("[[routes]]\npath = '/{flow}'\nflow = 'flow.star:{flow}'\ntimeout = '30s'\n"));
        text.push_str(&format!(
            "[[routes]]\npath = '/{flow}-threads'\nflow = 'flow.star:{flow}'\ntimeout = '30s'\n\
             executor = {{ threads = 16, waiting = 16 }}\n"
        ));
    }
    text
}

/// Mean milliseconds of a request, by `callers` that ask one after another for at least `least` requests each and `time`.
fn asked(addr: SocketAddr, path: &str, callers: usize, least: usize, time: Duration) -> Result<(f64, f64), LabError> {
    let (sender, results) = channel();
    for _ in 0..callers {
        let (sender, path) = (sender.clone(), path.to_owned());
        std::thread::spawn(move || {
            let ask = || -> Result<Vec<f64>, LabError> {
                let mut client = Client::connect(addr)?;
                for _ in 0..2 {
                    client.ok(&path)?;
                }
                let mut took = Vec::new();
                let start = Instant::now();
                while took.len() < least || start.elapsed() < time {
                    let begin = Instant::now();
                    client.ok(&path)?;
                    took.push(begin.elapsed().as_secs_f64() * 1e3);
                }
                Ok(took)
            };
            let _ = sender.send(ask());
        });
    }
    drop(sender);
    let mut all = Vec::new();
    for took in results {
        all.extend(took?);
    }
    Ok((mean_and_deviation(&all).0, median(&all)))
}

/// What the story's blocking side does with parallel calls: a pool of as many threads as cores, each makes one call at a time.
fn blocking_pool(stub: SocketAddr, threads: usize, callers: usize, times: usize) -> Result<f64, LabError> {
    let mut all = Vec::new();
    for _ in 0..times {
        let calls = std::sync::atomic::AtomicUsize::new(0);
        let start = Instant::now();
        let done: Vec<Result<(), LabError>> = std::thread::scope(|scope| {
            let work = || -> Result<(), LabError> {
                let mut client = Client::connect(stub)?;
                // All callers share the pool, so a request ends when its calls and those before it have ended.
                while calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed) < CALLS * callers {
                    client.ok("/one")?;
                }
                Ok(())
            };
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or(Err(LabError::wrong("a thread panicked"))))
                .collect()
        });
        done.into_iter().collect::<Result<Vec<()>, _>>()?;
        all.push(start.elapsed().as_secs_f64() * 1e3);
    }
    Ok(mean_and_deviation(&all).0)
}

fn run(context: &Context) -> Result<Found, LabError> {
    let here = cores();
    let (Some(first), Some(last)) = (here.first(), here.last()) else { return Err(LabError::wrong("no core")) };
    let alone = first != last;
    let stub = on_cores(&[*last], || Stub::start(false, |_| Reply::json(DELAY, "{\"n\": 1}")))??;
    let (least, time) = context.pick((3, Duration::from_millis(400)), (20, Duration::from_secs(4)));

    let mut found = Found::default();
    let mut sequential = Table::new(
        "100 calls of 1.5 ms in sequence, mean ms of a request",
        &["", "threads executor", "coroutines", "story sync", "story async"],
    );
    let mut parallel = Table::new(
        "the same in parallel, mean ms of a request",
        &["", "blocking pool, a thread a core", "threads executor", "coroutines", "story sync", "story async"],
    );
    let mut bar = f64::NAN;
    let mut chart = [Vec::new(), Vec::new(), Vec::new(), Vec::new()];
    let mut groups = Vec::new();
    for (cores_wanted, callers, story) in STORY {
        if cores_wanted > here.len() {
            continue;
        }
        let use_cores = &here[..cores_wanted];
        let name = format!("{cores_wanted} core{}, {callers} caller{}", plural(cores_wanted), plural(callers));
        let served = on_cores(use_cores, || Served::start(&context.program, cores_wanted, &toml(&stub), STAR))??;
        let ask = |path: &str| on_cores(&[*last], || asked(served.addr, path, callers, least, time))?;
        let mean = |path: &str| ask(path).map(|(mean, _)| mean);
        sequential.row([
            name.clone(),
            digits(mean("/sequential-threads")?),
            digits(mean("/sequential")?),
            digits(story[0]),
            digits(story[1]),
        ]);
        let pool = on_cores(use_cores, || blocking_pool(stub.addr, cores_wanted, callers, context.pick(2, 10)))??;
        let threads = mean("/parallel-threads")?;
        let (coroutines, middle) = ask("/parallel")?;
        if (cores_wanted, callers) == (1, 1) {
            bar = middle;
        }
        let at = groups.len() as f64;
        for (list, value) in chart.iter_mut().zip([pool, threads, coroutines, story[3]]) {
            list.push((at, value));
        }
        groups.push(name.clone());
        parallel.row([name, digits(pool), digits(threads), digits(coroutines), digits(story[2]), digits(story[3])]);
    }
    found.tables = vec![sequential, parallel];
    found.at_most("parallel, coroutines, 1 core, 1 caller: 100 calls, median", bar, BAR_MS, " ms");
    let [pool, threads, coroutines, story] = chart;
    let names: Vec<&str> = groups.iter().map(String::as_str).collect();
    let svg = bars(
        "100 calls at once: milliseconds a request",
        &names,
        Axis::log("ms"),
        &[
            Series::new("blocking pool", pool),
            Series::new("threads executor", threads),
            Series::new("coroutines", coroutines.clone()),
            Series::story("story, coroutines", story),
        ],
    );
    found.plots.push((
        "In parallel a pool of blocking threads makes as many calls at once as it has threads; a flow sends all at \
        once."
            .into(),
        svg,
    ));
    found.shows = format!(
        "In sequence all versions wait alike. In parallel a flow makes 100 calls in {} ms on one core; a pool of one \
        blocking thread takes {:.0} times as long.",
        digits(bar),
        found_ratio(&found.tables[1])
    );
    found.measured(format!(
        "`fanin serve` runs on 1 and 2 cores with a worker each. The stub answers after exactly 1.5 ms{}. Each client \
        sends one request after another on its own connection, for at least {least} requests and {} s. The flow is \
        the same for both \
         executors; `sequential` decides on each answer before the next call.",
        if alone { ", on the last core, beside the callers" } else { ", on the same core as all else" },
        time.as_secs_f64()
    ));
    found.measured(
        "The story's blocking version made parallel calls on a pool with one thread per core. The column `blocking \
        pool` repeats that with the standard library's sockets and no server in front. With several clients it is the \
        time until the calls of all are done. Fanin's threads executor sends a request's calls at once and blocks one \
        thread for all.",
    );
    if here.len() < 4 {
        found.note(format!("This machine has {} cores; the story's rows with more are left out.", here.len()));
    }
    Ok(found)
}

fn found_ratio(parallel: &Table) -> f64 {
    let cell = |at: usize| parallel.rows.first().and_then(|row| row[at].parse::<f64>().ok()).unwrap_or(f64::NAN);
    cell(1) / cell(3)
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}
