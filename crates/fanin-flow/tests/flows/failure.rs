//! Required and optional calls, partial responses, which failure is reported.

use crate::common::{Script, after, load_toml, paused, setup, setup_toml, setup_with};
use fanin_upstream::ErrorKind;

#[test]
fn of_two_failures_the_earlier_in_the_program_is_reported_whatever_comes_first() {
    for (x, y) in [(5, 50), (50, 5)] {
        paused(async move {
            let star =
                "def flow(req):\n    return {\"y\": b.get(\"/y\") if False else a.get(\"/x\"), \"z\": b.get(\"/y\")}\n";
            let it = setup(star, move |upstream, _| {
                if upstream == "a" {
                    after(x, "").error(ErrorKind::Refused)
                } else {
                    after(y, "").error(ErrorKind::Timeout)
                }
            });
            let error = it.error("/").await;
            assert_eq!(error.upstream.as_deref(), Some("a"));
            assert_eq!(error.status, 502);
            // The earliest failure is known, so the flow does not await later calls.
            assert_eq!(it.elapsed(), u128::from(x));
        });
    }
}

#[test]
fn kinds_of_failures_give_their_statuses() {
    let cases = [
        (ErrorKind::Timeout, 504),
        (ErrorKind::Refused, 502),
        (ErrorKind::Connect, 502),
        (ErrorKind::Protocol, 502),
        (ErrorKind::TooLarge, 502),
        (ErrorKind::Limit, 503),
        (ErrorKind::Breaker, 503),
    ];
    for (kind, status) in cases {
        paused(async move {
            let it = setup("def flow(req):\n    return a.get(\"/x\")\n", move |_, _| after(1, "").error(kind));
            assert_eq!(it.error("/").await.status, status, "{kind:?}");
        });
    }
}

#[test]
fn broken_json_fails_the_call_with_decode() {
    for body in ["{\"a\": 1", "{\"a\": 01}", "nope", "", "{\"a\":1}x", "\"\u{1}\""] {
        paused(async move {
            let it = setup("def flow(req):\n    return [1, a.get(\"/x\")]\n", move |_, _| after(1, body));
            let error = it.error("/").await;
            assert_eq!((error.status.as_u16(), error.kind), (502, "upstream-answer"), "{body:?}");
        });
    }
}

#[test]
fn failed_optional_call_is_absent_with_its_dependents() {
    paused(async {
        let star = "
def flow(req):
    recs = a.get(\"/recs\", optional = True)
    items = b.get(\"/items\", query = {\"ids\": recs[\"ids\"]})
    names = c.get(\"/names\", query = {\"n\": items[\"x\"][\"y\"]})
    return {\"recs\": recs, \"items\": items, \"names\": names, \"none\": items == None, \"truth\": bool(recs), \"failed\": recs.failed, \"kind\": recs.error.kind}
";
        let it = setup(star, |_, _| after(1, "").error(ErrorKind::Refused));
        let reply = it.run("/").await;
        assert_eq!(reply.partial.as_deref(), Some("a"));
        let success = reply.result.unwrap();
        assert_eq!(success.headers["fanin-partial"], "a");
        assert_eq!(success.headers["cache-control"], "no-store");
        let body = String::from_utf8(success.body.concat()).unwrap();
        assert_eq!(
            body,
            "{\"recs\":null,\"items\":null,\"names\":null,\"none\":true,\"truth\":false,\"failed\":true,\"kind\":\"refused\"}"
        );
        assert_eq!(it.events(), ["0 GET a/recs"]);
    });
}

#[test]
fn only_root_causes_are_named_and_dependents_name_theirs() {
    paused(async {
        let star = "
def flow(req):
    recs = a.get(\"/recs\", optional = True)
    items = b.get(\"/items\", query = {\"ids\": recs[\"ids\"]})
    more = a.get(\"/more\", query = {\"ids\": items[\"x\"]}, default = [])
    other = c.get(\"/other\", optional = True)
    return {\"items\": items, \"failed\": items.failed, \"why\": items.error.upstream, \"more\": more, \"more_failed\": more.failed, \"other\": other}
";
        let it = setup_with(star, "errors = true", |upstream, _| match upstream {
            "c" => after(1, "{}").status(503),
            _ => after(1, "").error(ErrorKind::Timeout),
        });
        let reply = it.run("/").await;
        assert_eq!(reply.partial.as_deref(), Some("a,c"));
        let body = String::from_utf8(reply.result.unwrap().body.concat()).unwrap();
        assert_eq!(
            body,
            "{\"items\":null,\"failed\":true,\"why\":\"a\",\"more\":[],\"more_failed\":true,\"other\":null,\"errors\":[\
             {\"upstream\":\"a\",\"kind\":\"timeout\"},\
             {\"upstream\":\"c\",\"kind\":\"status\"},\
             {\"upstream\":\"b\",\"kind\":\"absent\",\"because\":\"a\"},\
             {\"upstream\":\"a\",\"kind\":\"absent\",\"because\":\"a\"}]}"
        );
        // No call without an answer counts against an upstream: those that were not sent are in no metric.
        assert_eq!(it.events(), ["0 GET a/recs", "0 GET c/other"]);
    });
}

#[test]
fn default_replaces_a_failure() {
    paused(async {
        let star = "def flow(req):\n    r = a.get(\"/r\", default = {\"ids\": []})\n    return {\"ids\": r[\"ids\"], \"n\": len(r[\"ids\"])}\n";
        let it = setup_with(star, "errors = true", |_, _| after(1, "{}").status(500));
        let reply = it.run("/").await;
        let body = String::from_utf8(reply.result.unwrap().body.concat()).unwrap();
        assert_eq!(body, "{\"ids\":[],\"n\":0,\"errors\":[{\"upstream\":\"a\",\"kind\":\"status\"}]}");
        assert_eq!(reply.partial.as_deref(), Some("a"));
    });
}

#[test]
fn optional_does_not_hide_a_4xx() {
    paused(async {
        let star = "def flow(req):\n    return {\"x\": a.get(\"/x\", optional = True)}\n";
        let it = setup(star, |_, _| after(1, "{}").status(404));
        assert_eq!(it.error("/").await.kind, "upstream-status");
    });
    paused(async {
        let star = "def flow(req):\n    return {\"x\": a.get(\"/x\", optional = True)}\n";
        let it = setup(star, |_, _| after(1, "{}").status(429));
        assert_eq!(it.text("/").await, "{\"x\":null}");
    });
    paused(async {
        let star = "def flow(req):\n    x = a.get(\"/x\", ok = [404])\n    return {\"s\": x.status, \"x\": x}\n";
        let it = setup(star, |_, _| after(1, "{}").status(404));
        assert_eq!(it.text("/").await, "{\"s\":404,\"x\":{}}");
    });
}

#[test]
fn optional_calls_settle_before_the_deadline() {
    paused(async {
        let star = "def flow(req):\n    return {\"x\": a.get(\"/x\", optional = True), \"y\": b.get(\"/y\")}\n";
        let it = setup(star, |upstream, _| after(if upstream == "a" { 5000 } else { 10 }, "1")).timeout(200);
        assert_eq!(it.text("/").await, "{\"x\":null,\"y\":1}");
        assert_eq!(it.elapsed(), 180);
    });
}

#[test]
fn a_required_call_ends_at_the_deadline() {
    paused(async {
        let it = setup("def flow(req):\n    return a.get(\"/x\")\n", |_, _| after(5000, "1")).timeout(200);
        assert_eq!(it.error("/").await.status, 504);
        assert_eq!(it.elapsed(), 200);
    });
}

#[test]
fn a_call_has_its_own_timeout() {
    paused(async {
        let it = setup("def flow(req):\n    return a.get(\"/x\", timeout = \"30ms\")\n", |_, _| after(5000, "1"));
        assert_eq!(it.error("/").await.status, 504);
        assert_eq!(it.elapsed(), 30);
    });
}

#[test]
fn missing_key_fails_only_where_it_is_used() {
    for delay in [0, 20] {
        paused(async move {
            let star = "def flow(req):\n    x = a.get(\"/x\")\n    y = b.get(\"/y\")\n    unused = x[\"typo\"]\n    if y[\"ok\"]:\n        return x[\"name\"]\n    return 0\n";
            let it = setup(star, move |upstream, _| {
                if upstream == "a" { after(delay, "{\"name\": \"n\"}") } else { after(10, "{\"ok\": true}") }
            });
            assert_eq!(it.text("/").await, "\"n\"");
        });
        paused(async move {
            let star = "def flow(req):\n    x = a.get(\"/x\")\n    return x[\"typo\"]\n";
            let it = setup(star, move |_, _| after(delay, "{\"name\": \"n\"}"));
            assert_eq!(it.error("/").await.status, 500);
        });
    }
}

#[test]
fn siblings_are_cancelled_when_the_flow_fails() {
    paused(async {
        let star = "def flow(req):\n    x = a.get(\"/x\")\n    y = b.get(\"/y\")\n    if x[\"z\"]:\n        return y\n    return 0\n";
        let it = setup(
            star,
            |upstream, _| if upstream == "a" { after(5, "").error(ErrorKind::Refused) } else { after(500, "1") },
        );
        it.error("/").await;
        assert_eq!(it.elapsed(), 5);
        assert_eq!(it.events().last().unwrap(), "cancelled GET b/y");
    });
}

#[test]
fn a_redirect_is_not_followed() {
    paused(async {
        let it = setup("def flow(req):\n    return a.get(\"/x\")\n", |_, _| after(1, "{}").status(302));
        let error = it.error("/").await;
        assert_eq!((error.status.as_u16(), error.kind), (502, "upstream-status"));
        assert_eq!(it.events().len(), 1);
    });
    paused(async {
        let star = "def flow(req):\n    return a.get(\"/x\", optional = True).error.message\n";
        let it = setup(star, |_, _| after(1, "{}").status(302));
        let message = it.text("/").await;
        assert!(message.contains("redirects are not followed") && message.contains("list 302 in ok"), "{message}");
    });
    paused(async {
        let star = "def flow(req):\n    return a.get(\"/x\", ok = [302]).status\n";
        let it = setup(star, |_, _| after(1, "{}").status(302));
        assert_eq!(it.text("/").await, "302");
    });
}

/// Reads alone, shared and cached, and with a batch.
const READS: &str = r#"
[upstreams.a]
url = "http://127.0.0.1:1"
[upstreams.a.operations.shared]
path = "/shared"
single_flight = true
cache = { ttl = "1m" }
[upstreams.a.operations.allowed]
path = "/allowed"
returns = "any"
cache = { ttl = "1m" }
[upstreams.a.operations.parts]
path = "/parts"
ok = [206]
cache = { ttl = "1m" }
[upstreams.a.operations.items]
path = "/items"
params = { ids = "list" }
batch = { key = "ids" }
"#;

/// What a flow sees of a call whose answer has this status, type and body.
async fn seen(call: &str, script: Script) -> (String, f64) {
    let star = format!(
        "load(\"@upstreams\", \"a\")\ndef flow(req):\n    x = {call}\n    return [x.error.kind if x.failed else x.status]\n"
    );
    let script = std::cell::RefCell::new(Some(script));
    let it = setup_toml(READS, &star, move |_, _| script.borrow_mut().take().expect("one call"));
    let text = it.text("/").await;
    (text, it.metric("fanin_upstream_invalid_answers_total{upstream=\"a\"}"))
}

#[test]
fn a_read_without_a_body_fails_unless_that_is_declared() {
    paused(async {
        for (call, status, expected, invalid) in [
            ("a.get(\"/x\", optional = True)", 200, "[\"decode\"]", 1.0),
            ("a.get(\"/x\", optional = True)", 203, "[\"decode\"]", 1.0),
            ("a.post(\"/x\", safe = True, optional = True)", 200, "[\"decode\"]", 1.0),
            ("a.shared(optional = True)", 200, "[\"decode\"]", 1.0),
            ("a.items([1], optional = True)", 200, "[\"decode\"]", 1.0),
            ("a.get(\"/x\", returns = \"object\", optional = True)", 200, "[\"decode\"]", 1.0),
            ("a.get(\"/x\", returns = \"any\")", 200, "[200]", 0.0),
            ("a.get(\"/x\", returns = \"object?\")", 200, "[200]", 0.0),
            ("a.allowed()", 200, "[200]", 0.0),
            ("a.get(\"/x\")", 204, "[204]", 0.0),
            ("a.shared()", 204, "[204]", 0.0),
            ("a.get(\"/x\")", 202, "[202]", 0.0),
            ("a.get(\"/x\", ok = [404])", 404, "[404]", 0.0),
            ("a.head(\"/x\")", 200, "[200]", 0.0),
            ("a.post(\"/x\")", 200, "[200]", 0.0),
            ("a.put(\"/x\")", 200, "[200]", 0.0),
            ("a.delete(\"/x\")", 200, "[200]", 0.0),
        ] {
            let seen = seen(call, after(1, "").status(status).untyped()).await;
            assert_eq!(seen, (expected.to_owned(), invalid), "{call} {status}");
        }
        assert_eq!(seen("a.get(\"/x\", returns = \"any\")", after(1, "")).await.0, "[200]", "with a type");
        assert_eq!(seen("a.get(\"/x\")", after(1, "").kind("text/plain")).await.0, "[200]", "an empty text");
    });
}

#[test]
fn a_part_that_nothing_requested_fails_unless_that_is_declared() {
    paused(async {
        for (call, expected, invalid) in [
            ("a.get(\"/x\", optional = True)", "[\"decode\"]", 1.0),
            ("a.shared(optional = True)", "[\"decode\"]", 1.0),
            ("a.items([1], optional = True)", "[\"decode\"]", 1.0),
            ("a.get(\"/x\", ok = [206])", "[206]", 0.0),
            ("a.parts()", "[206]", 0.0),
            ("a.get(\"/x\", headers = {\"range\": \"bytes=0-1\"})", "[206]", 0.0),
        ] {
            let seen = seen(call, after(1, "{}").status(206)).await;
            assert_eq!(seen, (expected.to_owned(), invalid), "{call}");
        }
    });
}

/// An operation that declares what it returns, alone, shared, and with a batch.
const SHAPES: &str = r#"
[upstreams.a]
url = "http://127.0.0.1:1"
[upstreams.a.operations.profile]
path = "/profile"
returns = { id = "int", tags = ["string"] }
[upstreams.a.operations.shared]
path = "/shared"
returns = "object"
single_flight = true
cache = { ttl = "1m", stale_if_error = "1h" }
[upstreams.a.operations.items]
path = "/items"
params = { ids = "list" }
returns = { "*" = "object" }
batch = { key = "ids" }
"#;

#[test]
fn an_answer_of_the_wrong_shape_is_a_failure_of_the_upstream() {
    let load = "load(\"@upstreams\", \"a\")\n";
    let calls = [
        "a.profile(OPTIONS)",
        "a.shared(OPTIONS)",
        "a.items([1], OPTIONS)",
        "a.get(\"/x\", returns = \"object\", OPTIONS)",
    ];
    for call in calls {
        for (status, body) in
            [(200, "null"), (200, "[]"), (200, "17"), (204, ""), (200, "{\"id\": \"7\", \"tags\": [], \"1\": 2}")]
        {
            // An object is all that two of these ask for.
            if body.starts_with('{') && (call.contains("shared") || call.contains("get")) {
                continue;
            }
            paused(async move {
                let call = call.replace("OPTIONS", "optional = True");
                let star = format!(
                    "{load}def flow(req):\n    x = {call}\n    return {{\"x\": x[\"id\"], \"kind\": x.error.kind}}\n"
                );
                let it = setup_toml(SHAPES, &star, move |_, _| after(1, body).status(status));
                let reply = it.run("/").await;
                assert_eq!(reply.partial.as_deref(), Some("a"), "{call} {body}");
                assert_eq!(reply.result.unwrap().body.concat(), b"{\"x\":null,\"kind\":\"decode\"}");
                assert_eq!(it.metric("fanin_upstream_invalid_answers_total{upstream=\"a\"}"), 1.0, "{call} {body}");
            });
            paused(async move {
                let star =
                    format!("{load}def flow(req):\n    return {}\n", call.replace("OPTIONS", "timeout = \"1s\""));
                let it = setup_toml(SHAPES, &star, move |_, _| after(1, body).status(status));
                let error = it.error("/").await;
                assert_eq!((error.status.as_u16(), error.kind), (502, "upstream-answer"), "{call} {body}");
            });
        }
    }
    paused(async {
        let star = format!("{load}def flow(req):\n    return a.profile(optional = True).error.message\n");
        let it = setup_toml(SHAPES, &star, |_, _| after(1, "{\"id\": 7, \"tags\": [\"a\", 1]}"));
        let message = it.text("/").await;
        assert!(message.contains(r#"profile: answer[\"tags\"][1] is an int, not a string (returns)"#), "{message}");
    });
}

#[test]
fn answers_of_the_right_shape_and_other_statuses_are_let_through() {
    paused(async {
        let star = "load(\"@upstreams\", \"a\")\ndef flow(req):\n    return [a.profile(), a.shared(), a.items([1, 2]), a.get(\"/x\", returns = [\"int?\"]), a.get(\"/y\", returns = \"object\", ok = [404])]\n";
        let it = setup_toml(SHAPES, star, |_, request| match request.path_and_query.split('?').next() {
            Some("/x") => after(1, "[1,null]"),
            Some("/y") => after(1, "null").status(404),
            Some("/items") => after(1, "{\"1\":{}}"),
            _ => after(1, "{\"id\":7,\"tags\":[\"a\"]}"),
        });
        let profile = "{\"id\":7,\"tags\":[\"a\"]}";
        assert_eq!(it.text("/").await, format!("[{profile},{profile},{{\"1\":{{}}}},[1,null],null]"));
        assert_eq!(it.metric("fanin_upstream_invalid_answers_total{upstream=\"a\"}"), 0.0);
    });
}

#[test]
fn a_stale_answer_stands_in_for_one_of_the_wrong_shape() {
    paused(async {
        let star = "load(\"@upstreams\", \"a\")\ndef flow(req):\n    return a.shared()\n";
        let answered = std::cell::Cell::new(false);
        let it = setup_toml(SHAPES, star, move |_, _| after(1, if answered.replace(true) { "null" } else { "{}" }));
        assert_eq!(it.text("/").await, "{}");
        tokio::time::advance(std::time::Duration::from_secs(61)).await;
        assert_eq!(it.text("/").await, "{}", "the wrong answer was not cached");
    });
}

#[test]
fn wrong_shapes_are_found_before_serving() {
    let flow = |call: &str| format!("load(\"@upstreams\", \"a\")\ndef flow(req):\n    return {call}\n");
    let problems = |toml: &str, call: &str| load_toml(toml, &flow(call), "").map(|_| ()).unwrap_err().join("\n");
    let found = problems(SHAPES, "a.get(\"/x\", returns = \"array\")");
    assert!(found.contains("`array` is not a shape; use one of object, list"), "{found}");
}
