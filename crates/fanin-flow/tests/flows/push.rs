//! `push.publish` is an effect, and `push.subscribe` a value to return.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;

use crate::common::{Setup, after, paused, setup};
use fanin_config::Push;
use fanin_flow::ReplyBody;
use fanin_push::{Channels, Hub, Subscription};
use fanin_upstream::ErrorKind;

/// Subscribes to channel `c` and lets the worker's flows publish.
fn connect(it: &Setup) -> (Arc<Channels>, Rc<Hub>) {
    let channels = Channels::new(Push::default());
    it.all.set_channels(&channels);
    let hub = Hub::new(channels.clone());
    it.flows.set_hub(&hub);
    (channels, hub)
}

async fn next(events: &mut Subscription) -> String {
    let piece = poll_fn(|context| events.poll_next(context)).await.expect("not the end");
    String::from_utf8(piece.to_vec()).expect("text")
}

const LOAD: &str = "load(\"@push\", \"push\")\n";

#[test]
fn publishing_waits_for_all_above_and_for_its_value() {
    paused(async {
        let star = format!(
            "{LOAD}def flow(req):\n    guard = a.get(\"/guard\")\n    maybe = b.get(\"/maybe\", optional = True)\n    \
             push.publish(\"c\", {{\"n\": maybe[\"n\"], \"x\": [maybe]}}, event = \"e\")\n    \
             orders.post(\"/o\", json = 1)\n    return guard\n"
        );
        let it = setup(&star, |upstream, _| after(if upstream == "b" { 9 } else { 5 }, "{\"n\": 1}"));
        let (_channels, hub) = connect(&it);
        let mut events = Subscription::new(&hub, ["c"].into_iter(), None).unwrap();
        let _ = poll_fn(|context| events.poll_next(context)).await;
        it.text("/").await;
        assert_eq!(it.events(), ["0 GET a/guard", "0 GET b/maybe", "9 POST orders/o 1"]);
        let event = poll_fn(|context| events.poll_next(context)).await.expect("an event");
        assert!(event.ends_with(b"\nevent: e\ndata: {\"n\":1,\"x\":[{\"n\": 1}]}\n\n"), "{event:?}");
    });
}

#[test]
fn nothing_is_published_below_a_failure() {
    paused(async {
        let star = format!("{LOAD}def flow(req):\n    a.get(\"/guard\")\n    push.publish(\"c\", 1)\n    return 1\n");
        let it = setup(&star, |_, _| after(5, "").error(ErrorKind::Refused));
        let (_channels, hub) = connect(&it);
        let mut events = Subscription::new(&hub, ["c"].into_iter(), None).unwrap();
        let start = poll_fn(|context| events.poll_next(context)).await.expect("the start");
        assert_eq!(it.error("/").await.upstream.as_deref(), Some("a"));
        let id = std::str::from_utf8(&start).unwrap().lines().nth(1).unwrap().strip_prefix("id: ").unwrap().to_owned();
        let mut again = Subscription::new(&hub, ["c"].into_iter(), None).unwrap();
        let start = poll_fn(|context| again.poll_next(context)).await.expect("the start");
        assert!(start.ends_with(format!("id: {id}\n\n").as_bytes()), "the channel is where it was");
    });
}

#[test]
fn events_count_as_calls() {
    paused(async {
        let star =
            format!("{LOAD}def flow(req):\n    for n in range(70):\n        push.publish(\"c\", n)\n    return 1\n");
        let it = setup(&star, |_, _| after(1, "1"));
        connect(&it);
        let reply = it.run("/").await;
        assert_eq!(reply.limit.map(fanin_flow::Limit::name), Some("calls"));
    });
}

#[test]
fn a_subscription_is_a_response() {
    paused(async {
        let star = format!(
            "{LOAD}def flow(req):\n    name = a.get(\"/name\")\n    \
             return response(headers = {{\"x-mine\": \"1\"}}, body = push.subscribe([name, \"d\", \"d\"]))\n"
        );
        let it = setup(&star, |_, _| after(5, "\"c\""));
        let (channels, _hub) = connect(&it);
        let success = it.run("/").await.result.unwrap();
        assert_eq!(success.headers["content-type"], "text/event-stream");
        assert_eq!(
            (&success.headers["cache-control"], &success.headers["x-mine"]),
            (&"no-store".parse().unwrap(), &"1".parse().unwrap())
        );
        let ReplyBody::Events(mut events) = success.body else { panic!("no events") };
        assert!(next(&mut events).await.ends_with("-0.0\n\n"), "two channels");
        channels.publish("c", None, b"1").unwrap();
        assert!(next(&mut events).await.ends_with("data: 1\n\n"));
    });
}

#[test]
fn wrong_calls_are_mistakes_of_the_flow() {
    paused(async {
        for call in [
            "push.publish(7, 1)",
            "push.publish(\"c\")",
            "push.publish(\"\", 1)",
            "push.publish(\"c\", 1, event = \"lost\")",
            "push.publish(\"c\", flow)",
            "push.subscribe([])",
            "push.subscribe([1])",
            "{\"events\": push.subscribe(\"c\")}",
        ] {
            let it = setup(&format!("{LOAD}def flow(req):\n    return {call}\n"), |_, _| after(1, "1"));
            connect(&it);
            let error = it.error("/").await;
            assert_eq!((error.status.as_u16(), error.kind), (500, "flow"), "{call}");
        }
    });
}
