//! The threads executor: all tests of flows once more, and tests of its pools.

// `many_flows.rs` is a program of its own, too, and declares `common` itself.
#![allow(clippy::duplicate_mod)]

#[path = "flows/batches.rs"]
mod batches;
mod common;
#[path = "flows/effects.rs"]
mod effects;
#[path = "flows/failure.rs"]
mod failure;
#[path = "flows/grpc.rs"]
mod grpc;
#[path = "flows/item_cache.rs"]
mod item_cache;
#[path = "many_flows.rs"]
mod many_flows;
#[path = "flows/merge_equivalence.rs"]
mod merge_equivalence;
#[path = "flows/parallel.rs"]
mod parallel;
#[path = "flows/requests.rs"]
mod requests;
#[path = "flows/sequential_waits.rs"]
mod sequential_waits;
#[path = "flows/shop.rs"]
mod shop;
#[path = "flows/single_flight.rs"]
mod single_flight;
#[path = "flows/snapshots.rs"]
mod snapshots;
#[path = "flows/sql.rs"]
mod sql;
#[path = "flows/unsafe_paths.rs"]
mod unsafe_paths;

use std::rc::Rc;
use std::time::Duration;

use common::{after, paused, setup_with};
use fanin_flow::Reply;
use prometheus_client::registry::Registry;
use tokio::task::{JoinHandle, spawn_local};

const ONE_CALL: &str = "def flow(req):\n    return a.get(\"/x\", query = {\"n\": req.query[\"n\"]})\n";
const ONE_THREAD: &str = "executor = { threads = 1, waiting = 1 }";

fn start(it: &Rc<common::Setup>, n: u32) -> JoinHandle<Reply> {
    let it = it.clone();
    spawn_local(async move { it.run(&format!("/?n={n}")).await })
}

async fn kind(run: JoinHandle<Reply>) -> &'static str {
    run.await.unwrap().result.map_or_else(|error| error.kind, |_| "answered")
}

fn metric(it: &common::Setup, name: &str) -> i64 {
    let mut registry = Registry::default();
    it.all.register(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no {name} in {text}"));
    line.rsplit(' ').next().unwrap().parse::<f64>().unwrap() as i64
}

#[test]
fn full_queue_refuses_at_once() {
    paused(async {
        let it = Rc::new(setup_with(ONE_CALL, ONE_THREAD, |_, _| after(5, "1")));
        let (first, second, third) = (start(&it, 1), start(&it, 2), start(&it, 3));
        let error = third.await.unwrap().result.unwrap_err();
        assert_eq!((error.status.as_u16(), error.kind, it.elapsed()), (503, "threads", 0));
        assert!(error.retry_after.is_some());
        assert_eq!((metric(&it, "fanin_pool_busy"), metric(&it, "fanin_pool_waiting")), (1, 1));
        assert_eq!(metric(&it, "fanin_pool_threads_limit"), 1);
        assert_eq!((kind(first).await, it.elapsed()), ("answered", 5));
        assert_eq!((kind(second).await, it.elapsed()), ("answered", 10));
        assert_eq!(it.events(), ["0 GET a/x?n=1", "5 GET a/x?n=2"]);
        assert_eq!((metric(&it, "fanin_pool_busy"), metric(&it, "fanin_pool_waiting")), (0, 0));
        assert_eq!((metric(&it, "fanin_pool_threads{"), metric(&it, "fanin_pool_refused_total")), (1, 1));
        assert_eq!(metric(&it, "fanin_pool_wait_seconds_count"), 2);
    });
}

#[test]
fn deadline_while_queued_frees_the_queue_entry() {
    paused(async {
        let it = setup_with(ONE_CALL, ONE_THREAD, |_, _| after(50, "1")).timeout(20);
        let it = Rc::new(it);
        let mut slow = it.incoming("/?n=1");
        slow.deadline += Duration::from_millis(100);
        let first = spawn_local(it.flows.run(0, slow));
        let second = start(&it, 2);
        assert_eq!((kind(second).await, it.elapsed()), ("deadline", 20));
        let third = start(&it, 3);
        assert_eq!((kind(third).await, it.elapsed()), ("deadline", 40), "there was a place in the queue");
        assert_eq!((kind(first).await, it.elapsed()), ("answered", 50));
        assert_eq!(it.events(), ["0 GET a/x?n=1"]);
    });
}

#[test]
fn disconnect_while_queued_frees_the_queue_entry() {
    paused(async {
        let it = Rc::new(setup_with(ONE_CALL, ONE_THREAD, |_, _| after(5, "1")));
        let (first, second) = (start(&it, 1), start(&it, 2));
        tokio::time::sleep(Duration::from_millis(1)).await;
        second.abort();
        let _ = second.await;
        let third = start(&it, 3);
        assert_eq!((kind(first).await, kind(third).await), ("answered", "answered"));
        assert_eq!(it.events(), ["0 GET a/x?n=1", "5 GET a/x?n=3"]);
    });
}

#[test]
fn disconnect_during_a_call_frees_the_thread() {
    paused(async {
        let it = Rc::new(setup_with(ONE_CALL, ONE_THREAD, |_, _| after(5000, "1")));
        let first = start(&it, 1);
        tokio::time::sleep(Duration::from_millis(1)).await;
        first.abort();
        let _ = first.await;
        while metric(&it, "fanin_pool_busy") > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(it.events(), ["0 GET a/x?n=1", "cancelled GET a/x?n=1"]);
    });
}

#[test]
fn computing_flow_ends_at_its_deadline_or_on_disconnect() {
    let star = "def flow(req):\n    n = 0\n    for i in range(100000000):\n        n += i\n    return n\n";
    // In real time, so no duration is asserted.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let it =
        setup_with(star, "executor = { threads = 1, waiting = 1 }\nmax_steps = 1000000000000", |_, _| after(0, "1"));
    let it = Rc::new(it.timeout(50));
    tokio::task::LocalSet::new().block_on(&runtime, async {
        assert_eq!(kind(start(&it, 1)).await, "deadline");
        let left = start(&it, 2);
        tokio::task::yield_now().await;
        left.abort();
        let _ = left.await;
        while metric(&it, "fanin_pool_busy") > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
}

#[test]
fn a_few_threads_serve_many_requests_in_real_time() {
    let star = "
def part(n):
    x = a.get(\"/x\", query = {\"n\": n})
    return b.get(\"/y\", query = {\"n\": n})[\"v\"] + 1 if x[\"v\"] % 2 == 0 else x[\"v\"]

def flow(req):
    n = int(req.query[\"n\"])
    return [part(n), part(n + 1)]
";
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let answers = |_: &str, request: &fanin_upstream::Request| {
        let n: u64 = request.path_and_query.split("n=").nth(1).unwrap().parse().unwrap();
        after(n % 3, format!("{{\"v\": {n}}}"))
    };
    let it = Rc::new(setup_with(star, "executor = { threads = 7, waiting = 1000 }", answers));
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let runs: Vec<_> = (0..600).map(|n| start(&it, n)).collect();
        for (n, run) in runs.into_iter().enumerate() {
            let body = run.await.unwrap().result.unwrap().body.concat();
            let part = |n: usize| if n.is_multiple_of(2) { n + 1 } else { n };
            assert_eq!(String::from_utf8(body).unwrap(), format!("[{},{}]", part(n), part(n + 1)));
        }
        assert_eq!(metric(&it, "fanin_pool_threads{"), 7);
    });
}

/// Threads become idle while others are being started for the same queue. A request reserved for a new thread must not be counted twice.
#[test]
fn workers_share_a_pool() {
    const WORKERS: u32 = 4;
    const REQUESTS: u32 = 400;
    for _ in 0..5 {
        let toml = "executor = { threads = 3, waiting = 100 }";
        let it = setup_with("def flow(req):\n    return req.query[\"n\"]\n", toml, |_, _| after(0, "1"));
        let all = it.all.clone();
        let workers: Vec<_> = (0..WORKERS)
            .map(|_| {
                let all = all.clone();
                std::thread::spawn(move || {
                    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                    tokio::task::LocalSet::new().block_on(&runtime, async {
                        let caller = Rc::new(fanin_upstream::WorkerClient::new());
                        let flows = all.worker(caller, Box::new(|_| {}), fanin_flow::Detail::Nothing);
                        for n in 0..REQUESTS {
                            let reply =
                                flows.run(0, common::incoming(&format!("/?n={n}"), Duration::from_secs(60))).await;
                            assert_eq!(reply.result.unwrap().body.concat(), format!("\"{n}\"").into_bytes());
                        }
                    });
                })
            })
            .collect();
        for worker in workers {
            worker.join().unwrap();
        }
        // A thread that has sent its reply has not returned to the queue yet.
        while metric(&it, "fanin_pool_busy") > 0 {
            std::thread::yield_now();
        }
        assert_eq!(metric(&it, "fanin_pool_waiting"), 0);
        assert!((1..=3).contains(&metric(&it, "fanin_pool_threads{")));
    }
}
