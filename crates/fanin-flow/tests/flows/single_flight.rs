//! Single-flight and caches: what identical calls share, and what they must not share.

use std::time::Duration;

use crate::common::{Script, Setup, after, paused, setup_toml, threaded};
use fanin_flow::IncomingRequest;
use fanin_upstream::{ErrorKind, Request};

const TOML: &str = r#"
[upstreams.c]
url = "http://127.0.0.1:1"
timeout = "1s"
forward_headers = ["authorization", "x-request-id"]
[upstreams.c.operations.flown]
path = "/flown/{id}"
single_flight = true
[upstreams.c.operations.cached]
path = "/cached/{id}"
cache = { ttl = "10s", stale = "5s", stale_if_error = "60s", negative = "3s" }
ok = [404]
[upstreams.c.operations.keyed]
path = "/keyed"
batch = { key = "ids" }
cache = { ttl = "10s" }
[upstreams.c.operations.put]
method = "PUT"
path = "/cached/{id}"
[upstreams.other]
url = "http://127.0.0.1:1"
"#;

fn setup(flow: &str, answers: impl Fn(&str, &Request) -> Script + 'static) -> Setup {
    let star = format!("load(\"@upstreams\", \"c\", \"other\")\ndef flow(req):\n    {flow}\n");
    setup_toml(TOML, &star, answers)
}

fn of(it: &Setup, user: &'static str, id: &'static str) -> IncomingRequest {
    let mut incoming = it.incoming("/");
    incoming.headers.insert("authorization", http::HeaderValue::from_static(user));
    incoming.headers.insert("x-request-id", http::HeaderValue::from_static(id));
    incoming
}

fn body(reply: fanin_flow::Reply) -> String {
    String::from_utf8(reply.result.unwrap_or_else(|error| panic!("{error:?}")).body.concat()).unwrap()
}

async fn seconds(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

const CACHED: &str = "return c.cached(id = 7)";

#[test]
fn thousand_requests_on_a_cold_cache_are_one_call() {
    // On the threads executor, no task outlives its flow.
    if threaded() {
        return;
    }
    paused(async {
        let it = setup(CACHED, |_, _| after(5, "{\"n\": 1.50}"));
        let other = it.worker();
        let all = (0..1000).map(|at| {
            let workers = [&it.flows, &other];
            workers[at % 2].run(0, it.incoming("/"))
        });
        for reply in futures_util::future::join_all(all).await {
            assert_eq!(body(reply), "{\"n\": 1.50}");
        }
        assert_eq!(it.events(), ["0 GET c/cached/7"]);
        assert_eq!(it.metric("fanin_flight_joined_total{upstream=\"c\",operation=\"cached\"}"), 999.0);
        assert_eq!(it.text("/").await, "{\"n\": 1.50}");
        assert_eq!((it.events().len(), it.elapsed()), (1, 5), "kept");
        assert_eq!(it.metric("fanin_cache_hits_total{upstream=\"c\",operation=\"cached\"}"), 1.0);
        assert_eq!(it.metric("fanin_cache_entries{upstream=\"c\",operation=\"cached\"}"), 1.0);
    });
}

#[test]
fn two_users_never_share_an_answer() {
    for flow in ["return c.flown(id = 7)", CACHED, "return c.keyed(ids = [1])"] {
        paused(async {
            let answer = |_: &str, request: &Request| {
                let user = request.headers.get("authorization").and_then(|user| user.to_str().ok()).unwrap_or("");
                after(5, format!("{{\"1\": \"{user}\"}}"))
            };
            let it = setup(flow, answer);
            for _ in 0..2 {
                let (a, b, again) = futures_util::join!(
                    it.flows.run(0, of(&it, "a", "1")),
                    it.flows.run(0, of(&it, "b", "2")),
                    it.flows.run(0, of(&it, "a", "3"))
                );
                let user = |reply| body(reply).replace(' ', "");
                assert_eq!([user(a), user(b), user(again)], ["{\"1\":\"a\"}", "{\"1\":\"b\"}", "{\"1\":\"a\"}"]);
            }
            let expected = if flow.contains("flown") { 4 } else { 2 };
            assert_eq!(
                it.events().len(),
                expected,
                "the same user's are shared, whatever their ids: {:?}",
                it.events()
            );
        });
    }
}

#[test]
fn cancelled_leader_fails_no_follower() {
    // On the threads executor, no task outlives its flow.
    if threaded() {
        return;
    }
    paused(async {
        let it = setup("return c.flown(id = 7)", |_, _| after(50, "1"));
        let mut leader = Box::pin(it.flows.run(0, it.incoming("/")));
        assert!(futures_util::poll!(&mut leader).is_pending());
        let follower = it.flows.run(0, it.incoming("/"));
        let mut follower = Box::pin(follower);
        assert!(futures_util::poll!(&mut follower).is_pending());
        tokio::time::sleep(Duration::from_millis(10)).await;
        drop(leader);
        assert_eq!(body(follower.await), "1");
        assert_eq!(it.elapsed(), 50, "the same call");
        assert_eq!(it.events(), ["0 GET c/flown/7"]);
    });
}

#[test]
fn flight_ends_with_its_last_waiter() {
    paused(async {
        let it = setup("return c.flown(id = 7)", |_, _| after(500, "1"));
        let mut both: Vec<_> = (0..2).map(|_| Box::pin(it.flows.run(0, it.incoming("/")))).collect();
        for one in &mut both {
            assert!(futures_util::poll!(one).is_pending());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
        both.pop();
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert_eq!(it.events().len(), 1);
        both.pop();
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert_eq!(it.events(), ["0 GET c/flown/7", "cancelled GET c/flown/7"]);
    });
}

#[test]
fn follower_waits_until_its_own_deadline() {
    paused(async {
        let it = setup("return c.flown(id = 7)", |_, _| after(300, "1")).timeout(100);
        let first = it.flows.run(0, it.incoming("/"));
        let mut patient = it.incoming("/");
        patient.deadline += Duration::from_secs(1);
        let (first, second) = futures_util::join!(first, it.flows.run(0, patient));
        assert_eq!(first.result.map(|_| ()).expect_err("it was too short").kind, "upstream-timeout");
        assert_eq!(body(second), "1");
        // On the threads executor, the first request's call ends with it, and the second request makes its own.
        let calls = it.events().iter().filter(|event| !event.starts_with("cancelled")).count();
        assert_eq!(calls, if threaded() { 2 } else { 1 });
    });
}

#[test]
fn failure_is_shared_and_not_cached() {
    paused(async {
        let it = setup(CACHED, |_, _| after(5, "1").error(ErrorKind::Connect));
        let (a, b) = futures_util::join!(it.run("/"), it.run("/"));
        for reply in [a, b] {
            assert_eq!(reply.result.map(|_| ()).expect_err("a failure").kind, "upstream-unreachable");
        }
        assert_eq!(it.events().len(), 1);
        it.error("/").await;
        assert_eq!(it.events().len(), 2);
    });
}

#[test]
fn stale_while_revalidate() {
    // On the threads executor, no task outlives its flow.
    if threaded() {
        return;
    }
    paused(async {
        let count = std::cell::Cell::new(0);
        let it = setup(CACHED, move |_, _| {
            count.set(count.get() + 1);
            after(100, count.get().to_string())
        });
        assert_eq!(it.text("/").await, "1");
        seconds(11).await;
        let before = it.elapsed();
        assert_eq!((it.text("/").await.as_str(), it.text("/").await.as_str()), ("1", "1"));
        assert_eq!(it.elapsed(), before, "at once");
        seconds(1).await;
        assert_eq!(it.text("/").await, "2");
        assert_eq!(it.events().len(), 2, "fetched once");
        seconds(100).await;
        assert_eq!(it.text("/").await, "3");
        assert_eq!(it.metric("fanin_cache_stale_total{upstream=\"c\",operation=\"cached\"}"), 2.0);
    });
}

#[test]
fn stale_if_error() {
    paused(async {
        let broken = std::rc::Rc::new(std::cell::Cell::new(0));
        let state = broken.clone();
        let it = setup(CACHED, move |_, _| match state.get() {
            0 => after(5, "1"),
            1 => after(5, "").error(ErrorKind::Timeout),
            _ => after(5, "{}").status(503),
        });
        assert_eq!(it.text("/").await, "1");
        for kind in [1, 2] {
            broken.set(kind);
            seconds(20).await;
            assert_eq!(it.text("/").await, "1");
        }
        assert_eq!(it.events().len(), 3, "each called the upstream first");
        seconds(60).await;
        assert_eq!(it.error("/").await.kind, "upstream-status");
        assert_eq!(it.metric("fanin_cache_saved_total{upstream=\"c\",operation=\"cached\"}"), 2.0);
    });
}

#[test]
fn negative_caching() {
    paused(async {
        let it = setup("x = c.cached(id = 7)\n    return x.status", |_, _| after(5, "{}").status(404));
        for (pause, calls) in [(0, 1), (2, 1), (2, 2)] {
            seconds(pause).await;
            assert_eq!(it.text("/").await, "404");
            assert_eq!(it.events().len(), calls);
        }
    });
}

#[test]
fn reads_after_a_write_bypass_the_cache() {
    paused(async {
        let value = std::rc::Rc::new(std::cell::Cell::new(1));
        let state = value.clone();
        let it = setup(
            "before = c.cached(id = 7)\n    c.put(id = 7)\n    return [before, c.cached(id = 7), other.get(\"/x\")]",
            move |upstream, request| {
                if request.method == http::Method::PUT {
                    state.set(state.get() + 1);
                }
                after(5, if upstream == "other" { "0".to_owned() } else { state.get().to_string() })
            },
        );
        assert_eq!(it.text("/").await, "[1,2,0]");
        // The read after the write fetched the newest answer, which is cached.
        assert_eq!(it.text("/").await, "[2,3,0]");
        let reads = it.events().iter().filter(|event| event.contains("GET c/")).count();
        assert_eq!(reads, 3, "{:?}", it.events());
    });
}

#[test]
fn a_batch_can_be_cached_too() {
    paused(async {
        let it = setup("a = c.keyed(ids = [1, 2])\n    b = c.keyed(ids = 2)\n    return [a, b]", |_, _| {
            after(5, r#"{"1": {"x": 1}, "2": [2], "3": 3}"#)
        });
        for _ in 0..3 {
            assert_eq!(it.text("/").await.replace(' ', ""), r#"[{"1":{"x":1},"2":[2]},[2]]"#);
        }
        assert_eq!(it.events(), ["0 GET c/keyed?ids=1&ids=2"]);
        let (a, b) = futures_util::join!(it.text("/?x"), it.text("/?y"));
        assert_eq!(a, b);
        assert_eq!(it.events().len(), 1);
    });
}

#[test]
fn cached_calls_count_towards_max_calls() {
    paused(async {
        let it = setup("return [c.cached(id = 7) for i in range(65)]", |_, _| after(5, "1"));
        assert_eq!(it.error("/").await.kind, "flow", "max_calls");
        let it = setup("return [c.cached(id = 7) for i in range(64)]", |_, _| after(5, "1"));
        assert_eq!(it.run("/").await.calls, 64);
        assert_eq!(it.events().len(), 1);
    });
}
