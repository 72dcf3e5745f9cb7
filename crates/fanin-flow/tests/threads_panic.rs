//! A flow that panics on a thread of a pool fails its own request; the thread continues.

mod common;

use std::rc::Rc;

use common::{after, setup_with};
use tokio::task::spawn_local;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// A log that panics, to make a flow panic on the thread that runs it.
struct Breaks;

struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

impl Subscriber for Breaks {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut message = Message(String::new());
        event.record(&mut message);
        assert!(message.0 != "break", "the log is broken, on {:?}", std::thread::current().name());
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn panic_fails_only_its_request() {
    tracing::subscriber::set_global_default(Breaks).unwrap();
    // In real time, so no duration is asserted.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let flow = "
def flow(req):
    x = a.get(\"/x\")
    if x and req.query[\"n\"] == \"2\":
        print(\"break\")
    return x
";
        let it = setup_with(flow, "executor = { threads = 1, waiting = 3 }", |_, _| after(5, "1"));
        let it = Rc::new(it);
        let runs: Vec<_> = (1..=3)
            .map(|n| {
                let it = it.clone();
                spawn_local(async move { it.run(&format!("/?n={n}")).await })
            })
            .collect();
        let mut panics = Vec::new();
        for run in runs {
            match run.await {
                Ok(reply) => {
                    assert_eq!(reply.result.unwrap().body.concat(), b"1");
                    panics.push(false);
                }
                // The panic surfaces on the worker, where the server counts it.
                Err(error) => panics.push(error.is_panic()),
            }
        }
        assert_eq!(panics, [false, true, false]);
        assert_eq!(it.events().len(), 3);
    });
}
