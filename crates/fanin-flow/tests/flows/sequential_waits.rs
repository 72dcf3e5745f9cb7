//! Sequential waits: a line that makes one request wait many times one after another is counted. Parallel calls are not.

use crate::common::{after, paused, setup};
use prometheus_client::registry::Registry;

/// Samples of the metric after one request.
fn counted(star: &str) -> Vec<String> {
    let mut lines = Vec::new();
    paused(async {
        let it = setup(star, |_, request| {
            // Answers of parallel calls arrive one by one.
            let i = request.path_and_query.split_once("i=").and_then(|(_, i)| i.parse::<u64>().ok()).unwrap_or(0);
            after(5 + i, "{\"ok\": true, \"n\": 1}")
        });
        it.text("/").await;
        let mut registry = Registry::default();
        it.all.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).expect("text");
        let metric = |line: &&str| line.starts_with("fanin_flow_waits_in_a_row_total{");
        lines = text.lines().filter(metric).map(|line| line.replace("fanin_flow_waits_in_a_row_total", "")).collect();
    });
    lines
}

#[test]
fn loop_that_waits_for_each_item_is_counted() {
    let star = "def flow(req):\n    found = []\n    for i in range(12):\n        if a.get(\"/x\", query = {\"i\": i})[\"ok\"]:\n            \
                found.append(i)\n    return found\n";
    let lines = counted(star);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains(".star:") && lines[0].ends_with(" 1"), "{lines:?}");
}

#[test]
fn waits_at_two_alternating_lines_are_counted() {
    let star = "def check(found, i):\n    if a.get(\"/x\", query = {\"i\": i})[\"ok\"]:\n        found.append(i)\n\n\
                def flow(req):\n    found = []\n    for i in range(12):\n        check(found, i)\n        \
                if b.get(\"/y\")[\"n\"] > 1:\n            break\n    return found\n";
    assert_eq!(counted(star).len(), 1);
}

#[test]
fn parallel_calls_are_not_counted() {
    let star = "def one(i):\n    if a.get(\"/x\", query = {\"i\": i})[\"ok\"]:\n        return i\n    return None\n\n\
                def flow(req):\n    return [one(i) for i in range(20)]\n";
    assert_eq!(counted(star), Vec::<String>::new());
    // One line awaits twenty answers that arrive together.
    let star = "def flow(req):\n    return str([a.get(\"/x\", query = {\"i\": i})[\"n\"] for i in range(20)])\n";
    assert_eq!(counted(star), Vec::<String>::new());
    let star = "def flow(req):\n    calls = [a.get(\"/x\", query = {\"i\": i}) for i in range(20)]\n    sum = 0\n    \
                for call in calls:\n        sum += call[\"n\"]\n    return sum\n";
    assert_eq!(counted(star), Vec::<String>::new());
}
