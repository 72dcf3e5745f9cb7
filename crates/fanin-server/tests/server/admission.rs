//! Limits in flight, waiting, refusals, deadlines.

use std::sync::atomic::Ordering::SeqCst;

use crate::common::{TestServer, eventually, metric};

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

    server.shared.limiter.add_permits(2);
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
        client.send_get("/limiter");
    }
    eventually("three run, two wait", || {
        let page = server.metrics();
        metric(&page, "fanin_server_in_flight") == 3.0 && metric(&page, "fanin_server_waiting") == 2.0
    });
    assert_eq!(server.shared.begun.load(SeqCst), 3);
    let reply = server.get("/hello");
    assert_eq!((reply.status, &reply.json()["reason"]), (503, &"server-limit".into()));
    server.shared.limiter.add_permits(5);
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
    server.shared.limiter.add_permits(1);
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
    first.send_get("/limiter");
    eventually("the first runs", || server.shared.begun.load(SeqCst) == 1);
    let mut second = server.connect();
    second.send("POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: 100000\r\n\r\n");
    assert_eq!(second.reply().status, 503);
    server.shared.limiter.add_permits(1);
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
    let server = TestServer::with(|setup| {
        setup.server.timeout_header = Some("x-timeout-ms".parse().unwrap());
        setup.server.trusted = vec!["127.0.0.0/8".parse().unwrap()];
    });
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

    let untrusting = TestServer::with(|setup| {
        setup.server.timeout_header = Some("x-timeout-ms".parse().unwrap());
        setup.server.trusted = vec!["10.0.0.0/8".parse().unwrap()];
    });
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
                let mut clients = (0..16).map(|_| crate::common::Client::connect(address)).collect::<Vec<_>>();
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

fn refused(server: &TestServer, route: &str, reason: &str) -> f64 {
    metric(
        &server.metrics(),
        &format!("fanin_requests_refused_total{{method=\"GET\",route=\"{route}\",reason=\"{reason}\"}}"),
    )
}

#[test]
fn who_is_trusted_can_say_how_important_a_request_is() {
    let start = |trusted: &str| {
        TestServer::with(|setup| {
            setup.server.priority_header = Some("x-priority".parse().unwrap());
            setup.server.trusted = vec![trusted.parse().unwrap()];
        })
    };
    let get = |priority: &str| format!("GET /items/1 HTTP/1.1\r\nhost: a\r\nx-priority: {priority}\r\n\r\n");
    let server = start("127.0.0.0/8");
    let mut client = server.connect();
    let mut with = |priority: &str| {
        client.send(get(priority));
        client.reply()
    };
    assert_eq!(with("critical").json()["priority"], "critical");
    assert_eq!(with("background").json()["priority"], "background");
    let reply = with("urgent");
    assert_eq!((reply.status, reply.problem().as_str()), (400, "bad-request"));
    assert_eq!(client.get("/items/1").json()["priority"], "normal", "the route's");

    let untrusting = start("10.0.0.0/8");
    let mut client = untrusting.connect();
    for priority in ["critical", "urgent"] {
        client.send(get(priority));
        assert_eq!(client.reply().json()["priority"], "normal", "not from this client");
    }
}

#[test]
fn without_memory_requests_are_refused_and_a_reload_lets_them_in_again() {
    let server = TestServer::with(|setup| setup.server.memory = fanin_config::MemoryBudget::Bytes(1 << 20));
    eventually("a reading is taken", || metric(&server.metrics(), "fanin_memory_shedding") == 4.0);
    let page = server.metrics();
    assert_eq!(metric(&page, "fanin_memory_budget_bytes"), f64::from(1 << 20));
    assert!(metric(&page, "fanin_memory_used_bytes") > f64::from(1 << 20));
    let reply = server.get("/hello");
    assert_eq!((reply.status, reply.problem().as_str()), (503, "overloaded"));
    assert_eq!((reply.header("retry-after"), &reply.json()["reason"]), (Some("1"), &"memory".into()));
    assert_eq!(refused(&server, "/hello", "memory"), 1.0);

    server.change(|setup| setup.server.memory = fanin_config::MemoryBudget::Off);
    server.handle().reload().unwrap();
    eventually("the budget is gone", || metric(&server.metrics(), "fanin_memory_shedding") == 0.0);
    assert_eq!(server.get("/hello").status, 200);
}

#[test]
fn a_worker_that_cannot_keep_up_lets_the_important_in_and_refuses_the_rest() {
    let server = TestServer::with(|setup| {
        setup.server.workers = 1;
        setup.server.priority_header = Some("x-priority".parse().unwrap());
        setup.server.trusted = vec!["127.0.0.1".parse().unwrap()];
        setup.server.queueing = Some(std::time::Duration::from_millis(20));
    });
    let address = server.address;
    let ask = |client: &mut crate::common::Client, priority: &str| {
        client.send(format!("GET /work HTTP/1.1\r\nhost: a\r\nx-priority: {priority}\r\n\r\n"));
    };
    // Each costs the worker two milliseconds: 40 clients at once are a queue of 80 ms that never ends.
    let (mut good, mut bad, mut important) = (0, 0, Vec::new());
    std::thread::scope(|scope| {
        let herd = (0..40)
            .map(|_| {
                scope.spawn(|| {
                    let mut client = crate::common::Client::connect(address);
                    (0..25).fold((0, 0), |(good, bad), _| {
                        ask(&mut client, "low");
                        let reply = client.reply();
                        if reply.status == 200 {
                            return (good + 1, bad);
                        }
                        assert_eq!((reply.status, &reply.json()["reason"]), (503, &"queueing".into()));
                        assert_eq!(reply.header("retry-after"), Some("1"));
                        (good, bad + 1)
                    })
                })
            })
            .collect::<Vec<_>>();
        let mut client = crate::common::Client::connect(address);
        while !herd.iter().all(|thread| thread.is_finished()) {
            ask(&mut client, "critical");
            important.push(client.reply().status);
        }
        for thread in herd {
            let (more_good, more_bad) = thread.join().unwrap();
            good += more_good;
            bad += more_bad;
        }
    });
    assert!(good > 0 && bad > 0, "{good} of the herd were served, {bad} refused");
    assert!(important.iter().all(|status| *status == 200), "{important:?}");
    assert_eq!(refused(&server, "/work", "queueing"), f64::from(bad));
    // The worker counts what waits when it next looks at the queue.
    eventually("the queue is empty", || metric(&server.metrics(), "fanin_requests_queued{worker=\"0\"}") == 0.0);
    eventually("nothing runs", || metric(&server.metrics(), "fanin_server_in_flight") == 0.0);
    assert_eq!(server.get("/work").status, 200, "the queue is gone");
}

#[test]
fn slow_answers_are_no_reason_to_refuse() {
    let server = TestServer::with(|setup| {
        setup.server.workers = 1;
        setup.server.queueing = Some(std::time::Duration::from_millis(1));
    });
    let mut clients = (0..50).map(|_| server.connect()).collect::<Vec<_>>();
    for (at, client) in clients.iter_mut().enumerate() {
        client.send_get("/limiter");
        eventually("it runs", || server.shared.begun.load(SeqCst) == at + 1);
    }
    server.shared.limiter.add_permits(50);
    assert!(clients.iter_mut().all(|client| client.reply().status == 200));
    assert_eq!(refused(&server, "/limiter", "queueing"), 0.0);
}
