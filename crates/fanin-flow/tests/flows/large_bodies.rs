//! Large bodies of requests: parsed ahead on a thread of their own, so that they do not hold the worker.

use std::future::Future;
use std::future::poll_fn;
use std::pin::pin;

use bytes::Bytes;

use crate::common::{Setup, after, paused, setup, threaded};

/// An object with so many members.
fn object(members: usize) -> String {
    let members: Vec<String> = (0..members).map(|at| format!("\"key-{at}\":{at}")).collect();
    format!("{{{}}}", members.join(","))
}

/// Runs the flow on a body. Also says whether it was answered by its first poll.
async fn run(it: &Setup, body: String) -> (bool, Result<String, u16>) {
    let mut incoming = it.incoming("/");
    incoming.body = Bytes::from(body);
    let mut flow = pin!(it.flows.run(0, incoming));
    let mut polls = 0;
    let reply = poll_fn(|context| {
        polls += 1;
        flow.as_mut().poll(context)
    });
    let reply = reply.await;
    let result = reply.result.map(|success| String::from_utf8(success.body.concat()).unwrap());
    (polls == 1, result.map_err(|error| error.status.as_u16()))
}

#[test]
fn a_large_body_is_parsed_off_the_worker_and_read_as_any_other() {
    let star = "def flow(req):\n    return [len(req.body), req.body[\"key-7\"], req.body.get(\"none\")]\n";
    paused(async {
        let it = setup(star, |_, _| after(1, "1"));
        for _ in 0..2 {
            let (at_once, result) = run(&it, object(100_000)).await;
            assert_eq!(result.unwrap(), "[100000,7,null]");
            assert!(!at_once);
        }
        let (at_once, result) = run(&it, object(20)).await;
        assert_eq!(result.unwrap(), "[20,7,null]");
        assert!(at_once || threaded(), "a small body does not wait for a thread");
    });
}

#[test]
fn an_invalid_large_body_is_the_clients_fault() {
    paused(async {
        let it = setup("def flow(req):\n    return req.body[\"x\"]\n", |_, _| after(1, "1"));
        let (_, result) = run(&it, object(20_000) + "}").await;
        assert_eq!(result, Err(400));
    });
}

#[test]
fn a_body_that_the_flow_does_not_read_is_not_parsed_again() {
    let star = "def flow(req):\n    return len(req.body) if req.query.get(\"read\") else len(req.text)\n";
    paused(async {
        let it = setup(star, |_, _| after(1, "1"));
        // Not even JSON: a failure to parse ahead is nobody's fault.
        for first in [true, false] {
            let (at_once, result) = run(&it, "x".repeat(100_000)).await;
            assert_eq!(result.unwrap(), "100000");
            // The first may be refused by the thread before this one looks.
            assert!(first || at_once || threaded());
        }
    });
}
