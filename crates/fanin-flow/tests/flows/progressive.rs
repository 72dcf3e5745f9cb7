//! Answers in parts.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;

use fanin_flow::{FlowError, Reply, ReplyBody};
use fanin_json::{Doc, Kind};
use fanin_upstream::ErrorKind;
use http::HeaderMap;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::common::{Script, Setup, after, paused, setup_with, threaded};

const PAGE: &str = "
def flow(req):
    product = a.get(\"/product\")
    reviews = b.get(\"/reviews\", optional = True)
    others = b.get(\"/others\", default = [])
    return {\"product\": product, \"more\": [{\"reviews\": reviews, \"first\": reviews[\"items\"]}, others], \"end\": 1}
";

/// Milliseconds of the paused clock, and the line.
type Part = (u128, Value);

/// An answer: after how long, its body, and whether the call fails instead.
type Planned = (u64, &'static str, bool);

async fn start(it: &Setup, accept: &str) -> Result<(HeaderMap, Reply), FlowError> {
    let mut incoming = it.incoming("/");
    incoming.headers.insert("accept", accept.parse().unwrap());
    let mut reply = it.flows.run(0, incoming).await;
    let headers = std::mem::take(&mut reply.result.as_mut().map_err(|error| error.clone())?.headers);
    Ok((headers, reply))
}

async fn parts(it: &Setup) -> Vec<Part> {
    lines(it).await.iter().map(|(at, line)| (*at, serde_json::from_str(line).unwrap())).collect()
}

async fn lines(it: &Setup) -> Vec<(u128, String)> {
    let (headers, reply) = start(it, "application/jsonl").await.unwrap();
    assert_eq!(headers["content-type"], "application/jsonl");
    assert_eq!(
        (&headers["vary"], &headers["cache-control"]),
        (&"accept".parse().unwrap(), &"no-store".parse().unwrap())
    );
    let ReplyBody::Stream(mut stream) = reply.result.unwrap().body else { panic!("answered in one") };
    let (mut parts, mut rest) = (Vec::new(), Vec::new());
    while let Some(bytes) = poll_fn(|context| stream.poll_next(context)).await {
        rest.extend_from_slice(&bytes.unwrap());
        if rest.ends_with(b"\n") {
            let line = std::mem::take(&mut rest);
            assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
            parts.push((it.elapsed(), String::from_utf8(line).unwrap()));
        }
    }
    assert!(rest.is_empty());
    parts
}

/// The bytes of the parts put together: each patch in place of the text at its pointer.
fn spliced(lines: &[(u128, String)]) -> String {
    let parsed = |text: &str| Doc::parse(text.to_owned().into(), 100).unwrap();
    let text = |doc: &Doc, key: &str| doc.root().get(key).map(|node| String::from_utf8(node.raw().to_vec()).unwrap());
    let mut body = text(&parsed(&lines[0].1), "body").unwrap();
    for (_, line) in &lines[1..] {
        let patch = parsed(line);
        let (Some(path), Some(value)) = (patch.root().get("path"), text(&patch, "value")) else { continue };
        let doc = parsed(&body);
        let keys = path.as_str().unwrap()[1..]
            .split('/')
            .map(|key| key.replace("~1", "/").replace("~0", "~"))
            .collect::<Vec<_>>();
        let place = keys.iter().try_fold(doc.root(), |at, key| match key.parse::<usize>() {
            Ok(index) if at.kind() == Kind::Array => at.index(index),
            _ => at.get(key),
        });
        match place {
            Some(old) => {
                let start = old.raw().as_ptr() as usize - doc.bytes().as_ptr() as usize;
                body.replace_range(start..start + old.raw().len(), &value);
            }
            // The list of errors is the only part without a place.
            None => {
                assert_eq!(keys, ["errors"]);
                body.truncate(body.len() - 1);
                body.push_str(&format!(",\"errors\":{value}}}"));
            }
        }
    }
    body
}

/// What a client makes of the parts.
fn merged(parts: &[Part]) -> Value {
    let mut body = parts[0].1["body"].clone();
    for (_, part) in &parts[1..] {
        let Some(path) = part.get("path") else { continue };
        let (parent, key) = path.as_str().unwrap().rsplit_once('/').unwrap();
        let key = key.replace("~1", "/").replace("~0", "~");
        match body.pointer_mut(parent).unwrap() {
            Value::Object(members) => drop(members.insert(key, part["value"].clone())),
            Value::Array(items) => items[key.parse::<usize>().unwrap()] = part["value"].clone(),
            other => panic!("{other}"),
        }
    }
    body
}

fn page(more: &str, answers: impl Fn(&str) -> Script + 'static) -> Setup {
    setup_with(PAGE, &format!("progressive = true\n{more}"), move |_, request| {
        answers(request.path_and_query.split('?').next().unwrap())
    })
}

#[test]
fn late_optional_parts_come_as_patches() {
    if threaded() {
        return;
    }
    paused(async {
        let it = page("", |target| match target {
            "/product" => after(10, "{\"id\":1.0,\n\"name\":\"x\"}"),
            "/reviews" => after(50, "{\"items\":[1,2]}"),
            _ => after(30, "[\"o\"]"),
        });
        assert_eq!(
            parts(&it).await,
            [
                (
                    10,
                    json!({"body": {"product": {"id": 1.0, "name": "x"}, "more": [{"reviews": null, "first": null}, null], "end": 1}})
                ),
                (30, json!({"path": "/more/1", "value": ["o"]})),
                (50, json!({"path": "/more/0/reviews", "value": {"items": [1, 2]}})),
                (50, json!({"path": "/more/0/first", "value": [1, 2]})),
                (50, json!({"done": true})),
            ]
        );
    });
}

#[test]
fn an_optional_call_that_hangs_delays_nothing_and_is_named_at_the_end() {
    if threaded() {
        return;
    }
    paused(async {
        let it = page("errors = true", |target| match target {
            "/product" => after(10, "{}"),
            "/reviews" => after(1_000_000, "{}"),
            _ => after(20, "").error(ErrorKind::Refused),
        });
        let parts = parts(&it).await;
        let (first, last) = (&parts[0], &parts[parts.len() - 1]);
        assert_eq!((first.0, &first.1["body"]["end"]), (10, &json!(1)));
        assert_eq!(parts[1], (20, json!({"path": "/more/1", "value": []})));
        assert_eq!(last.1, json!({"done": true, "partial": ["b"]}));
        let plain: Value = serde_json::from_str(&it.text("/").await).unwrap();
        assert_eq!(merged(&parts), plain);
        assert_eq!(plain["errors"].as_array().unwrap().len(), 2, "{plain}");
    });
}

/// What the shop does: each value of the page is a function's, and those of the recommendations need an optional answer.
const FUNCTIONS: &str = "
def flow(req):
    offers = b.get(\"/offers\", optional = True)
    return {\"products\": products([1, 2]), \"offered\": products(offers[\"ids\"]), \"end\": True}

def products(ids):
    found = [a.get(\"/%d\" % id) for id in ids or []]
    return [one[\"name\"] for one in found if one[\"name\"] != \"\"]
";

#[test]
fn results_of_functions_that_need_optional_answers_come_late_too() {
    if threaded() {
        return;
    }
    paused(async {
        let it = setup_with(FUNCTIONS, "progressive = true", |_, request| match request.path_and_query.as_str() {
            "/offers" => after(40, "{\"ids\":[3]}"),
            "/3" => after(7, "{\"name\":\"three\"}"),
            _ => after(10, "{\"name\":\"x\"}"),
        });
        assert_eq!(
            parts(&it).await,
            [
                (10, json!({"body": {"products": ["x", "x"], "offered": null, "end": true}})),
                (47, json!({"path": "/offered", "value": ["three"]})),
                (47, json!({"done": true})),
            ]
        );
        let it = setup_with(FUNCTIONS, "progressive = true", |_, request| match request.path_and_query.as_str() {
            "/offers" => after(40, "{\"ids\":[3]}"),
            "/3" => after(7, "").error(ErrorKind::Refused),
            _ => after(10, "{\"name\":\"x\"}"),
        });
        let failed = parts(&it).await;
        assert_eq!((failed.len(), failed[1].0, &failed[1].1["error"]["status"]), (2, 47, &json!(502)), "{failed:?}");
        let it = setup_with(FUNCTIONS, "progressive = true", |_, request| match request.path_and_query.as_str() {
            "/offers" => after(1_000_000, "{}"),
            _ => after(10, "{\"name\":\"x\"}"),
        });
        let hangs = parts(&it).await;
        assert_eq!(
            (hangs[0].0, &hangs[hangs.len() - 1].1),
            (10, &json!({"done": true, "partial": ["b"]})),
            "{hangs:?}"
        );
        assert_eq!(merged(&hangs), serde_json::from_str::<Value>(&it.text("/").await).unwrap());
    });
}

/// A required call whose argument is a part of an optional answer: it is not on its way before that has come.
const ARGUMENT: &str = "
def flow(req):
    offers = b.get(\"/offers\", optional = True)
    return {\"product\": a.get(\"/product\"), \"offered\": a.get(\"/offered\", query = {\"ids\": offers[\"ids\"]})}
";

#[test]
fn a_required_call_with_an_optional_argument_does_not_hold_the_first_part() {
    if threaded() {
        return;
    }
    paused(async {
        let it = setup_with(ARGUMENT, "progressive = true", |_, request| match request.path_and_query.as_str() {
            "/offers" => after(40, "{\"ids\":\"3\"}"),
            "/offered?ids=3" => after(7, "[3]"),
            _ => after(10, "{}"),
        });
        assert_eq!(
            parts(&it).await,
            [
                (10, json!({"body": {"product": {}, "offered": null}})),
                (47, json!({"path": "/offered", "value": [3]})),
                (47, json!({"done": true})),
            ]
        );
        let it = setup_with(ARGUMENT, "progressive = true", |_, request| match request.path_and_query.as_str() {
            "/offers" => after(40, "{}"),
            _ => after(10, "").error(ErrorKind::Refused),
        });
        let error = start(&it, "application/jsonl").await.map(|_| ()).unwrap_err();
        assert_eq!((error.status.as_u16(), error.kind, it.elapsed()), (502, "upstream-unreachable", 10));
        let it = setup_with(ARGUMENT, "progressive = true", |_, request| match request.path_and_query.as_str() {
            "/offers" => after(40, "").error(ErrorKind::Refused),
            _ => after(10, "{}"),
        });
        let lines = parts(&it).await;
        assert_eq!(
            lines,
            [
                (10, json!({"body": {"product": {}, "offered": null}})),
                (40, json!({"path": "/offered", "value": null})),
                (40, json!({"done": true, "partial": ["b"]})),
            ]
        );
    });
}

#[test]
fn a_failure_before_the_first_part_is_an_ordinary_error() {
    if threaded() {
        return;
    }
    paused(async {
        let it = page("", |target| match target {
            "/product" => after(10, "").error(ErrorKind::Refused),
            _ => after(50, "[]"),
        });
        let error = start(&it, "text/event-stream").await.map(|_| ()).unwrap_err();
        assert_eq!((error.status.as_u16(), error.kind), (502, "upstream-unreachable"));
    });
}

#[test]
fn a_failure_after_the_first_part_is_told_in_the_stream() {
    if threaded() {
        return;
    }
    paused(async {
        let it = page("", |target| match target {
            "/reviews" => after(50, "{}"),
            _ => after(1, "[]"),
        });
        let parts = parts(&it).await;
        let (at, last) = &parts[parts.len() - 1];
        assert_eq!(
            (*at, &last["error"]["status"], &last["error"]["type"]),
            (50, &json!(500), &json!("urn:fanin:problem:flow"))
        );
        assert!(!parts.iter().any(|(_, part)| part.get("done").is_some()), "{parts:?}");
        let metrics = it.error("/").await;
        assert_eq!(metrics.status, 500, "as without parts");
    });
}

#[test]
fn the_client_decides_by_accept() {
    if threaded() {
        return;
    }
    paused(async {
        let it = page("", |_| after(1, "{\"items\":1}"));
        for (accept, expected) in [
            ("text/event-stream", "text/event-stream"),
            ("application/x-ndjson", "application/x-ndjson"),
            ("application/json;q=0.5, Text/Event-Stream", "text/event-stream"),
            ("text/event-stream;q=0.5, application/jsonl", "application/jsonl"),
            ("application/json, text/event-stream;q=0.9", "application/json"),
            ("text/event-stream;q=0", "application/json"),
            ("*/*", "application/json"),
            ("text/html", "application/json"),
        ] {
            let (headers, _) = start(&it, accept).await.unwrap();
            assert_eq!(headers["content-type"], expected, "{accept}");
            assert_eq!(headers["vary"], "accept", "{accept}");
        }
    });
}

#[test]
fn events_have_names() {
    if threaded() {
        return;
    }
    paused(async {
        let it = page("", |target| after(if target == "/product" { 1 } else { 9 }, "{\"items\":\"\\n\"}"));
        let (_, reply) = start(&it, "text/event-stream").await.unwrap();
        let ReplyBody::Stream(mut stream) = reply.result.unwrap().body else { panic!("answered in one") };
        let mut text = Vec::new();
        while let Some(bytes) = poll_fn(|context| stream.poll_next(context)).await {
            text.extend_from_slice(&bytes.unwrap());
        }
        let text = String::from_utf8(text).unwrap();
        let events: Vec<&str> = text.split_terminator("\n\n").collect();
        let names: Vec<&str> =
            events.iter().map(|event| event.strip_prefix("event: ").unwrap().split('\n').next().unwrap()).collect();
        assert_eq!(names, ["body", "patch", "patch", "patch", "done"]);
        assert!(events.iter().all(|event| event.lines().count() == 2), "{text}");
        let summary = stream.summary().unwrap();
        assert_eq!((summary.calls, summary.partial), (3, false));
    });
}

#[test]
fn what_has_no_parts_is_answered_in_one() {
    if threaded() {
        return;
    }
    paused(async {
        for body in ["return a.get(\"/x\", optional = True)", "return response(text = \"t\")", "return 1"] {
            let it = setup_with(&format!("def flow(req):\n    {body}\n"), "progressive = true", |_, _| after(1, "{}"));
            let (headers, reply) = start(&it, "text/event-stream").await.unwrap();
            assert!(matches!(reply.result.unwrap().body, ReplyBody::Pieces(_)), "{body}");
            assert_ne!(headers["content-type"], "text/event-stream");
        }
    });
}

#[test]
fn merged_parts_are_the_plain_answer_byte_for_byte() {
    if threaded() {
        return;
    }
    let answer = || {
        let body = prop::sample::select(vec![
            "{\"items\":[1,{\"~/\":2}]}",
            "{ \"items\" : 1.50, \"items\":null}",
            "null",
            "{}",
            "[]",
            "7",
            "!",
        ]);
        (0_u64..40, body, prop::bool::weighted(0.2))
    };
    let answers: Rc<RefCell<Vec<Planned>>> = Rc::default();
    let seen = answers.clone();
    paused(async {
        let star = "
def flow(req):
    a0, a1, a2 = [b.get(\"/%d\" % n, optional = True) for n in range(3)]
    a3 = b.get(\"/3\", default = {\"items\": []})
    return {\"0\": a0, \"a/b\": [a1, {\"x~\": a2}, a2], \"d\": (a3, a3.get(\"items\")), \"s\": struct(t = a1), \"r\": a.get(\"/4\")}
";
        let it = setup_with(star, "progressive = true\nerrors = true", move |_, request| {
            let at = request.path_and_query.trim_start_matches('/').parse::<usize>().unwrap();
            let (ms, body, fails) = seen.borrow()[at];
            if fails { after(ms, "").error(ErrorKind::Refused) } else { after(ms, body) }
        });
        let mut runner = proptest::test_runner::TestRunner::deterministic();
        for _ in 0..300 {
            let tree = prop::collection::vec(answer(), 5).new_tree(&mut runner).unwrap();
            *answers.borrow_mut() = proptest::strategy::ValueTree::current(&tree);
            let plain = it.run("/").await.result;
            match (plain, start(&it, "application/jsonl").await) {
                (Ok(plain), Ok(_)) => {
                    let lines = lines(&it).await;
                    let bytes = String::from_utf8(plain.body.concat()).unwrap();
                    assert_eq!(spliced(&lines), bytes, "{answers:?}");
                    let parts: Vec<Part> =
                        lines.iter().map(|(at, line)| (*at, serde_json::from_str(line).unwrap())).collect();
                    assert_eq!(merged(&parts), serde_json::from_str::<Value>(&bytes).unwrap(), "{answers:?}");
                    assert!(parts[parts.len() - 1].1.get("done").is_some());
                    let partial = plain.headers.get("fanin-partial").is_some();
                    assert_eq!(parts[parts.len() - 1].1.get("partial").is_some(), partial);
                }
                (Err(plain), Err(error)) => assert_eq!(plain, error),
                // A part that lacks what the flow reads fails the flow, before or after the first part.
                (Err(plain), Ok(_)) => {
                    let parts = parts(&it).await;
                    assert_eq!(parts[parts.len() - 1].1["error"]["status"], plain.status.as_u16());
                }
                (Ok(_), Err(error)) => panic!("{error}: {answers:?}"),
            }
        }
    });
}
