//! Heads and bodies that are too large, too slow, or ambiguous.

use std::time::Duration;

use crate::common::{TestServer, metric};

const MS: Duration = Duration::from_millis(1);

fn impatient() -> TestServer {
    TestServer::with(|setup| {
        setup.server.header_timeout = 150 * MS;
        setup.server.body_timeout = 150 * MS;
        setup.server.idle_timeout = 400 * MS;
    })
}

#[test]
fn a_head_too_large_is_431() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.try_send(format!("GET /hello HTTP/1.1\r\nhost: a\r\nx-large: {}\r\n\r\n", "x".repeat(40_000)));
    let reply = client.reply();
    assert_eq!((reply.status, reply.problem().as_str()), (431, "head-too-large"));
    assert_eq!(reply.header("connection"), Some("close"));
    assert!(reply.header("date").is_some());
    assert!(client.is_closed());

    let many = (0..200).map(|number| format!("x-{number}: 1\r\n")).collect::<String>();
    let mut client = server.connect();
    client.try_send(format!("GET /hello HTTP/1.1\r\nhost: a\r\n{many}\r\n"));
    assert_eq!(client.reply().problem(), "head-too-large");

    let just_below = "x".repeat(30_000);
    let mut client = server.connect();
    client.send(format!("GET /hello HTTP/1.1\r\nhost: a\r\nx-large: {just_below}\r\n\r\n"));
    assert_eq!(client.reply().status, 200);
    assert!(metric_sum(&server, "fanin_protocol_errors_total") >= 2.0);
}

fn metric_sum(server: &TestServer, name: &str) -> f64 {
    let page = server.metrics();
    (0..2).map(|worker| metric(&page, &format!("{name}{{worker=\"{worker}\"}}"))).sum()
}

#[test]
fn what_is_not_http_is_400() {
    let server = TestServer::start();
    for bytes in ["\u{1}\u{2}\u{3}\r\n\r\n", "GET\r\n\r\n", "GET /hello HTTP/1.1\r\nbad header\r\n\r\n"] {
        let mut client = server.connect();
        client.send(bytes);
        let reply = client.reply();
        assert_eq!((reply.status, reply.problem().as_str()), (400, "malformed-request"), "{bytes:?}");
        assert!(client.is_closed());
    }
}

#[test]
fn exactly_one_valid_host() {
    let server = TestServer::start();
    let mut client = server.connect();
    for head in ["", "host: a\r\nhost: b\r\n", "host:\r\n", "host: a/b\r\n", "host: me@a\r\n", "host: a:x\r\n"] {
        client.send(format!("GET /hello HTTP/1.1\r\n{head}\r\n"));
        let reply = client.reply();
        assert_eq!((reply.status, reply.problem().as_str()), (400, "bad-request"), "{head:?}");
    }
    client.send("GET /hello HTTP/1.0\r\n\r\n");
    assert_eq!(client.reply().status, 200);
    assert!(client.is_closed(), "HTTP/1.0 closes unless it asks for more");
}

#[test]
fn a_body_too_large_is_413_before_it_is_read() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.send("POST /small HTTP/1.1\r\nhost: a\r\ncontent-length: 1000000000\r\n\r\n");
    let reply = client.reply();
    assert_eq!((reply.status, reply.problem().as_str()), (413, "body-too-large"));
    assert_eq!(reply.json()["limit"], 10);
    assert!(client.is_closed());

    // A client that does not look up from sending still gets its answer, not a reset.
    let mut client = server.connect();
    client.send("POST /small HTTP/1.1\r\nhost: a\r\ncontent-length: 2000000\r\n\r\n");
    client.send(vec![0; 2_000_000]);
    assert_eq!(client.reply().status, 413);

    // Without an announced length it shows on the way.
    let mut client = server.connect();
    client.send("POST /small HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n6\r\nabcdef\r\n6\r\nabcdef\r\n");
    assert_eq!(client.reply().status, 413);

    let mut client = server.connect();
    assert_eq!(client.post("/small", b"0123456789").text(), "0123456789");
}

#[test]
fn bodies_in_pieces_are_put_together() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.send("POST /echo HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n");
    client.send("4\r\ndefg\r\n0\r\ntrailer: x\r\n\r\n");
    assert_eq!(client.reply().text(), "abcdefg");
    let large = vec![b'x'; 900_000];
    assert_eq!(client.post("/echo", &large).body, large);
    assert_eq!(client.post("/echo", b"").text(), "");
}

#[test]
fn expect_continue_is_answered_only_if_the_body_is_wanted() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.send("POST /echo HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n");
    assert_eq!(client.reply().status, 100);
    assert_eq!(client.send("ab").reply().text(), "ab");
    client.send("POST /nothing HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n");
    assert_eq!(client.reply().status, 404);
    assert!(client.is_closed(), "whether the body follows cannot be known");
}

#[test]
fn a_slow_head_is_408() {
    let server = impatient();
    let mut client = server.connect();
    client.send("GET /hello HTTP/1.1\r\nhost: a\r\nx: ");
    // A byte now and then does not help: this is what a slow-loris client does.
    let writer = std::thread::scope(|scope| {
        let reply = scope.spawn(|| client.reply());
        reply.join().unwrap()
    });
    assert_eq!((writer.status, writer.problem().as_str()), (408, "head-timeout"));
    assert!(client.is_closed());

    let mut client = server.connect();
    client.send("GET /hello HTTP/1.1\r\nhost: a\r\n");
    let mut sent = 0;
    while client.try_send("x: y\r\n") && sent < 200 {
        sent += 1;
        crate::common::pause(20 * MS);
    }
    assert!(sent < 200, "a byte now and then kept the connection open");
}

#[test]
fn a_slow_head_after_the_first_request_is_408_too() {
    let server = impatient();
    let mut client = server.connect();
    assert_eq!(client.get("/hello").status, 200);
    client.send("GET /hello HT");
    assert_eq!(client.reply().problem(), "head-timeout");
    assert!(client.is_closed());
}

#[test]
fn a_slow_body_is_408() {
    let server = impatient();
    let mut client = server.connect();
    client.send("POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\nabc");
    let reply = client.reply();
    assert_eq!((reply.status, reply.problem().as_str()), (408, "body-timeout"));
    assert!(client.is_closed());
    assert_eq!(metric(&server.metrics(), "fanin_server_in_flight"), 0.0);
}

#[test]
fn a_silent_connection_is_closed_silently() {
    let server = impatient();
    let mut never_spoke = server.connect();
    let mut idle = server.connect();
    assert_eq!(idle.get("/hello").status, 200);
    assert!(never_spoke.is_closed());
    assert!(idle.is_closed());
    assert_eq!(metric(&server.metrics(), "fanin_connection_timeouts_total{kind=\"idle\"}"), 2.0);
}

#[test]
fn content_length_and_chunked_together_cannot_smuggle() {
    let server = TestServer::start();
    let smuggled = "GET /items/smuggled HTTP/1.1\r\nhost: a\r\n\r\n";
    for (first, second) in
        [("content-length: 4", "transfer-encoding: chunked"), ("transfer-encoding: chunked", "content-length: 4")]
    {
        let mut client = server.connect();
        client.send(format!("POST /echo HTTP/1.1\r\nhost: a\r\n{first}\r\n{second}\r\n\r\n0\r\n\r\n{smuggled}"));
        let reply = client.reply();
        assert_eq!((reply.status, reply.problem().as_str()), (400, "malformed-request"));
        assert_eq!(reply.header("connection"), Some("close"));
        assert!(client.is_closed(), "what follows is not taken for a request");
    }
    for head in [
        "content-length: 4\r\ncontent-length: 5",
        "content-length: +4",
        "content-length: 4, 4",
        "transfer-encoding: chunked, identity",
        "transfer-encoding: xchunked",
    ] {
        let mut client = server.connect();
        client.send(format!("POST /echo HTTP/1.1\r\nhost: a\r\n{head}\r\n\r\n{smuggled}"));
        assert_eq!(client.reply().status, 400, "{head}");
        assert!(client.is_closed(), "{head}");
    }
}

#[test]
fn a_client_that_takes_nothing_is_closed() {
    let server = TestServer::with(|setup| {
        setup.server.idle_timeout = 400 * MS;
        setup.server.slow_reader_timeout = Some(1000 * MS);
    });
    let mut client = server.connect();
    // More than the kernel's buffers take.
    for _ in 0..64 {
        client.send_get("/big");
    }
    // Short of memory, the kernel takes a few bytes now and then: the client reads too slowly then.
    let closed = |page: &str, kind: &str| metric(page, &format!("fanin_connection_timeouts_total{{kind=\"{kind}\"}}"));
    crate::common::eventually("closed", || {
        let page = server.metrics();
        closed(&page, "write") + closed(&page, "slow-reader") == 1.0
    });
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let server = TestServer::start();
    let mut client = server.connect();
    for id in 0..50 {
        client.send_get(&format!("/items/{id}"));
    }
    for id in 0..50 {
        assert_eq!(client.reply().json()["params"]["id"], id.to_string());
    }
}

#[test]
fn a_body_that_looks_like_an_answer_is_left_alone() {
    let server = TestServer::start();
    let body = format!("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n{}", "x".repeat(300_000)).into_bytes();
    let mut client = server.connect();
    let mut writer = client.try_clone();
    let copy = body.clone();
    let sender = std::thread::spawn(move || {
        for _ in 0..20 {
            writer.send(format!("POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n", copy.len()));
            writer.send(&copy);
        }
    });
    for _ in 0..20 {
        assert!(client.reply().body == body);
    }
    sender.join().unwrap();
}
