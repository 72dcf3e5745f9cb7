//! Effects run in program order.

use crate::common::{after, paused, setup, setup_with};
use fanin_upstream::ErrorKind;

#[test]
fn a_write_starts_when_every_required_call_above_has_succeeded() {
    paused(async {
        let star = "def flow(req):\n    x = a.get(\"/x\")\n    o = orders.post(\"/o\", json = {\"n\": 1})\n    y = b.get(\"/y\")\n    return [x, o, y]\n";
        let it = setup(star, |_, _| after(5, "1"));
        assert_eq!(it.text("/").await, "[1,1,1]");
        assert_eq!(it.events(), ["0 GET a/x", "5 POST orders/o {\"n\":1}", "10 GET b/y"]);
    });
}

#[test]
fn write_is_not_sent_when_a_required_call_above_fails() {
    paused(async {
        let star = "def flow(req):\n    x = a.get(\"/x\")\n    orders.post(\"/o\", json = {})\n    return 1\n";
        let it = setup(
            star,
            |upstream, _| if upstream == "a" { after(5, "").error(ErrorKind::Refused) } else { after(1, "1") },
        );
        assert_eq!(it.error("/").await.upstream.as_deref(), Some("a"));
        assert_eq!(it.events(), ["0 GET a/x"]);
    });
}

#[test]
fn a_write_is_sent_although_an_optional_call_above_failed() {
    paused(async {
        let star = "def flow(req):\n    x = a.get(\"/x\", optional = True)\n    orders.post(\"/o\", json = {})\n    return 1\n";
        let it = setup(
            star,
            |upstream, _| if upstream == "a" { after(5, "").error(ErrorKind::Refused) } else { after(1, "1") },
        );
        assert_eq!(it.text("/").await, "1");
        assert!(it.events().iter().any(|event| event.contains("POST orders/o")));
    });
}

#[test]
fn nothing_below_a_failed_write_starts() {
    paused(async {
        let star = "def flow(req):\n    orders.post(\"/o\", json = {})\n    return b.get(\"/y\")\n";
        let it = setup(star, |_, _| after(5, "{}").status(500));
        assert_eq!(it.error("/").await.upstream.as_deref(), Some("orders"));
        assert_eq!(it.events(), ["0 POST orders/o {}"]);
    });
}

#[test]
fn two_writes_follow_each_other() {
    paused(async {
        let star =
            "def flow(req):\n    x = orders.post(\"/1\", json = 1)\n    y = orders.delete(\"/2\")\n    return [x, y]\n";
        let it = setup(star, |_, _| after(5, "1"));
        it.text("/").await;
        assert_eq!(it.events(), ["0 POST orders/1 1", "5 DELETE orders/2"]);
    });
}

#[test]
fn a_function_that_writes_runs_in_order_and_those_around_it_do_not_overtake() {
    paused(async {
        let star = "
def audit(n):
    if a.get(\"/may\", query = {\"n\": n})[\"ok\"]:
        orders.post(\"/audit\", json = n)

def flow(req):
    audit(1)
    audit(2)
    return b.get(\"/data\")
";
        let it = setup(star, |_, _| after(5, "{\"ok\": true}"));
        it.text("/").await;
        assert_eq!(
            it.events(),
            ["0 GET a/may?n=1", "5 POST orders/audit 1", "10 GET a/may?n=2", "15 POST orders/audit 2", "20 GET b/data"]
        );
    });
}

#[test]
fn items_that_write_are_done_one_after_the_other() {
    paused(async {
        let star = "def flow(req):\n    return [orders.post(\"/o\", json = a.get(\"/n\", query = {\"i\": i})[\"n\"]) for i in range(3)]\n";
        let it = setup(star, |upstream, _| if upstream == "a" { after(5, "{\"n\": 9}") } else { after(5, "1") });
        it.text("/").await;
        assert_eq!(
            it.events(),
            [
                "0 GET a/n?i=0",
                "5 POST orders/o 9",
                "10 GET a/n?i=1",
                "15 POST orders/o 9",
                "20 GET a/n?i=2",
                "25 POST orders/o 9"
            ]
        );
    });
}

#[test]
fn safe_and_unordered_writes_run_side_by_side() {
    paused(async {
        let star = "def flow(req):\n    x = orders.post(\"/s\", json = 1, safe = True)\n    y = orders.post(\"/u\", json = 2, unordered = True)\n    z = c.find(text = \"q\")\n    return [x, y, z, a.get(\"/x\")]\n";
        let it = setup(star, |_, _| after(5, "1"));
        it.text("/").await;
        assert_eq!(it.elapsed(), 5);
        assert_eq!(it.events().len(), 4);
    });
}

#[test]
fn flow_with_effect_continues_after_disconnect() {
    let star = "def flow(req):\n    orders.post(\"/1\", json = 1)\n    orders.post(\"/2\", json = 2)\n    return 1\n";
    for (more, expected) in [("", 2), ("on_disconnect = \"cancel\"", 1)] {
        paused(async move {
            let it = setup_with(star, more, |_, _| after(5, "1"));
            let flow = it.flows.run(0, it.incoming("/"));
            assert!(tokio::time::timeout(std::time::Duration::from_millis(2), flow).await.is_err());
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            let sent = it.events().iter().filter(|event| !event.starts_with("cancelled")).count();
            assert_eq!(sent, expected, "{more}");
        });
    }
}

#[test]
fn reading_flow_is_cancelled_on_disconnect() {
    let star = "def flow(req):\n    x = a.get(\"/1\")\n    if x:\n        return b.get(\"/2\")\n    return 1\n";
    for (more, expected) in [("", 1), ("on_disconnect = \"finish\"", 2)] {
        paused(async move {
            let it = setup_with(star, more, |_, _| after(5, "1"));
            let flow = it.flows.run(0, it.incoming("/"));
            assert!(tokio::time::timeout(std::time::Duration::from_millis(2), flow).await.is_err());
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            let sent = it.events().iter().filter(|event| !event.starts_with("cancelled")).count();
            assert_eq!(sent, expected, "{more}");
        });
    }
}
