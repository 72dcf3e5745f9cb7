//! Item caches: each item of a batched operation is cached on its own, and only missing keys are requested.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use crate::common::{Script, Setup, after, paused, setup_toml, threaded};
use fanin_upstream::{ErrorKind, Request};

const TOML: &str = r#"
[upstreams.s]
url = "http://127.0.0.1:1"
timeout = "1s"
query_lists = "comma"
retry = { budget = 1.0, floor = 1000 }
[upstreams.s.operations.items]
path = "/items"
params = { ids = "list", fields = "list?" }
batch = { key = "ids", fields = "fields", match = "id" }
cache = { ttl = "10s", stale = "5s", stale_if_error = "60s" }
[upstreams.s.operations.known]
path = "/known"
batch = { key = "ids" }
cache = { ttl = "10s", negative = "3s" }
ok = [404]
[upstreams.s.operations.server_ttl]
path = "/server_ttl"
batch = { key = "ids" }
cache = { ttl = "10s", cache_control = true }
[upstreams.s.operations.put]
method = "PUT"
path = "/items/{id}"
"#;

/// A flow that makes the calls listed in its request's `calls`: one operation, with keys and fields.
fn setup(flow: &str, answers: impl Fn(&str, &Request) -> Script + 'static) -> Setup {
    setup_toml(TOML, &format!("load(\"@upstreams\", \"s\")\ndef flow(req):\n    {flow}\n"), answers)
}

/// Keys and fields of a request.
const ITEMS: &str = "q = req.query\n    return [s.items(part.split(\",\"), q[\"f\"].split(\",\") if \"f\" in q else None) for part in q[\"ids\"].split(\";\")]";

fn list<'r>(request: &'r Request, name: &str) -> Vec<&'r str> {
    let query = request.path_and_query.split_once('?').map_or("", |(_, query)| query);
    let value = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    value.unwrap_or_default().split(',').filter(|one| !one.is_empty()).collect()
}

/// Has keys below 100. Each item holds the number of the request that fetched it.
fn items() -> impl Fn(&str, &Request) -> Script {
    let count = Cell::new(0);
    move |_, request| {
        count.set(count.get() + 1);
        let fields = list(request, "fields");
        let item = |id: &&str| {
            let named =
                fields.iter().filter(|field| **field != "id").map(|field| format!(",\"{field}\":{}", count.get()));
            let all = if fields.is_empty() { format!(",\"n\":{}", count.get()) } else { named.collect() };
            format!("{{\"id\":{id}{all}}}")
        };
        let known = list(request, "ids").into_iter().filter(|id| id.len() < 3);
        after(5, format!("[{}]", known.map(|id| item(&id)).collect::<Vec<_>>().join(",")))
    }
}

fn counted(it: &Setup, what: &str) -> f64 {
    it.metric(&format!("fanin_cache_{what}{{upstream=\"s\",operation=\"items\"}}"))
}

async fn seconds(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

/// The requests, without times.
fn requests(it: &Setup) -> Vec<String> {
    it.events().iter().map(|event| event.split_once(' ').map_or("", |(_, what)| what).to_owned()).collect()
}

#[test]
fn only_missing_keys_are_requested() {
    paused(async {
        let it = setup(ITEMS, items());
        assert_eq!(it.text("/?ids=1,3").await, r#"[[{"id":1,"n":1},{"id":3,"n":1}]]"#);
        assert_eq!(
            it.text("/?ids=3,2,1;4").await,
            r#"[[{"id":3,"n":1},{"id":2,"n":2},{"id":1,"n":1}],[{"id":4,"n":2}]]"#,
            "in the order of the call"
        );
        assert_eq!(it.text("/?ids=4,3;1").await, r#"[[{"id":4,"n":2},{"id":3,"n":1}],[{"id":1,"n":1}]]"#);
        assert_eq!(requests(&it), ["GET s/items?ids=1,3", "GET s/items?ids=2,4"]);
        assert_eq!(
            [counted(&it, "hits_total"), counted(&it, "misses_total"), counted(&it, "entries")],
            [5.0, 4.0, 4.0]
        );
        assert!(counted(&it, "bytes") > 400.0);
        seconds(20).await;
        assert_eq!(it.text("/?ids=1").await, r#"[[{"id":1,"n":3}]]"#);
    });
}

#[test]
fn request_for_more_fields_includes_the_cached_ones() {
    paused(async {
        let it = setup(ITEMS, items());
        for (uri, body) in [
            ("/?ids=1&f=a,b", r#"[[{"id":1,"a":1,"b":1}]]"#),
            ("/?ids=1&f=b", r#"[[{"id":1,"b":1}]]"#),
            ("/?ids=1&f=c", r#"[[{"id":1,"c":2}]]"#),
            ("/?ids=1&f=a,c", r#"[[{"id":1,"c":2,"a":2}]]"#),
            ("/?ids=1", r#"[[{"id":1,"n":3}]]"#),
        ] {
            assert_eq!(it.text(uri).await, body, "{uri}");
        }
        let fields = ["ids=1&fields=a,b,id", "ids=1&fields=c,a,b,id", "ids=1"];
        assert_eq!(requests(&it), fields.map(|query| format!("GET s/items?{query}")));
    });
}

#[test]
fn absences_are_kept_for_as_long_as_they_may_and_a_404_for_its_key_alone() {
    paused(async {
        let known = "q = req.query[\"ids\"].split(\",\")\n    x = s.known(ids = q if len(q) > 1 else q[0])\n    return [x.status, x]";
        let it = setup(known, |_, request| match list(request, "ids").as_slice() {
            ["8"] => after(5, "{}").status(404),
            keys if keys.contains(&"8") => after(5, "{}").status(404),
            _ => after(5, r#"{"1": "one"}"#),
        });
        assert_eq!(it.text("/?ids=1,9").await.replace(' ', ""), r#"[200,{"1":"one"}]"#);
        assert_eq!(it.text("/?ids=9").await, "[200,null]");
        assert_eq!(it.events().len(), 1, "it is known that there is no 9");
        seconds(4).await;
        assert_eq!(it.text("/?ids=9,1").await.replace(' ', ""), r#"[200,{"1":"one"}]"#);
        assert_eq!(requests(&it)[1..], ["GET s/known?ids=9"], "for 3 seconds");
        // A failed answer to several keys is not cached for each of them.
        assert_eq!(it.text("/?ids=5,8").await, "[404,{}]");
        assert_eq!(it.text("/?ids=5").await, "[200,null]");
        assert_eq!(it.text("/?ids=8").await, "[404,{}]");
        let before = it.events().len();
        assert_eq!(it.text("/?ids=8").await, "[404,{}]");
        assert_eq!((it.events().len(), it.text("/?ids=5").await.as_str()), (before, "[200,null]"));
    });
}

#[test]
fn a_404_of_a_batch_that_cannot_be_sent_again_is_nobodys() {
    paused(async {
        let toml = TOML.replace("retry = { budget = 1.0, floor = 1000 }", "retry = \"off\"");
        let flow = "load(\"@upstreams\", \"s\")\ndef flow(req):\n    return [s.known(ids = i).status for i in req.query[\"ids\"].split(\",\")]\n";
        let it = setup_toml(&toml, flow, |_, request| match list(request, "ids").contains(&"8") {
            true => after(5, "{}").status(404),
            false => after(5, r#"{"1": 1}"#),
        });
        assert_eq!(it.text("/?ids=1,8").await, "[404,404]");
        assert_eq!(it.text("/?ids=1").await, "[200]", "the absence was not cached");
    });
}

#[test]
fn stale_items_are_used_and_refreshed() {
    // On the threads executor, no task outlives its flow.
    if threaded() {
        return;
    }
    paused(async {
        let it = setup(ITEMS, items());
        it.text("/?ids=1,2&f=a,b").await;
        seconds(8).await;
        it.text("/?ids=3&f=a").await;
        seconds(4).await;
        let before = it.elapsed();
        let two = futures_util::join!(it.text("/?ids=3,1&f=a"), it.text("/?ids=1,2&f=b"));
        assert_eq!(two.0, r#"[[{"id":3,"a":2},{"id":1,"a":1}]]"#);
        assert_eq!((two.1.as_str(), it.elapsed()), (r#"[[{"id":1,"b":1},{"id":2,"b":1}]]"#, before), "at once");
        seconds(1).await;
        // One request refreshes each item, with all fields that it had.
        assert_eq!(requests(&it)[2..], ["GET s/items?ids=1&fields=a,b,id", "GET s/items?ids=2&fields=a,b,id"]);
        assert_eq!(it.text("/?ids=1,2,3&f=a").await, r#"[[{"id":1,"a":3},{"id":2,"a":4},{"id":3,"a":2}]]"#);
        assert_eq!(counted(&it, "stale_total"), 3.0);
    });
}

#[test]
fn failed_refresh_keeps_items_and_is_repeated() {
    if threaded() {
        return;
    }
    paused(async {
        let broken = Rc::new(Cell::new(false));
        let (state, served) = (broken.clone(), items());
        let it = setup(ITEMS, move |upstream, request| match state.get() {
            true => after(5, "").error(ErrorKind::Connect),
            false => served(upstream, request),
        });
        it.text("/?ids=1").await;
        seconds(11).await;
        broken.set(true);
        for calls in [2, 3] {
            assert_eq!(it.text("/?ids=1").await, r#"[[{"id":1,"n":1}]]"#);
            seconds(1).await;
            assert_eq!(it.events().len(), calls);
        }
        broken.set(false);
        it.text("/?ids=1").await;
        seconds(1).await;
        assert_eq!(it.text("/?ids=1").await, r#"[[{"id":1,"n":2}]]"#);
    });
}

#[test]
fn stale_items_replace_a_failure_if_all_are_cached() {
    paused(async {
        let broken = Rc::new(Cell::new(0));
        let (state, served) = (broken.clone(), items());
        let it = setup(ITEMS, move |upstream, request| match state.get() {
            0 => served(upstream, request),
            1 => after(5, "").error(ErrorKind::Timeout),
            2 => after(5, "{}").status(503),
            _ => after(5, "[{"),
        });
        it.text("/?ids=1,2").await;
        seconds(16).await;
        it.text("/?ids=3").await;
        for kind in 1..=3 {
            broken.set(kind);
            assert_eq!(
                it.text("/?ids=1,3,2").await,
                r#"[[{"id":1,"n":1},{"id":3,"n":2},{"id":2,"n":1}]]"#,
                "failure {kind}"
            );
            assert!(it.run("/?ids=1,4").await.result.is_err(), "of 4 there is nothing");
        }
        assert_eq!(counted(&it, "saved_total"), 6.0);
        seconds(60).await;
        assert!(it.run("/?ids=1,2").await.result.is_err());
    });
}

#[test]
fn thousand_requests_on_a_cold_cache_are_one_request() {
    if threaded() {
        return;
    }
    paused(async {
        let it = setup(ITEMS, items());
        let other = it.worker();
        let run = |at: usize| [&it.flows, &other][at % 2].run(0, it.incoming("/?ids=1,2&f=a"));
        for reply in futures_util::future::join_all((0..1000).map(run)).await {
            let body = reply.result.unwrap_or_else(|error| panic!("{error:?}")).body.concat();
            assert_eq!(body, br#"[[{"id":1,"a":1},{"id":2,"a":1}]]"#);
        }
        assert_eq!(requests(&it), ["GET s/items?ids=1,2&fields=a,id"]);
        assert_eq!(it.metric("fanin_flight_joined_total{upstream=\"s\",operation=\"items\"}"), 999.0);
    });
}

#[test]
fn cancelled_leader_fails_no_follower() {
    if threaded() {
        return;
    }
    paused(async {
        let it = setup(ITEMS, items());
        it.text("/?ids=1").await;
        let mut leader = Box::pin(it.flows.run(0, it.incoming("/?ids=1,2")));
        assert!(futures_util::poll!(&mut leader).is_pending());
        // The follower misses the same keys and has others cached.
        let mut follower = Box::pin(it.flows.run(0, it.incoming("/?ids=2")));
        assert!(futures_util::poll!(&mut follower).is_pending());
        tokio::time::sleep(Duration::from_millis(1)).await;
        drop(leader);
        let body = follower.await.result.unwrap_or_else(|error| panic!("{error:?}")).body.concat();
        assert_eq!(body, br#"[[{"id":2,"n":2}]]"#);
        assert_eq!(requests(&it), ["GET s/items?ids=1", "GET s/items?ids=2"]);
    });
}

#[test]
fn reads_after_a_write_bypass_and_fill_the_cache() {
    paused(async {
        let flow = "a = s.items([1, 2])\n    s.put(id = 1)\n    return [a, s.items([2, 1])]";
        let served = items();
        let it = setup(flow, move |upstream, request| match request.method == http::Method::PUT {
            true => after(5, "{}"),
            false => served(upstream, request),
        });
        for (before, after) in [(1, 2), (2, 3)] {
            let of = |id: u32, n: u32| format!("{{\"id\":{id},\"n\":{n}}}");
            let expected = format!("[[{},{}],[{},{}]]", of(1, before), of(2, before), of(2, after), of(1, after));
            assert_eq!(it.text("/").await, expected);
        }
    });
}

#[test]
fn time_to_live_from_the_answer() {
    // The scripted answers have no such header, so the configured times apply.
    paused(async {
        let it =
            setup("return s.server_ttl(ids = req.query[\"ids\"].split(\",\"))", |_, _| after(5, r#"{"1": 1, "2": 2}"#));
        for uri in ["/?ids=1", "/?ids=1,2", "/?ids=2,1"] {
            it.text(uri).await;
        }
        assert_eq!(requests(&it), ["GET s/server_ttl?ids=1", "GET s/server_ttl?ids=2"]);
    });
}
