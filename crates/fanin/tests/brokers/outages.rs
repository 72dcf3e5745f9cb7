//! A broker that dies, and one that hangs.

use fanin_testbed::Server;

use crate::{Client, WHOLE, keys, metric, publish, serve, two};

/// A broker that dies and comes back.
fn a_broker_dies(kind: &str) {
    let mut broker = Server::broker(kind, &[]);
    let [(_a, a), (_b, b)] = two(&keys(&broker));
    let (mut at_a, mut at_b) = (Client::open(&a, "news"), Client::open(&b, "news"));
    for died in 0..2 {
        broker.kill();
        for serving in [&a, &b] {
            serving.logged("no events from and to other instances");
            assert_eq!(metric(serving, "connected"), 0);
        }
        for round in 0..10 {
            publish(&a, "news", &format!("\"{died} {round}\""));
            assert_eq!(at_a.data(), format!("\"{died} {round}\""));
        }
        broker.start();
        for (serving, client) in [(&a, &mut at_a), (&b, &mut at_b)] {
            serving.logged(WHOLE);
            client.lost();
            assert_eq!(metric(serving, "reconnects_total"), died + 1);
        }
        publish(&a, "news", "\"from a\"");
        publish(&b, "news", "\"from b\"");
        for client in [&mut at_a, &mut at_b] {
            client.until(&["\"from a\"", "\"from b\""]);
        }
    }
}

#[test]
fn redis_dies() {
    a_broker_dies("redis");
}

#[test]
fn nats_dies() {
    a_broker_dies("nats");
}

/// A broker that accepts connections and does nothing, at the start and later.
fn a_broker_hangs(kind: &str) {
    let mut broker = Server::broker(kind, &[]);
    broker.pause();
    let keys = format!("{}broker_queue = 20\nmax_log_size = \"1GiB\"\nlog_size = \"1GiB\"", keys(&broker));
    let ((_a, a), (_b, b)) = (serve(&keys), serve(&keys));
    let (mut at_a, mut at_b) = (Client::open(&a, "news"), Client::open(&b, "news"));
    for serving in [&a, &b] {
        serving.logged("no events from and to other instances");
    }
    publish(&a, "news", "1");
    assert_eq!(at_a.data(), "1");
    broker.go_on();
    for (serving, client) in [(&a, &mut at_a), (&b, &mut at_b)] {
        serving.logged(WHOLE);
        // Others may have published before it was linked.
        client.lost();
    }
    publish(&a, "news", "2");
    at_a.until(&["2"]);
    at_b.until(&["2"]);

    broker.pause();
    // Far more than sockets and queue hold.
    let text = "x".repeat(60_000);
    for round in 0..200 {
        publish(&a, "news", &format!("[{round}, \"{text}\"]"));
        assert!(at_a.data().starts_with(&format!("[{round}, ")));
    }
    let lines = a.lines_until("no events from and to other instances");
    let dropped = lines.iter().filter(|line| line.contains("events for other instances are dropped")).count();
    assert_eq!(dropped, 1, "{lines:?}");
    assert!(metric(&a, "dropped_total") >= 50, "{}", metric(&a, "dropped_total"));
    broker.go_on();
    a.logged(WHOLE);
    at_b.lost();
    publish(&a, "news", "3");
    at_b.until(&["3"]);
}

#[test]
fn redis_hangs() {
    a_broker_hangs("redis");
}

#[test]
fn nats_hangs() {
    a_broker_hangs("nats");
}
