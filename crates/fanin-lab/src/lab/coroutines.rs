//! `coroutines`: a million of them, suspended.

use std::cell::{Cell, RefCell};
use std::fs;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use fanin_config::Config;
use fanin_flow::{CallFuture, Caller, Flows, IncomingRequest};
use fanin_upstream::{Answer, CallContext, CallError, Request, Upstream, Upstreams};
use futures_util::future::poll_immediate;
use futures_util::stream::{FuturesUnordered, StreamExt};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::chart::{Axis, Series, bars};
use super::error::LabError;
use super::outcome::{Found, Table, digits};
use super::process::{self, own};
use super::{Context, Experiment};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "coroutines",
    title: "A million suspended",
    asked: "The same team made a million coroutines in 830 ms. How long does it take here, and how much memory does \
    each hold while suspended? Compared are a bare task, a flow that awaits at an `if`, and a thread.",
    run,
};

const STORY_MS: f64 = 830.0;
const MOST_BYTES: f64 = 1.5e9;
const MOST_SECONDS: f64 = 10.0;

/// What one kind took.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Taken {
    count: usize,
    /// Seconds until all are suspended.
    made: f64,
    /// Resident bytes that they added.
    bytes: u64,
    /// Seconds from waking all to the end of the last.
    ended: f64,
}

/// The measuring process.
pub(super) fn role(kind: &str, count: usize) -> Result<Taken, LabError> {
    match kind {
        "tasks" => tasks(count),
        "flows" => flows(count, PLAIN, |_| Ok(Uri::from_static("/"))),
        "flows-query" => flows(count, QUERY, query_of),
        "threads" => threads(count),
        _ => Err(LabError::Wrong(format!("there is no kind {kind:?}"))),
    }
}

fn runtime() -> Result<tokio::runtime::Runtime, LabError> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(LabError::io("making a runtime"))
}

fn tasks(count: usize) -> Result<Taken, LabError> {
    let runtime = runtime()?;
    let (before, start) = (own()?.resident, Instant::now());
    let notify = Arc::new(Notify::new());
    let (waiting, ended) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    tokio::task::LocalSet::new().block_on(&runtime, async move {
        for _ in 0..count {
            let (notify, waiting, ended) = (notify.clone(), waiting.clone(), ended.clone());
            tokio::task::spawn_local(async move {
                waiting.set(waiting.get() + 1);
                notify.notified().await;
                ended.set(ended.get() + 1);
            });
        }
        while waiting.get() < count {
            tokio::task::yield_now().await;
        }
        let made = start.elapsed().as_secs_f64();
        let bytes = own()?.resident.saturating_sub(before);
        let woken = Instant::now();
        while ended.get() < count {
            notify.notify_waiters();
            tokio::task::yield_now().await;
        }
        Ok(Taken { count, made, bytes, ended: woken.elapsed().as_secs_f64() })
    })
}

/// What all calls wait for.
#[derive(Default)]
struct Gate {
    open: Cell<bool>,
    waiting: RefCell<Vec<Waker>>,
}

/// Answers no call until its gate opens.
struct Held(Rc<Gate>);

/// A call that is held. It takes 16 bytes on the heap and one of its waker's clones.
struct HeldCall {
    gate: Rc<Gate>,
    waits: bool,
}

impl Future for HeldCall {
    type Output = Result<Answer, CallError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut std::task::Context<'_>) -> Poll<Self::Output> {
        if !self.gate.open.get() {
            if !self.waits {
                self.gate.waiting.borrow_mut().push(context.waker().clone());
                self.waits = true;
            }
            return Poll::Pending;
        }
        let mut headers = HeaderMap::new();
        headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let body = Bytes::from_static(b"{\"more\": true}");
        Poll::Ready(Ok(Answer {
            status: StatusCode::OK,
            headers: headers.into(),
            body,
            elapsed: Duration::ZERO,
            unrequested_part: false,
        }))
    }
}

impl Caller for Held {
    fn call(&self, _: &Arc<Upstream>, _: Request, _: CallContext) -> CallFuture {
        Box::pin(HeldCall { gate: self.0.clone(), waits: false })
    }
}

const TOML: &str = "[upstreams.a]\nurl = 'http://127.0.0.1:1'\n[[routes]]\npath = '/'\nflow = 'flow.star:flow'\n";
/// Waits at an `if`.
const PLAIN: &str = "
load(\"@upstreams\", \"a\")

def flow(req):
    first = a.get(\"/first\")
    if first[\"more\"]:
        return {\"more\": True}
    return {}
";
/// The same, and holds what it has read from its request.
const QUERY: &str = "
load(\"@upstreams\", \"a\")

def flow(req):
    first = a.get(\"/first\", query = {\"id\": req.query[\"id\"]})
    if first[\"more\"]:
        return {\"id\": req.query[\"id\"], \"more\": True}
    return {}
";

fn query_of(id: usize) -> Result<Uri, LabError> {
    format!("/?id={id}").parse().map_err(|_| LabError::wrong("a URI"))
}

fn flows(count: usize, star: &str, uri: fn(usize) -> Result<Uri, LabError>) -> Result<Taken, LabError> {
    let dir = super::scratch()?;
    for (file, text) in [("fanin.toml", TOML), ("flow.star", star)] {
        fs::write(dir.path().join(file), text).map_err(LabError::io("writing a flow"))?;
    }
    let config = Config::load(dir.path()).map_err(|error| LabError::wrong(error.to_string()))?;
    let upstreams =
        Upstreams::new(config.upstreams.values()).map_err(|_| LabError::wrong("the upstreams are wrong"))?;
    let flows = Flows::load(&config, &upstreams).map_err(|found| LabError::Wrong(format!("{found:?}")))?;
    runtime()?.block_on(async move {
        let gate = Rc::new(Gate::default());
        let worker = Arc::new(flows).worker(Rc::new(Held(gate.clone())), Box::new(|_| {}), fanin_flow::Detail::Nothing);
        let (before, start) = (own()?.resident, Instant::now());
        let now = tokio::time::Instant::now();
        let mut running = FuturesUnordered::new();
        for id in 0..count {
            let incoming = IncomingRequest {
                number: 0,
                known_id: None,
                method: Method::GET,
                uri: uri(id)?,
                params: Vec::new(),
                headers: HeaderMap::new(),
                body: Bytes::new(),
                upload: None,
                remote: ([127, 0, 0, 1], 1).into(),
                identity: None,
                start: now,
                deadline: now + Duration::from_secs(3600),
                trace: None,
                permit: None,
                detail: fanin_flow::Detail::Nothing,
            };
            running.push(worker.run(0, incoming));
            // As they come, not all at the end.
            let _ = poll_immediate(running.next()).await;
        }
        while gate.waiting.borrow().len() < count {
            let _ = poll_immediate(running.next()).await;
        }
        let made = start.elapsed().as_secs_f64();
        let bytes = own()?.resident.saturating_sub(before);
        let woken = Instant::now();
        gate.open.set(true);
        gate.waiting.take().into_iter().for_each(Waker::wake);
        let mut failed = 0;
        while let Some(reply) = running.next().await {
            failed += usize::from(reply.result.is_err());
        }
        if failed > 0 {
            return Err(LabError::Wrong(format!("{failed} flows failed")));
        }
        Ok(Taken { count, made, bytes, ended: woken.elapsed().as_secs_f64() })
    })
}

/// A thread's areas of memory: its stack, the stack of its signal handlers, and a guard to each. One more, for what else a process
/// has.
const AREAS: usize = 5;

/// How many threads the system lets a process have areas of memory for, if it says so. Asking for more than that is no error that
/// could be seen: a thread that has begun and cannot have its second stack ends the process.
pub(super) fn most_threads() -> usize {
    let areas = fs::read_to_string("/proc/sys/vm/max_map_count").unwrap_or_default();
    areas.trim().parse::<usize>().map_or(usize::MAX, |areas| areas / AREAS)
}

/// Threads that wait, as many as can be made up to `count`.
fn threads(count: usize) -> Result<Taken, LabError> {
    let count = count.min(most_threads());
    let before = own()?.resident;
    let kernel_before = kernel_bytes();
    let start = Instant::now();
    let gate = Arc::new((std::sync::Mutex::new(false), std::sync::Condvar::new()));
    let arrived = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let mut made = Vec::new();
    for _ in 0..count {
        let (gate, arrived) = (gate.clone(), arrived.clone());
        let wait = move || {
            arrived.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let open = gate.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            drop(gate.1.wait_while(open, |open| !*open));
        };
        match std::thread::Builder::new().stack_size(512 << 10).spawn(wait) {
            Ok(thread) => made.push(thread),
            Err(_) => break,
        }
    }
    while arrived.load(std::sync::atomic::Ordering::Relaxed) < made.len() {
        std::thread::yield_now();
    }
    let (took, bytes) = (start.elapsed().as_secs_f64(), own()?.resident.saturating_sub(before));
    // Each thread has a stack in the kernel too, which is not in the process's resident memory.
    let kernel = kernel_bytes().saturating_sub(kernel_before);
    let woken = Instant::now();
    *gate.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = true;
    gate.1.notify_all();
    let count = made.len();
    for thread in made {
        let _ = thread.join();
    }
    Ok(Taken { count, made: took, bytes: bytes + kernel, ended: woken.elapsed().as_secs_f64() })
}

/// Stacks that the kernel holds for all threads of the machine.
pub(super) fn kernel_bytes() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("KernelStack:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|number| number.parse::<u64>().ok()).unwrap_or(0) * 1024
}

fn run(context: &Context) -> Result<Found, LabError> {
    let free = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let free = free.lines().find_map(|line| line.strip_prefix("MemAvailable:")).unwrap_or_default();
    let free: u64 = free.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0) * 1024;
    // Twice what the bar allows, lest the machine swap.
    let count = if free > 3_000_000_000 { 1_000_000 } else { (free / 4000) as usize };
    let tasks: Taken = process::role(&context.program, &["coroutines", "tasks", &count.to_string()])?;
    let flows: Taken = process::role(&context.program, &["coroutines", "flows", &count.to_string()])?;
    let query: Taken = process::role(&context.program, &["coroutines", "flows-query", &count.to_string()])?;
    let threads: Taken = process::role(&context.program, &["coroutines", "threads", context.pick("4096", "30000")])?;

    let mut found = Found::default();
    let mut table = Table::new(
        "Made, suspended, woken, ended; one thread drives all but the threads",
        &["kind", "count", "made s", "us each", "bytes each", "total MB", "woken and ended s", "story made s"],
    );
    for (name, taken, story) in [
        ("tokio tasks", &tasks, ""),
        ("Fanin flows that wait at an `if`", &flows, "0.83"),
        ("flows that hold a query besides, and a call with it", &query, ""),
        ("threads that wait", &threads, ""),
    ] {
        table.row([
            name.to_owned(),
            taken.count.to_string(),
            format!("{:.2}", taken.made),
            digits(taken.made * 1e6 / taken.count.max(1) as f64),
            format!("{:.0}", taken.bytes as f64 / taken.count.max(1) as f64),
            format!("{:.0}", taken.bytes as f64 / 1e6),
            format!("{:.2}", taken.ended),
            story.to_owned(),
        ]);
    }
    found.tables.push(table);
    if count == 1_000_000 {
        found.at_most("a million suspended flows, memory", flows.bytes as f64 / 1e9, MOST_BYTES / 1e9, " GB");
        found.at_most("a million suspended flows, time to make them", flows.made, MOST_SECONDS, " s");
    } else {
        found.note(format!("Only {:.1} GB are free, so {count} were made in place of a million.", free as f64 / 1e9));
    }
    let each = |taken: &Taken| taken.bytes as f64 / taken.count.max(1) as f64;
    let time = |taken: &Taken| taken.made * 1e6 / taken.count.max(1) as f64;
    let groups = ["bytes each", "microseconds each, made"];
    let svg = bars(
        "What waits, and what it costs",
        &groups,
        Axis::log(""),
        &[
            Series::new("tokio task", vec![(0.0, each(&tasks)), (1.0, time(&tasks))]),
            Series::new("flow", vec![(0.0, each(&flows)), (1.0, time(&flows))]),
            Series::new("thread", vec![(0.0, each(&threads)), (1.0, time(&threads))]),
            Series::story("story, coroutine", vec![(1.0, STORY_MS * 1e3 / 1e6)]),
        ],
    );
    found.plots.push(("A suspended flow with its request and call, beside a bare task and a thread.".into(), svg));
    found.shows = format!(
        "{} flows, each suspended at an `if`, were made in {:.1} s and hold {:.2} KB each, with request and call. A \
        thread holds \
         {:.0} KB before it does anything.",
        flows.count,
        flows.made,
        each(&flows) / 1e3,
        each(&threads) / 1e3
    );
    found.measured(
        "Each kind runs in a process of its own. Bytes are the growth of its resident memory until all are suspended \
        (for threads, with kernel stacks). Each flow is compiled from Starlark and has a request, one call whose \
        answer is withheld, and an `if` on that answer. There are no sockets. Then all are woken and run to their end.",
    );
    found.note(format!(
        "The story's {STORY_MS} ms are for a million bare JVM coroutines. The flows of that row have a request and a \
        call each. \
         Threads were made up to {}{}.",
        threads.count,
        if threads.count == most_threads() {
            ", which is as many as the system has memory areas for in a process"
        } else {
            ""
        }
    ));
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_made_and_end() {
        for kind in ["tasks", "flows", "flows-query", "threads"] {
            let taken = role(kind, 50).unwrap();
            assert_eq!(taken.count, 50, "{kind}");
        }
        assert!(role("x", 1).is_err());
    }

    #[test]
    fn threads_stay_below_what_ends_the_process() {
        let areas: usize = fs::read_to_string("/proc/sys/vm/max_map_count").unwrap().trim().parse().unwrap();
        assert!(most_threads() > 0 && most_threads() * 4 < areas, "{}", most_threads());
    }
}
