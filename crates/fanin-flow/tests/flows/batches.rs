//! Batches: which calls are sent together, when, and what each gets.

use crate::common::{Script, Setup, after, paused, setup_toml, threaded};
use fanin_upstream::{ErrorKind, Request};

const SHOP: &str = r#"
[upstreams.first]
url = "http://127.0.0.1:1"
[upstreams.shop]
url = "http://127.0.0.1:1"
query_lists = "comma"
retry = { budget = 1.0, floor = 1000 }
forward_headers = ["authorization"]
[upstreams.shop.operations.products]
path = "/products"
params = { ids = "list", fields = "list?", lang = { type = "string", default = "en" } }
batch = { key = "ids", fields = "fields", match = "id", max_keys = 30 }
[upstreams.shop.operations.prices]
path = "/prices"
batch = { key = "ids" }
[upstreams.shop.operations.shared]
path = "/products"
params = { ids = "list" }
batch = { key = "ids", match = "id", linger = "5ms", share = true, max_keys = 4 }
[upstreams.shop.operations.rename]
method = "PUT"
path = "/products/{id}"
"#;

const LOAD: &str = "load(\"@upstreams\", \"first\", \"shop\")\n";

fn query(request: &Request, name: &str) -> Option<String> {
    let (_, query) = request.path_and_query.split_once('?')?;
    let pair = query.split('&').find_map(|pair| pair.strip_prefix(&format!("{name}=")))?;
    Some(pair.replace("%20", " "))
}

fn ids(request: &Request) -> Vec<String> {
    query(request, "ids").unwrap_or_default().split(',').filter(|id| !id.is_empty()).map(str::to_owned).collect()
}

/// A shop with all products below 100.
fn products(request: &Request) -> String {
    let fields = query(request, "fields");
    let item = |id: &String| {
        let all = [("id", id.clone()), ("name", format!("\"n{id}\"")), ("price", format!("{id}.50"))];
        let wanted = |name: &str| fields.as_ref().is_none_or(|fields| fields.split(',').any(|field| field == name));
        let members = all.iter().filter(|(name, _)| wanted(name)).map(|(name, value)| format!("\"{name}\": {value}"));
        format!("{{{}}}", members.collect::<Vec<_>>().join(", "))
    };
    let known = ids(request).into_iter().filter(|id| id.parse::<u32>().is_ok_and(|id| id < 100));
    format!("[{}]", known.map(|id| item(&id)).collect::<Vec<_>>().join(", "))
}

fn shop(flow: &str, answers: impl Fn(&str, &Request) -> Script + 'static) -> Setup {
    setup_toml(SHOP, &format!("{LOAD}{flow}"), answers)
}

fn simple(flow: &str) -> Setup {
    shop(flow, |_, request| after(5, products(request)))
}

#[test]
fn calls_of_one_round_are_one_request() {
    paused(async {
        let it = simple(
            "def flow(req):\n    a = shop.products([1, 2], [\"name\"])\n    b = shop.products(ids = [3, 2], fields = [\"price\"])\n    c = shop.products(200)\n    d = shop.products([])\n    return [a, b, c, d]\n",
        );
        let expected =
            r#"[[{"id":1,"name":"n1"},{"id":2,"name":"n2"}],[{"id":3,"price":3.50},{"id":2,"price":2.50}],null,[]]"#;
        assert_eq!(it.text("/").await, expected);
        assert_eq!(it.events(), ["0 GET shop/products?lang=en&ids=1,2,3,200"], "one wants whole items, so no fields");
        assert_eq!(it.elapsed(), 5);
        assert_eq!(it.metric("fanin_batch_calls_sum{upstream=\"shop\",operation=\"products\"}"), 3.0);
        assert_eq!(it.metric("fanin_batch_keys_count{upstream=\"shop\",operation=\"products\"}"), 1.0);
    });
}

#[test]
fn fields_are_united_and_each_call_gets_its_own() {
    paused(async {
        let it = simple(
            "def flow(req):\n    a = shop.products([1], [\"name\"])\n    b = shop.products(1, fields = [\"price\"])\n    return {\"a\": a, \"name\": a[0][\"name\"], \"b\": b, \"price\": b[\"price\"], \"n\": len(a)}\n",
        );
        assert_eq!(
            it.text("/").await,
            r#"{"a":[{"id":1,"name":"n1"}],"name":"n1","b":{"id":1,"price":1.50},"price":1.50,"n":1}"#
        );
        assert_eq!(it.events(), ["0 GET shop/products?lang=en&ids=1&fields=name,price,id"]);
    });
}

#[test]
fn part_of_an_answer_as_response() {
    paused(async {
        let it = simple("def flow(req):\n    other = shop.products([7])\n    return shop.products([1, 2])\n");
        assert_eq!(
            it.text("/").await,
            r#"[{"id": 1, "name": "n1", "price": 1.50},{"id": 2, "name": "n2", "price": 2.50}]"#
        );
        let it = simple(
            "def flow(req):\n    other = shop.products([7])\n    one = shop.products([1])\n    return [one.status, one.text, one.headers[\"x-from\"], one.headers.get(\"etag\"), one.failed]\n",
        );
        assert_eq!(it.text("/").await, r#"[200,"[{\"id\": 1, \"name\": \"n1\", \"price\": 1.50}]","shop",null,false]"#);
    });
}

#[test]
fn calls_that_differ_in_anything_else_do_not_merge() {
    paused(async {
        let it = simple(
            "def flow(req):\n    return [shop.products([1], lang = \"de\"), shop.products([2]), shop.products([3], headers = {\"x\": \"1\"}), shop.prices(ids = [4])]\n",
        );
        it.run("/").await;
        assert_eq!(it.events().len(), 4, "{:?}", it.events());
    });
}

const JITTER: &str = "
def one(i):
    if first.get(\"/first\", query = {\"i\": i})[\"more\"]:
        return shop.products(i)
    return None

def flow(req):
    return [one(i) for i in range(20)]
";

#[test]
fn twenty_items_whose_first_answers_jitter_are_at_most_three_requests() {
    paused(async {
        // Tokio's clock has milliseconds, so half of them come one later.
        let it = shop(JITTER, |upstream, request| match upstream {
            "first" => after(5 + u64::from(request.path_and_query.len() % 2 == 0), "{\"more\": true}"),
            _ => after(5, products(request)),
        });
        let body = it.text("/").await;
        assert!(body.starts_with(r#"[{"id": 0"#) && body.contains(r#""name": "n19""#), "{body}");
        let sent = it.events().iter().filter(|event| event.contains("shop")).count();
        assert!(sent <= 3, "{sent} requests");
    });
}

#[test]
fn linger_bounds_the_wait_for_another_call() {
    paused(async {
        let flow = "def flow(req):\n    more = first.get(\"/ids\", optional = True)\n    return [shop.products([1]), shop.products(more[\"ids\"])]\n";
        let at = |delay| {
            shop(flow, move |upstream, request| match upstream {
                "first" => after(delay, "{\"ids\": [2]}"),
                _ => after(5, products(request)),
            })
        };
        // The partner comes within the linger: one request.
        let it = at(1);
        it.text("/").await;
        assert_eq!(it.events(), ["0 GET first/ids", "1 GET shop/products?lang=en&ids=1,2"]);
        // It does not come in time: the batch is sent without it.
        let it = at(50);
        it.text("/").await;
        assert_eq!(
            it.events(),
            ["0 GET first/ids", "2 GET shop/products?lang=en&ids=1", "50 GET shop/products?lang=en&ids=2"]
        );
        assert_eq!(it.metric("fanin_batch_held_in_vain_total{upstream=\"shop\",operation=\"products\"}"), 1.0);
        // It fails: its dependents are absent, and the other call was not delayed further.
        let it = shop(flow, |upstream, request| match upstream {
            "first" => after(20, "").error(ErrorKind::Connect),
            _ => after(5, products(request)),
        });
        let reply = it.run("/").await;
        assert_eq!(reply.partial.as_deref(), Some("first"));
        assert_eq!(it.events()[1], "2 GET shop/products?lang=en&ids=1");
    });
}

#[test]
fn linger_of_a_single_call() {
    paused(async {
        let flow = "def flow(req):\n    more = first.get(\"/ids\")\n    return [shop.products([1], linger = 0), shop.products(more[\"ids\"])]\n";
        let it = shop(flow, |upstream, request| match upstream {
            "first" => after(1, "{\"ids\": [2]}"),
            _ => after(5, products(request)),
        });
        it.text("/").await;
        assert_eq!(it.events()[..2], ["0 GET first/ids", "0 GET shop/products?lang=en&ids=1"]);
    });
}

#[test]
fn linger_is_bounded_by_a_tenth_of_the_remaining_time() {
    paused(async {
        let flow = "def flow(req):\n    more = first.get(\"/ids\", optional = True)\n    return [shop.products([1]), shop.products(more[\"ids\"])]\n";
        let it = shop(flow, |upstream, request| match upstream {
            "first" => after(500, "{\"ids\": [2]}"),
            _ => after(5, products(request)),
        })
        .timeout(10);
        let reply = it.run("/").await;
        assert!(reply.result.is_ok(), "{:?}", reply.result);
        assert_eq!(it.events()[1], "1 GET shop/products?lang=en&ids=1");
    });
}

#[test]
fn no_linger_without_calls_in_flight() {
    paused(async {
        let it = simple(
            "def flow(req):\n    a = shop.products([1])\n    if len(a) == 1:\n        return shop.products([2])\n    return None\n",
        );
        it.text("/").await;
        assert_eq!(it.events(), ["0 GET shop/products?lang=en&ids=1", "5 GET shop/products?lang=en&ids=2"]);
    });
}

#[test]
fn max_keys_splits_a_batch() {
    paused(async {
        let it = simple("def flow(req):\n    a = shop.products(range(70), [])\n    return [len(a), a[0], a[69]]\n");
        assert_eq!(it.text("/").await, r#"[70,{"id": 0},{"id": 69}]"#);
        assert_eq!(it.events().len(), 3);
        assert_eq!(it.elapsed(), 5, "side by side");
    });
}

#[test]
fn failed_batch_fails_only_its_calls() {
    paused(async {
        let flow = "def flow(req):\n    a = shop.products([1], optional = True)\n    b = shop.products([2], default = \"d\")\n    c = shop.prices(ids = [3])\n    return [a, b, c, a.failed]\n";
        let it = shop(flow, |_, request| match request.path_and_query.starts_with("/products") {
            true => after(5, "{}").status(503),
            false => after(5, "{\"3\": 9}"),
        });
        let reply = it.run("/").await;
        let body = String::from_utf8(reply.result.unwrap().body.concat()).unwrap();
        assert_eq!((body.as_str(), reply.partial.as_deref()), (r#"[null,"d",{"3":9},true]"#, Some("shop")));
        assert_eq!(it.events().len(), 2, "a 503 does not concern the keys");
    });
}

#[test]
fn bad_key_fails_only_its_call() {
    paused(async {
        let flow = "def flow(req):\n    return [shop.products(i, default = \"bad\") for i in range(8)]\n";
        for (status, broken) in [(400, "{}"), (200, "[{"), (200, "{}"), (414, ""), (404, "{}")] {
            let it = shop(flow, move |_, request| match ids(request).iter().any(|id| id == "5") {
                true => after(5, broken).status(status),
                false => after(5, products(request)),
            });
            let reply = it.run("/").await;
            if status == 200 {
                let body = String::from_utf8(reply.result.unwrap().body.concat()).unwrap();
                assert!(
                    body.contains("\"n4\"") && body.contains("\"n6\"") && body.matches("\"bad\"").count() == 1,
                    "{body}"
                );
            } else {
                // A default does not hide a 4xx.
                assert_eq!(reply.result.map(|_| ()).expect_err("a failure").kind, "upstream-status");
            }
            assert_eq!(it.events().len(), 7, "halves, three times: {:?}", it.events());
        }
    });
}

#[test]
fn no_second_request_without_retry_budget() {
    paused(async {
        let toml = SHOP.replace("retry = { budget = 1.0, floor = 1000 }", "retry = \"off\"");
        let flow = format!("{LOAD}def flow(req):\n    return [shop.products(i, optional = True) for i in range(8)]\n");
        let it = setup_toml(&toml, &flow, |_, _| after(5, "nonsense"));
        assert_eq!(it.text("/").await, "[null,null,null,null,null,null,null,null]");
        assert_eq!(it.events().len(), 1);
    });
}

#[test]
fn malformed_batch_answers() {
    paused(async {
        let flow = "def flow(req):\n    return [shop.products([2, 1]), shop.products(3, default = \"d\"), shop.prices(ids = [1, 2], optional = True)]\n";
        let is = |products: &'static str, prices: &'static str| async move {
            let it = shop(flow, move |_, request| match request.path_and_query.starts_with("/products") {
                true => after(5, products),
                false => after(5, prices),
            });
            let reply = it.run("/").await;
            reply.result.map(|success| String::from_utf8(success.body.concat()).unwrap()).map_err(|error| error.kind)
        };
        // Another order, duplicates, extra items, keys that are strings.
        let body = is(r#"[{"id": 9}, {"id": "1", "x": 1}, {"id": 2}, {"id": 1}]"#, r#"{"9": 0, "2": 1}"#).await;
        assert_eq!(body.unwrap(), r#"[[{"id": 2},{"id": "1", "x": 1},{"id": 1}],null,{"2":1}]"#);
        // Some items lack their key: only calls that miss a key fail.
        let body = is(r#"[{"id": 1}, {"id": 2}, {"ID": 3}]"#, "[]").await;
        assert_eq!(body.unwrap(), r#"[[{"id": 2},{"id": 1}],"d",null]"#);
        assert_eq!(is(r#"[{"id": 1}, {"ID": 2}]"#, "{}").await.unwrap_err(), "upstream-answer");
        // Not a list, not JSON, nothing.
        for bad in ["{}", "7", "[{", ""] {
            assert_eq!(is(bad, "{}").await.unwrap_err(), "upstream-answer", "{bad:?}");
        }
    });
}

#[test]
fn share_batches_between_requests() {
    // On the threads executor, no task outlives its flow.
    if threaded() {
        return;
    }
    paused(async {
        let it = simple("def flow(req):\n    return [shop.shared([int(req.query[\"id\"])]), shop.products([1])]\n");
        let replies = futures_util::future::join_all((1..=3).map(|id| {
            let it = &it;
            async move { it.text(&format!("/?id={id}")).await }
        }))
        .await;
        for (reply, id) in replies.iter().zip(1..) {
            assert!(reply.starts_with(&format!("[[{{\"id\": {id},")), "{reply}");
        }
        let shared: Vec<_> = it.events().into_iter().filter(|event| !event.contains("lang")).collect();
        assert_eq!(shared, ["5 GET shop/products?ids=1,2,3"], "after its linger");
        assert_eq!(it.events().len(), 4, "the others by themselves");
    });
}

#[test]
fn full_shared_batch_is_sent_at_once_and_survives_its_first_member() {
    // On the threads executor, no task outlives its flow.
    if threaded() {
        return;
    }
    paused(async {
        let it = simple("def flow(req):\n    return shop.shared([int(req.query[\"id\"])])\n");
        let first = it.flows.run(0, it.incoming("/?id=1"));
        let mut first = Box::pin(first);
        assert!(futures_util::poll!(&mut first).is_pending());
        let rest = futures_util::future::join_all((2..=4).map(|id| {
            let it = &it;
            async move { it.text(&format!("/?id={id}")).await }
        }));
        let mut rest = Box::pin(rest);
        assert!(futures_util::poll!(&mut rest).is_pending());
        drop(first);
        let rest = rest.await;
        assert!(rest.iter().all(|body| body.starts_with("[{\"id\"")), "{rest:?}");
        assert_eq!(it.events(), ["0 GET shop/products?ids=1,2,3,4"]);
    });
}

#[test]
fn shared_batch_waits_no_longer_than_its_most_urgent_call() {
    // On the threads executor, no task outlives its flow.
    if threaded() {
        return;
    }
    paused(async {
        let toml = SHOP.replace("linger = \"5ms\", share = true", "linger = \"500ms\", share = true");
        let flow = format!(
            "{LOAD}def flow(req):\n    if \"now\" in req.query:\n        return shop.shared([3], linger = 0)\n    return shop.shared([int(req.query[\"id\"])])\n"
        );
        let it = setup_toml(&toml, &flow, |_, request| after(5, products(request)));
        let ask = |uri: &str, ms: u64| {
            let mut incoming = it.incoming(uri);
            incoming.deadline = incoming.start + std::time::Duration::from_millis(ms);
            it.flows.run(0, incoming)
        };
        let (patient, urgent) = futures_util::join!(ask("/?id=1", 10_000), ask("/?id=2", 100));
        assert!(patient.result.is_ok() && urgent.result.is_ok(), "a tenth of what the second had left, and no more");
        assert_eq!(it.events(), ["10 GET shop/products?ids=1,2"]);
        futures_util::join!(ask("/?id=1", 10_000), ask("/?now", 10_000));
        assert_eq!(it.events()[1], "15 GET shop/products?ids=1,3");
    });
}

#[test]
fn forwarded_headers_separate_batches() {
    // On the threads executor, no task outlives its flow.
    if threaded() {
        return;
    }
    paused(async {
        let it = simple("def flow(req):\n    return shop.shared([1])\n");
        let ask = |user: &'static str| {
            let mut incoming = it.incoming("/");
            incoming.headers.insert("authorization", http::HeaderValue::from_static(user));
            it.flows.run(0, incoming)
        };
        futures_util::join!(ask("a"), ask("b"), ask("a"));
        assert_eq!(it.events().len(), 2, "{:?}", it.events());
    });
}

#[test]
fn wrong_arguments_of_batched_operations() {
    for (flow, message) in [
        ("shop.products()", "shop.products needs the parameter ids"),
        ("shop.products([1], field = [])", "shop.products has no parameter field (did you mean fields?)"),
        ("shop.products([1], [], \"en\", 4)", "shop.products takes at most 3 arguments by position"),
        ("shop.products([1], ids = [2])", "shop.products gets ids by position and by name"),
    ] {
        let flow = format!("{LOAD}def flow(req):\n    return {flow}\n");
        let problems = crate::common::load_toml(SHOP, &flow, "").map(|_| ()).expect_err("it is wrong").join("\n");
        assert!(problems.contains("flow.star:3:") && problems.contains(message), "{problems}");
    }
    paused(async {
        for (flow, detail) in [
            ("shop.products(**{\"id\": 1})", "shop.products has no parameter"),
            ("shop.products({})", "is a list, not a dict"),
            ("shop.products([[1]])", "ids of a call of shop.products must be"),
            ("shop.products([1], lang = 3)", "is a string, not an int"),
            ("shop.products([1], linger = 3)", "linger of a call of shop must be 0 or a duration"),
        ] {
            let it = simple(&format!("def flow(req):\n    return {flow}\n"));
            let reply = it.run("/").await;
            assert_eq!(reply.result.map(|_| ()).expect_err(detail).kind, "flow", "{flow}");
            assert!(it.events().is_empty(), "{flow}");
        }
    });
}
