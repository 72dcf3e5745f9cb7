//! Whatever leaves as JSON is JSON, however the bytes of answers are spliced.

use std::cell::RefCell;
use std::rc::Rc;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use crate::common::{Setup, after, paused, setup_with};
use fanin_upstream::ErrorKind;

/// What upstream `a` answers: status and body. `b` is unreachable, so that every response is partial.
type Answer = Rc<RefCell<(u16, String)>>;

/// A flow, and its result for the value that `a` answers, which is `None` if the call fails.
type Case = (&'static str, fn(Option<Value>) -> Option<Value>);

const FLOWS: [Case; 8] = [
    ("return a.get(\"/x\")", |value| value),
    ("return response(body = a.get(\"/x\"))", |value| value),
    ("return {\"v\": a.get(\"/x\")}", |value| Some(json!({"v": value?}))),
    ("return [a.get(\"/x\")]", |value| Some(json!([value?]))),
    ("return a.get(\"/x\")[\"k\"]", |value| value?.get("k").cloned()),
    ("return a.get(\"/x\", default = {})", |value| Some(value.unwrap_or(json!({})))),
    ("return a.get(\"/x\", default = {\"d\": 1})", |value| Some(value.unwrap_or(json!({"d": 1})))),
    ("return a.get(\"/x\", optional = True)", |value| Some(value.unwrap_or(Value::Null))),
];

fn flow(body: &str) -> (Setup, Answer) {
    let answer: Answer = Rc::new(RefCell::new((200, String::new())));
    let answers = answer.clone();
    let star = format!("def flow(req):\n    missing = b.get(\"/y\", optional = True).failed\n    {body}\n");
    let it = setup_with(&star, "errors = true", move |upstream, _| match upstream {
        "a" => after(1, answers.borrow().1.clone()).status(answers.borrow().0),
        _ => after(1, "").error(ErrorKind::Refused),
    });
    (it, answer)
}

/// The response as JSON; `None` if the request failed.
async fn sent(it: &Setup) -> Option<Value> {
    let success = it.run("/").await.result.ok()?;
    assert_eq!(success.headers["content-type"], "application/json");
    assert!(success.headers["fanin-partial"].to_str().unwrap().starts_with('b'));
    let body = success.body.concat();
    Some(serde_json::from_slice(&body).unwrap_or_else(|error| panic!("{error}: {:?}", String::from_utf8_lossy(&body))))
}

/// A document as text with whitespace in all places.
fn spaced() -> impl Strategy<Value = String> {
    let space = || "[ \n\r\t]{0,2}";
    let text =
        || prop_oneof![Just("\"k\"".to_owned()), "\"[ -!#-\\[\\]-~é]{0,4}\"", Just("\"\\ud83d\\ude00\"".to_owned())];
    let scalar = prop_oneof![
        prop::sample::select(vec!["null", "true", "false", "0", "-1.5e3", "12345678901234567890123"])
            .prop_map(str::to_owned),
        text(),
        Just(format!("\"{}\"", "x".repeat(20_000))),
    ];
    let value = scalar.prop_recursive(3, 12, 3, move |inner| {
        let item = (space(), inner.clone(), space()).prop_map(|(before, item, after)| format!("{before}{item}{after}"));
        let member = (space(), text(), space(), item.clone())
            .prop_map(|(before, key, after, item)| format!("{before}{key}{after}:{item}"));
        prop_oneof![
            space().prop_map(|space| format!("[{space}]")),
            space().prop_map(|space| format!("{{{space}}}")),
            prop::collection::vec(item, 1..4).prop_map(|items| format!("[{}]", items.join(","))),
            prop::collection::vec(member, 1..4).prop_map(|members| format!("{{{}}}", members.join(","))),
        ]
    });
    (space(), value, space()).prop_map(|(before, value, after)| format!("{before}{value}{after}"))
}

#[test]
fn every_splice_of_every_body_is_json() {
    // A cut document and a stray byte are invalid in most cases.
    let bodies = prop_oneof![
        6 => spaced(),
        1 => (spaced(), any::<prop::sample::Index>()).prop_map(|(body, at)| {
            let at = at.index(body.len());
            String::from_utf8_lossy(&body.as_bytes()[..at]).into_owned()
        }),
        1 => (spaced(), "[x,}\\]\"]").prop_map(|(body, stray)| body + &stray),
    ];
    let cases = (bodies, prop::sample::select(vec![200, 200, 200, 500]));
    paused(async {
        let flows = FLOWS.map(|(body, expected)| (body, expected, flow(body)));
        let mut runner = TestRunner::deterministic();
        for _ in 0..200 {
            let (body, status): (String, u16) = cases.new_tree(&mut runner).unwrap().current();
            let valid = serde_json::from_str::<Value>(&body).ok().filter(|_| status == 200);
            for (flow, expected, (it, answer)) in &flows {
                *answer.borrow_mut() = (status, body.clone());
                let sent = sent(it).await;
                let expected = expected(valid.clone());
                let Some(mut expected) = expected else {
                    assert_eq!(sent, None, "{flow}: {body:?}");
                    continue;
                };
                let mut sent = sent.unwrap_or_else(|| panic!("{flow}: no response for {body:?}"));
                if let (Value::Object(sent), Value::Object(expected)) = (&mut sent, &mut expected) {
                    let errors = sent.remove("errors").unwrap_or_else(|| panic!("{flow}: no errors for {body:?}"));
                    assert!(errors.as_array().unwrap().contains(&json!({"upstream": "b", "kind": "refused"})));
                    expected.remove("errors");
                }
                assert_eq!(sent, expected, "{flow}: {body:?}");
            }
        }
    });
}

#[test]
fn errors_are_added_to_any_object() {
    paused(async {
        let (it, answer) = flow("return a.get(\"/x\")");
        for body in ["{}", "{ }", " {\n} ", "{\"a\":1}\n", "\r\n{\"a\": {} }\t", "{\"a\":1 }"] {
            *answer.borrow_mut() = (200, body.to_owned());
            let sent = sent(&it).await.unwrap();
            assert_eq!(sent["errors"], json!([{"upstream": "b", "kind": "refused"}]), "{body:?}");
        }
    });
}

#[test]
fn a_default_is_sent_instead_of_the_answer_that_failed() {
    paused(async {
        let (it, answer) = flow("return a.get(\"/x\", default = {\"d\": 1})");
        for (status, body) in [(500, "{\"secret\": 1}"), (200, "{\"cut\": "), (503, "")] {
            *answer.borrow_mut() = (status, body.to_owned());
            assert_eq!(sent(&it).await.unwrap()["d"], 1, "{body}");
        }
    });
}

#[test]
fn the_answer_to_a_head_is_null() {
    paused(async {
        let (it, answer) = flow("return a.head(\"/x\")");
        *answer.borrow_mut() = (200, String::new());
        assert_eq!(sent(&it).await, Some(Value::Null));
    });
}
