//! `sql`: waiting for a connection by time, or by number?

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_postgres::Client;

use super::chart::{Axis, Series, lines};
use super::error::LabError;
use super::outcome::{Found, Table, digits, quantile};
use super::postgres::Database;
use super::process::{Served, pause};
use super::{Context, Experiment};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "sql",
    title: "Bound how many wait for a connection, not how long",
    asked: "The team with coroutines had a pool of 4 connections, and three queries of 30 ms per request, one after \
    another. The blocking version waits up to a second for a connection. The asynchronous one refuses at once when 33 \
    are waiting. What happens above the database's capacity, and after the load has stopped?",
    run,
};

const CONNECTIONS: usize = 4;
const QUERIES: u32 = 3;
/// Calls that may wait for a connection in the asynchronous version, as in the story.
const MAX_WAITING: usize = 33;
/// How long a thread waits for a connection in the blocking version, as in the story.
const PATIENCE: Duration = Duration::from_secs(1);
/// Threads of the blocking version.
const THREADS: usize = 64;
/// A client that has no answer by then has gone away.
const CLIENT: Duration = Duration::from_secs(10);
/// A scan of 5,000 rows without an index, and sleep up to 30 ms: a disk's part of it, so that any machine takes as long.
const QUERY: &str = "select count(*) from pg_sleep(0.029), generate_series(1, 5000) n where n % 100 = $1";
/// The same in Fanin: each query decides on the one before it.
const STAR: &str = "
load(\"@upstreams\", \"db\")

def page(req):
    found = 0
    for i in range(3):
        found += db.rows(i)[\"count\"]
    return {\"found\": found}
";

/// One request's end.
#[derive(Debug, Clone, Copy)]
struct Done {
    /// When it was due, from the start.
    due: f64,
    /// Milliseconds.
    latency: f64,
    good: bool,
}

type Results = Arc<Mutex<Vec<Done>>>;

/// Connections of the blocking version: whoever finds none waits for one, by time, first come first served, as pools do.
struct Blocking {
    free: Mutex<Vec<Client>>,
    places: Semaphore,
    queue: Mutex<(VecDeque<(f64, Instant)>, bool)>,
    work: Condvar,
}

impl Blocking {
    fn query(&self, runtime: &tokio::runtime::Handle) -> bool {
        let wait = async { tokio::time::timeout(PATIENCE, self.places.acquire()).await };
        let Ok(Ok(_place)) = runtime.block_on(wait) else { return false };
        let Some(client) = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop() else { return false };
        let answered = runtime.block_on(client.query(QUERY, &[&7i32])).is_ok();
        self.free.lock().unwrap_or_else(PoisonError::into_inner).push(client);
        answered
    }

    /// A thread of the server: takes requests, oldest first, whatever has become of their clients.
    fn serve(&self, runtime: &tokio::runtime::Handle, start: Instant, results: &Results) {
        loop {
            let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
            let mut queue = self
                .work
                .wait_while(queue, |queue| queue.0.is_empty() && !queue.1)
                .unwrap_or_else(PoisonError::into_inner);
            let Some((due, _)) = queue.0.pop_front() else { return };
            drop(queue);
            let answered = (0..QUERIES).all(|_| self.query(runtime));
            let latency = start.elapsed().as_secs_f64() - due;
            results.lock().unwrap_or_else(PoisonError::into_inner).push(Done {
                due,
                latency: latency * 1e3,
                good: answered && latency < CLIENT.as_secs_f64(),
            });
        }
    }
}

/// The moments of requests: `rate` a second for `load`, then one a second as a probe for `after`.
fn schedule(rate: f64, load: f64, after: f64) -> Vec<f64> {
    let loaded = (0..(rate * load) as u32).map(|number| f64::from(number) / rate);
    loaded.chain((0..after as u32).map(|second| load + f64::from(second) + 0.5)).collect()
}

fn blocking(database: &Database, rate: f64, load: f64, after: f64) -> Result<Vec<Done>, LabError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.map_err(LabError::io("a runtime"))?;
    let clients = runtime.block_on(database.connect(CONNECTIONS))?;
    let shared = Arc::new(Blocking {
        free: Mutex::new(clients),
        places: Semaphore::new(CONNECTIONS),
        queue: Mutex::new((VecDeque::new(), false)),
        work: Condvar::new(),
    });
    let results: Results = Arc::default();
    let start = Instant::now();
    let mut threads = Vec::new();
    for _ in 0..THREADS {
        let (shared, handle, results) = (shared.clone(), runtime.handle().clone(), results.clone());
        let serve = move || shared.serve(&handle, start, &results);
        let thread =
            std::thread::Builder::new().stack_size(512 << 10).spawn(serve).map_err(LabError::io("a thread"))?;
        threads.push(thread);
    }
    let mut offered = Vec::new();
    for due in schedule(rate, load, after) {
        pause(Duration::from_secs_f64((due - start.elapsed().as_secs_f64()).max(0.0)));
        let mut queue = shared.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.0.push_back((due, Instant::now()));
        drop(queue);
        shared.work.notify_one();
        offered.push(due);
    }
    pause(Duration::from_secs(1));
    // What is still in the queue has no answer; the last ones have not waited for as long as a client does, but would.
    {
        let mut queue = shared.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.0.clear();
        queue.1 = true;
    }
    shared.work.notify_all();
    for thread in threads {
        let _ = thread.join();
    }
    let mut done = results.lock().unwrap_or_else(PoisonError::into_inner).clone();
    for due in offered {
        if !done.iter().any(|one| one.due == due) {
            done.push(Done { due, latency: CLIENT.as_secs_f64() * 1e3, good: false });
        }
    }
    Ok(done)
}

fn asynchronous(database: &Database, rate: f64, load: f64, after: f64) -> Result<Vec<Done>, LabError> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(LabError::io("a runtime"))?;
    runtime.block_on(async {
        let clients = Arc::new(Mutex::new(database.connect(CONNECTIONS).await?));
        let (places, waiting) = (Arc::new(Semaphore::new(CONNECTIONS)), Arc::new(AtomicU32::new(0)));
        let results: Results = Arc::default();
        let start = Instant::now();
        let mut tasks = tokio::task::JoinSet::new();
        for due in schedule(rate, load, after) {
            tokio::time::sleep_until((start + Duration::from_secs_f64(due)).into()).await;
            let (clients, places, waiting, results) =
                (clients.clone(), places.clone(), waiting.clone(), results.clone());
            tasks.spawn(async move {
                let mut good = true;
                for query in 0..QUERIES {
                    good = one(&clients, &places, &waiting, query > 0).await;
                    if !good {
                        break;
                    }
                }
                let latency = start.elapsed().as_secs_f64() - due;
                let good = good && latency < CLIENT.as_secs_f64();
                results.lock().unwrap_or_else(PoisonError::into_inner).push(Done { due, latency: latency * 1e3, good });
            });
        }
        while tasks.join_next().await.is_some() {}
        let done = results.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Ok(done)
    })
}

/// Fanin's own upstream, with the same bound: a server of its own, asked over a connection for each request.
fn upstream(context: &Context, database: &Database, rate: f64, load: f64, after: f64) -> Result<Vec<Done>, LabError> {
    let toml = format!(
        "[upstreams.db]\npostgres = '{}'\nlimit = {CONNECTIONS}\nmax_waiting = {MAX_WAITING}\ntimeout = '10s'\nretry \
        = 'off'\n\
         breaker = 'off'\n[upstreams.db.statements.rows]\nsql = '{QUERY}'\nparams = ['value']\nrows = 'one'\n\
         [[routes]]\npath = '/'\nflow = 'flow.star:page'\ntimeout = '10s'\n",
        database.url()
    );
    let served = Served::start(&context.program, 1, &toml, STAR)?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(LabError::io("a runtime"))?;
    runtime.block_on(async {
        // Until it has its connections.
        for _ in 0..CONNECTIONS {
            if !ask(served.addr).await {
                return Err(LabError::wrong("fanin serve did not answer from PostgreSQL"));
            }
        }
        let start = Instant::now();
        let mut tasks = tokio::task::JoinSet::new();
        for due in schedule(rate, load, after) {
            tokio::time::sleep_until((start + Duration::from_secs_f64(due)).into()).await;
            let addr = served.addr;
            tasks.spawn(async move {
                let good = ask(addr).await;
                let latency = start.elapsed().as_secs_f64() - due;
                Done { due, latency: latency * 1e3, good: good && latency < CLIENT.as_secs_f64() }
            });
        }
        let done = tasks.join_all().await;
        Ok(done)
    })
}

/// Whether a request is answered with 200.
async fn ask(addr: SocketAddr) -> bool {
    let asked = async {
        let mut stream = TcpStream::connect(addr).await?;
        stream.write_all(b"GET / HTTP/1.1\r\nhost: lab\r\nconnection: close\r\n\r\n").await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        Ok::<_, std::io::Error>(answer.starts_with(b"HTTP/1.1 200 "))
    };
    asked.await.unwrap_or(false)
}

/// One query: refused at once when as many wait as may. A request that has been let in is not refused half-way: the bound
/// holds for first queries.
async fn one(clients: &Mutex<Vec<Client>>, places: &Semaphore, waiting: &AtomicU32, admitted: bool) -> bool {
    let place = match places.try_acquire() {
        Ok(place) => place,
        Err(_) if !admitted && waiting.load(Relaxed) >= MAX_WAITING as u32 => return false,
        Err(_) => {
            waiting.fetch_add(1, Relaxed);
            let place = places.acquire().await;
            waiting.fetch_sub(1, Relaxed);
            let Ok(place) = place else { return false };
            place
        }
    };
    let client = clients.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let Some(client) = client else { return false };
    let answered = client.query(QUERY, &[&7i32]).await.is_ok();
    clients.lock().unwrap_or_else(PoisonError::into_inner).push(client);
    drop(place);
    answered
}

/// What came of a run.
struct Summary {
    goodput: f64,
    p50: f64,
    worst: f64,
    /// Of the requests after the load, one a second: the share that was answered.
    after: f64,
    /// Median of what a request that was not answered waited for its refusal.
    refused: f64,
}

fn summary(done: &[Done], load: f64) -> Summary {
    let during: Vec<&Done> = done.iter().filter(|one| one.due < load).collect();
    let sorted = |good: bool| {
        let mut all: Vec<f64> = during.iter().filter(|one| one.good == good).map(|one| one.latency).collect();
        all.sort_by(f64::total_cmp);
        all
    };
    let (good, bad) = (sorted(true), sorted(false));
    let later: Vec<&Done> = done.iter().filter(|one| one.due >= load).collect();
    Summary {
        // What ends after the load is no more than the database can do: it has nothing else to do then.
        goodput: during.iter().filter(|one| one.good && one.due + one.latency / 1e3 <= load).count() as f64 / load,
        p50: quantile(&good, 0.5),
        worst: quantile(&good, 1.0),
        after: later.iter().filter(|one| one.good && one.latency < 1e3).count() as f64 / later.len().max(1) as f64,
        refused: quantile(&bad, 0.5),
    }
}

fn run(context: &Context) -> Result<Found, LabError> {
    let database = Database::find()?;
    let (load, after) = context.pick((5.0, 3.0), (12.0, 4.0));
    let rates: &[f64] = if context.quick { &[30.0, 90.0] } else { &[40.0, 66.0, 90.0] };
    let mut found = Found::default();
    let mut table = Table::new(
        format!("{load} s of load, then {after} s with a request a second"),
        &[
            "offered a second",
            "way",
            "answered a second",
            "p50 ms",
            "longest ms",
            "a refusal takes ms",
            "answered within 1 s after the load",
            "story",
        ],
    );
    let capacity = CONNECTIONS as f64 / (f64::from(QUERIES) * 0.030);
    let mut charted = [Vec::new(), Vec::new(), Vec::new()];
    let mut last = Vec::new();
    for rate in rates {
        for (at, (name, done)) in [
            ("threads, by time: 1 s", blocking(&database, *rate, load, after)?),
            ("coroutines, by number: 33", asynchronous(&database, *rate, load, after)?),
            ("a flow on Fanin's PostgreSQL upstream, 33", upstream(context, &database, *rate, load, after)?),
        ]
        .into_iter()
        .enumerate()
        {
            let seen = summary(&done, load);
            let over = *rate > capacity;
            let story = match (at, over) {
                (2, _) => "",
                (_, false) => "both the same up to 50 a second",
                (0, true) => "11 s at 66 a second, then timeouts, even after the load stops",
                (_, true) => "730 ms at 54 a second, serves at the database's capacity, refuses the rest at once",
            };
            table.row([
                format!("{rate:.0}"),
                name.to_owned(),
                format!("{:.1}", seen.goodput),
                digits(seen.p50),
                digits(seen.worst),
                if seen.refused.is_nan() { String::new() } else { digits(seen.refused) },
                format!("{:.0} %", seen.after * 100.0),
                story.to_owned(),
            ]);
            charted[at].push((*rate, seen.goodput));
            if rate == rates.last().unwrap_or(rate) {
                last.push(seen);
            }
        }
    }
    found.tables.push(table);
    let [by_time, by_number, by_fanin] = charted;
    let top = rates.last().copied().unwrap_or(0.0);
    let svg = lines(
        "Requests answered a second by requests offered",
        Axis::even("offered a second"),
        Axis::even("answered a second"),
        &[
            Series::new("threads, waiting bounded by time (1 s)", by_time),
            Series::new("coroutines, by number (33)", by_number),
            Series::new("Fanin's upstream, by number (33)", by_fanin),
            Series::new("what the database can do", vec![(rates[0], capacity), (top, capacity)]),
        ],
    );
    found
        .plots
        .push(("Above the database's capacity, only versions that refuse at once still use all of it.".into(), svg));
    let [time, number, fanin] = &last[..] else { return Err(LabError::wrong("no rows")) };
    found.shows = format!(
        "At {top:.0} requests a second, where the database can do {capacity:.0}, a bound on time answers {:.1} a \
        second, a bound on the number {:.1}, and a \
         flow on Fanin's upstream {:.1}, with refusals after {} ms.",
        time.goodput,
        number.goodput,
        fanin.goodput,
        digits(fanin.refused)
    );
    found.measured(format!(
        "PostgreSQL {}; {CONNECTIONS} connections; a query scans 5,000 rows without an index and sleeps up to about \
        30 ms; \
         {QUERIES} in sequence per request; open load. By time: {THREADS} threads take requests from a queue. Each waits up to {} s for a \
         connection, for each query. By number: a request whose first query finds {MAX_WAITING} waiting is refused. Fanin: `fanin serve` with \
         `limit = {CONNECTIONS}` and `max_waiting = {MAX_WAITING}`, the oldest request's call first. Clients time out after {} s; \
         later answers do not count.",
        database.version(),
        PATIENCE.as_secs(),
        CLIENT.as_secs()
    ));
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_tells_load_and_after_apart() {
        let done = |due, latency, good| Done { due, latency, good };
        let all = [
            done(0.0, 90.0, true),
            done(0.5, 110.0, true),
            done(0.6, 1.0, false),
            // Answered, but not while the load lasted.
            done(1.9, 200.0, true),
            done(2.5, 95.0, true),
            done(3.5, 5000.0, true),
        ];
        let seen = summary(&all, 2.0);
        assert_eq!((seen.goodput, seen.p50, seen.worst), (1.0, 110.0, 200.0));
        assert_eq!((seen.refused, seen.after), (1.0, 0.5));
        assert_eq!(schedule(2.0, 1.0, 2.0), [0.0, 0.5, 1.5, 2.5]);
    }
}
