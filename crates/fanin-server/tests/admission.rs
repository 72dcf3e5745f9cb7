//! Limits in flight, waiting, refusals, deadlines.

mod common;

use std::sync::atomic::Ordering::SeqCst;

use common::{TestServer, eventually, metric};

fn waiting(server: &TestServer, route: &str) -> f64 {
    metric(&server.metrics(), &format!("fanin_requests_waiting{{method=\"GET\",route=\"{route}\"}}"))
}

#[test]
fn the_excess_of_a_route_waits_and_then_is_refused() {
    let server = TestServer::start();
    let (mut first, mut second, mut third) = (server.connect(), server.connect(), server.connect());
    first.send_get("/limited");
    eventually("the first runs", || server.shared.begun.load(SeqCst) == 1);
    second.send_get("/limited");
    eventually("the second waits", || waiting(&server, "/limited") == 1.0);
    let reply = third.get("/limited");
    assert_eq!((reply.status, reply.problem().as_str()), (503, "overloaded"));
    assert_eq!((reply.header("retry-after"), &reply.json()["reason"]), (Some("1"), &"route-limit".into()));
    assert_eq!(server.get("/hello").status, 200, "other routes are not concerned");
    assert_eq!(server.shared.begun.load(SeqCst), 1);

    server.shared.gate.add_permits(2);
    assert_eq!((first.reply().status, second.reply().status), (200, 200));
    assert_eq!(third.send_get("/hello").reply().status, 200, "a refusal does not end the connection");
    let page = server.metrics();
    assert_eq!(
        metric(&page, "fanin_requests_refused_total{method=\"GET\",route=\"/limited\",reason=\"route-limit\"}"),
        1.0
    );
    assert_eq!(metric(&page, "fanin_requests_in_flight{method=\"GET\",route=\"/limited\"}"), 0.0);
}

#[test]
fn the_servers_limit_holds_over_all_workers() {
    let server = TestServer::with(|setup| {
        setup.server.limit = 3;
        setup.server.max_waiting = 2;
        setup.server.workers = 3;
    });
    let mut clients = (0..5).map(|_| server.connect()).collect::<Vec<_>>();
    for client in &mut clients {
        client.send_get("/gate");
    }
    eventually("three run, two wait", || {
        let page = server.metrics();
        metric(&page, "fanin_server_in_flight") == 3.0 && metric(&page, "fanin_server_waiting") == 2.0
    });
    assert_eq!(server.shared.begun.load(SeqCst), 3);
    let reply = server.get("/hello");
    assert_eq!((reply.status, &reply.json()["reason"]), (503, &"server-limit".into()));
    server.shared.gate.add_permits(5);
    assert!(clients.iter_mut().all(|client| client.reply().status == 200));
    assert_eq!(server.get("/hello").status, 200);
}

#[test]
fn waiting_ends_at_the_deadline() {
    let server = TestServer::start();
    let (mut first, mut second) = (server.connect(), server.connect());
    first.send_get("/limited-briefly");
    eventually("the first runs", || server.shared.begun.load(SeqCst) == 1);
    let reply = second.get("/limited-briefly");
    // The backstop answers the first one some 100 ms later than the second's deadline.
    assert_eq!((reply.status, &reply.json()["reason"]), (503, &"deadline".into()));
    assert_eq!(server.shared.begun.load(SeqCst), 1);
}

#[test]
fn who_waits_and_leaves_gives_the_place_in_the_queue_back() {
    let server = TestServer::start();
    let (mut first, mut second) = (server.connect(), server.connect());
    first.send_get("/limited");
    eventually("the first runs", || server.shared.begun.load(SeqCst) == 1);
    second.send_get("/limited");
    eventually("the second waits", || waiting(&server, "/limited") == 1.0);
    drop(second);
    eventually("nobody waits", || waiting(&server, "/limited") == 0.0);
    server.shared.gate.add_permits(1);
    assert_eq!(first.reply().status, 200);
    assert_eq!(server.shared.begun.load(SeqCst), 1);
}

#[test]
fn a_refusal_does_not_read_the_body() {
    let server = TestServer::with(|setup| {
        setup.server.limit = 1;
        setup.server.max_waiting = 0;
    });
    let mut first = server.connect();
    first.send_get("/gate");
    eventually("the first runs", || server.shared.begun.load(SeqCst) == 1);
    let mut second = server.connect();
    second.send("POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: 100000\r\n\r\n");
    assert_eq!(second.reply().status, 503);
    server.shared.gate.add_permits(1);
    assert_eq!(first.reply().status, 200);
}

#[test]
fn an_application_that_overruns_its_deadline_is_answered_for() {
    let server = TestServer::start();
    let reply = server.get("/never");
    assert_eq!((reply.status, reply.problem().as_str()), (504, "deadline"));
    assert_eq!(metric(&server.metrics(), "fanin_server_in_flight"), 0.0);
}

#[test]
fn a_trusted_client_can_only_shorten_the_deadline() {
    let server = TestServer::with(|setup| setup.server.timeout_header = Some("x-timeout-ms".parse().unwrap()));
    let mut client = server.connect();
    let mut with = |value: &str| {
        client.send(format!("GET /items/1 HTTP/1.1\r\nhost: a\r\nx-timeout-ms: {value}\r\n\r\n"));
        client.reply()
    };
    assert_eq!(with("700").json()["deadline_ms"], 700);
    assert_eq!(with("99999999").json()["deadline_ms"], 10_000);
    assert_eq!(with("0").problem(), "deadline");
    assert_eq!((with("soon").status, with("-1").status), (400, 400));
    assert_eq!(client.get("/items/1").json()["deadline_ms"], 10_000);

    let untrusting = TestServer::start();
    let mut client = untrusting.connect();
    client.send("GET /items/1 HTTP/1.1\r\nhost: a\r\nx-timeout-ms: 700\r\n\r\n");
    assert_eq!(client.reply().json()["deadline_ms"], 10_000);
}

#[test]
fn connections_above_the_limit_are_refused() {
    let server = TestServer::with(|setup| setup.server.max_connections = 2);
    let mut clients = [server.connect(), server.connect()];
    assert!(clients.iter_mut().all(|client| client.get("/hello").status == 200));
    let mut third = server.connect();
    let reply = third.reply();
    assert_eq!((reply.status, reply.problem().as_str()), (503, "overloaded"));
    assert!(third.is_closed());
    drop(clients);
    eventually("there is room again", || {
        let page = server.metrics();
        (0..2).map(|worker| metric(&page, &format!("fanin_connections{{worker=\"{worker}\"}}"))).sum::<f64>() == 0.0
    });
    assert_eq!(server.get("/hello").status, 200);
}

#[test]
fn many_clients_at_once() {
    let server = TestServer::start();
    let address = server.address;
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(move || {
                let mut clients = (0..16).map(|_| common::Client::connect(address)).collect::<Vec<_>>();
                for round in 0..10 {
                    for (at, client) in clients.iter_mut().enumerate() {
                        client.send_get(&format!("/items/{round}-{at}"));
                    }
                    for (at, client) in clients.iter_mut().enumerate() {
                        assert_eq!(client.reply().json()["params"]["id"], format!("{round}-{at}"));
                    }
                }
            });
        }
    });
    let page = server.metrics();
    assert_eq!(metric(&page, "fanin_requests_total{method=\"GET\",route=\"/items/{id}\",status=\"2xx\"}"), 2560.0);
    assert_eq!(metric(&page, "fanin_server_in_flight"), 0.0);
}
