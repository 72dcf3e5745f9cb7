//! The stream of a gRPC upstream through the whole program: to an HTTP client as lines or events, to a gRPC client as messages.
#![cfg(unix)]

#[path = "../common/mod.rs"]
mod common;
mod far;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use common::{Serving, TIMEOUT, run};
use far::{DETAILS, Far, PROTO, message};
use http::{HeaderMap, Request};
use tempfile::TempDir;

/// What the routes serve. `Other` has no field of `M`.
const SERVED: &str = r#"syntax = "proto3";
package s;
service S {
  rpc Gated(M) returns (stream M);
  rpc Late(M) returns (stream M);
  rpc Gone(M) returns (stream M);
  rpc Early(M) returns (stream M);
  rpc Endless(M) returns (stream M);
  rpc Quiet(M) returns (stream M);
  rpc Broken(M) returns (stream M);
  rpc Large(M) returns (stream M);
  rpc Unfit(M) returns (stream Other);
  rpc One(M) returns (M);
}
message M { string id = 1; }
message Other { string name = 1; }
"#;

const FLOW: &str = r#"load("@upstreams", "far")

def gated(req):
    return stream(far.Gated({"id": "x"}))

def events(req):
    return stream(far.Gated({"id": "x"}), format = "sse")

def late(req):
    return stream(far.Late())

def gone(req):
    return stream(far.Gone())

def early(req):
    answer = stream(far.Early(ok = [404]))
    if answer.status == 404:
        abort(404, "no such stream: " + answer.headers["fanin-error"])
    return answer

def refused(req):
    return stream(far.Early())

def silent(req):
    return stream(far.Hang(), idle_timeout = "200ms")

def quiet(req):
    return stream(far.Hang())

def broken(req):
    return stream(far.Broken())

def bounded(req):
    return stream(far.Endless(), max = "2KB")

def endless(req):
    return stream(far.Endless())

def large(req):
    return stream(far.Large())

def pay(req):
    return far.Pay(stream = True)

def late_call(req):
    answer = far.Pay()
    if answer.status == 200:
        return stream(answer)
"#;

const ROUTES: [&str; 14] = [
    "gated",
    "events",
    "late",
    "gone",
    "early",
    "refused",
    "silent",
    "quiet",
    "broken",
    "bounded",
    "endless",
    "large",
    "pay",
    "late_call",
];

struct Tier {
    serving: Serving,
    far: Far,
    _dir: TempDir,
}

/// A folder with this flow, for an upstream on this port.
fn folder(flow: &str, routes: &[&str], port: u16) -> TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    let mut toml = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nadmin = \"off\"\nworkers = 1\nqueueing = \"off\"\n\
         [grpc]\nproto = \"served.proto\"\n\
         [upstreams.far]\ngrpc = \"http://127.0.0.1:{port}\"\nproto = \"t.proto\"\ntimeout = \"30s\"\nretry = \"off\"\nbreaker = \"off\"\n\
         limit = 5\nmax_answer = \"64KB\"\n[upstreams.near]\nfiles = \".\"\n"
    );
    for name in routes {
        toml.push_str(&format!("[[routes]]\npath = \"/{name}\"\nflow = \"t.star:{name}\"\ntimeout = \"30s\"\n"));
    }
    for (method, name) in [
        ("Gated", "gated"),
        ("Late", "late"),
        ("Gone", "gone"),
        ("Early", "early"),
        ("Endless", "endless"),
        ("Quiet", "quiet"),
        ("Broken", "broken"),
        ("Large", "large"),
        ("Unfit", "late"),
        ("One", "late"),
    ]
    .into_iter()
    .filter(|(_, name)| routes.contains(name))
    {
        toml.push_str(&format!("[[routes]]\ngrpc = \"s.S/{method}\"\nflow = \"t.star:{name}\"\ntimeout = \"30s\"\n"));
    }
    for (name, text) in [("fanin.toml", toml.as_str()), ("t.proto", PROTO), ("served.proto", SERVED), ("t.star", flow)]
    {
        std::fs::write(dir.path().join(name), text).expect("written");
    }
    dir
}

impl Tier {
    fn start() -> Tier {
        let far = Far::start();
        let dir = folder(FLOW, &ROUTES, far.port);
        Tier { serving: Serving::start(dir.path()), far, _dir: dir }
    }

    /// Asks with an `accept`, and reads the head.
    fn ask(&self, path: &str, accept: &str) -> (String, BufReader<TcpStream>) {
        let mut stream = self.serving.connect();
        let request =
            format!("GET {path} HTTP/1.1\r\nhost: localhost\r\naccept: {accept}\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("sent");
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(reader.read_line(&mut head).expect("a line") > 0, "{head}");
        }
        (head, reader)
    }

    /// Waits until `Endless` sends no more: sockets and windows are full then.
    fn await_back_pressure(&self) {
        let mut before = (0, Instant::now());
        until("it goes on without a reader", || {
            let sent = self.far.sent.load(SeqCst);
            if sent != before.0 {
                before = (sent, Instant::now());
            }
            assert!(sent < 100_000, "100 MB without a reader");
            sent > 0 && before.1.elapsed() > Duration::from_secs(1)
        });
    }

    /// All lines of the body that are not of chunks.
    fn lines(&self, path: &str) -> Vec<String> {
        let (head, reader) = self.ask(path, "*/*");
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        reader.lines().map_while(Result::ok).filter(|line| line.starts_with('{')).collect()
    }
}

/// The next line of a body that begins like this.
fn line(reader: &mut BufReader<TcpStream>, begin: &str) -> String {
    loop {
        let mut line = String::new();
        assert!(reader.read_line(&mut line).expect("a line") > 0, "no line {begin}");
        if line.starts_with(begin) {
            return line.trim_end().to_owned();
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "a test's own thread")]
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < TIMEOUT, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn each_message_is_a_line_as_soon_as_it_has_come() {
    let tier = Tier::start();
    for (accept, kind) in [
        ("*/*", "application/jsonl"),
        ("application/json", "application/jsonl"),
        ("application/x-ndjson", "application/x-ndjson"),
    ] {
        tier.far.gate.add_permits(1);
        let (head, mut reader) = tier.ask("/gated", accept);
        assert!(head.starts_with("HTTP/1.1 200") && head.contains(&format!("content-type: {kind}\r\n")), "{head}");
        assert!(head.contains("cache-control: no-store") && head.contains("x-accel-buffering: no"), "{head}");
        assert!(!head.contains("secret"), "{head}");
        assert_eq!(line(&mut reader, "{"), r#"{"message":{"id":"a"}}"#);
        tier.far.gate.add_permits(1);
        assert_eq!(line(&mut reader, "{"), r#"{"message":{"id":"b\n"}}"#);
        tier.far.gate.add_permits(1);
        assert_eq!(line(&mut reader, "{"), r#"{"message":{"id":"c"}}"#);
        assert_eq!(line(&mut reader, "{"), r#"{"done":true}"#);
    }
    assert_eq!(tier.lines("/pay"), [r#"{"message":{"id":"paid"}}"#, r#"{"done":true}"#]);
}

#[test]
fn each_message_is_an_event_if_the_client_or_the_flow_wants_it() {
    let tier = Tier::start();
    for (path, accept) in [("/gated", "text/event-stream"), ("/events", "*/*"), ("/events", "application/jsonl")] {
        tier.far.gate.add_permits(3);
        let (head, mut reader) = tier.ask(path, accept);
        assert!(head.contains("content-type: text/event-stream\r\n"), "{head}");
        for id in ["a", "b\\n", "c"] {
            assert_eq!(line(&mut reader, "event"), "event: message");
            assert_eq!(line(&mut reader, "data"), format!("data: {{\"message\":{{\"id\":\"{id}\"}}}}"));
        }
        assert_eq!(line(&mut reader, "event"), "event: done");
        assert_eq!(line(&mut reader, "data"), "data: {\"done\":true}");
    }
}

#[test]
fn a_failure_is_told_in_the_stream_or_before_it() {
    let tier = Tier::start();
    let error = |kind: &str, status: u16| {
        (format!("\"type\":\"urn:fanin:problem:{kind}\""), format!("\"status\":{status}"), r#"{"error":{"#)
    };
    for (path, messages, (kind, status, begin), logged) in [
        ("/late", 2, error("upstream-status", 502), "UNAVAILABLE: internal name"),
        ("/broken", 1, error("upstream-protocol", 502), "broke off after 1 messages"),
        ("/silent", 1, error("upstream-timeout", 504), "within 200 ms"),
        ("/large", 1, error("upstream-answer-size", 502), "64000 are allowed"),
        ("/bounded", 1, error("upstream-answer-size", 502), "more than 2000 bytes"),
    ] {
        let lines = tier.lines(path);
        assert_eq!(lines.len(), messages + 1, "{path} {lines:?}");
        assert!(lines[..messages].iter().all(|line| line.starts_with(r#"{"message":{"id":"#)), "{lines:?}");
        let last = &lines[messages];
        assert!(last.starts_with(begin) && last.contains(&kind) && last.contains(&status), "{path} {last}");
        assert!(!last.contains("internal name"), "the server's own words are for the log: {last}");
        let line = tier.serving.logged("a streamed answer is incomplete");
        assert!(line.contains(logged), "{path}: {line}");
    }
    // An error that comes first is an ordinary answer of the call.
    let answer = tier.serving.get("/refused");
    assert!(answer.starts_with("HTTP/1.1 502") && answer.contains("problem:upstream-status"), "{answer}");
    let answer = tier.serving.get("/early");
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
    assert!(answer.contains("no such stream: NOT_FOUND: internal name"), "{answer}");
    let answer = tier.serving.get("/late_call");
    assert!(answer.starts_with("HTTP/1.1 500"), "{answer}");
    tier.serving.logged("stream() comes too late");
}

#[test]
fn a_client_that_does_not_read_stops_the_upstream_and_one_that_leaves_cancels_it() {
    let tier = Tier::start();
    let (_, reader) = tier.ask("/endless", "*/*");
    tier.await_back_pressure();
    drop(reader);
    until("the upstream is cancelled", || tier.far.cancelled.load(SeqCst) == 1);
    // The limit of the upstream, five, is free again.
    for _ in 0..10 {
        drop(tier.ask("/endless", "*/*"));
    }
    until("the others are cancelled", || tier.far.cancelled.load(SeqCst) == 11);
    // The head alone is an answer, too.
    let mut stream = tier.serving.connect();
    stream.write_all(b"HEAD /endless HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").expect("sent");
    let head = std::io::read_to_string(stream).expect("a head");
    assert!(head.starts_with("HTTP/1.1 200") && head.ends_with("\r\n\r\n"), "{head}");
    until("that of the head is cancelled", || tier.far.cancelled.load(SeqCst) == 12);
}

/// Head, messages and status of a call.
async fn call(tier: &Tier, method: &str) -> (HeaderMap, Vec<u8>, HeaderMap) {
    call_within(tier, method, "30S").await
}

async fn call_within(tier: &Tier, method: &str, timeout: &str) -> (HeaderMap, Vec<u8>, HeaderMap) {
    let stream = tokio::net::TcpStream::connect(&tier.serving.listen).await.expect("connected");
    let (sender, connection) = h2::client::handshake(stream).await.expect("HTTP/2");
    tokio::spawn(async move {
        let _ended = connection.await;
    });
    let request = Request::post(format!("http://test/s.S/{method}")).header("content-type", "application/grpc");
    let request = request.header("grpc-timeout", timeout);
    let mut sender = sender.ready().await.expect("ready");
    let (response, mut body) = sender.send_request(request.body(()).expect("valid"), false).expect("sent");
    body.send_data(message("x"), true).expect("sent");
    let (head, mut body) = response.await.expect("a response").into_parts();
    let mut bytes = Vec::new();
    while let Some(part) = body.data().await {
        let part = part.expect("a part");
        body.flow_control().release_capacity(part.len()).expect("released");
        bytes.extend_from_slice(&part);
        if method == "Gated" {
            tier.far.gate.add_permits(1);
        }
        if bytes.len() > 1_000_000 {
            tier.await_back_pressure();
            return (head.headers, bytes, HeaderMap::new());
        }
    }
    (head.headers, bytes, body.trailers().await.expect("an end").unwrap_or_default())
}

#[test]
fn a_route_of_grpc_passes_messages_on_as_protobuf() {
    let tier = Tier::start();
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(async {
        // Each message opens the gate for the next one.
        tier.far.gate.add_permits(1);
        let (head, bytes, trailers) = call(&tier, "Gated").await;
        assert!(head["content-type"] == "application/grpc" && trailers["grpc-status"] == "0", "{trailers:?}");
        assert_eq!(bytes, ["a", "b\n", "c"].map(message).concat());
        let (_, bytes, trailers) = call(&tier, "Late").await;
        assert_eq!(bytes, ["a", "b"].map(message).concat());
        assert!(trailers["grpc-status"] == "14" && trailers["grpc-message"] == "far: status", "{trailers:?}");
        let (_, bytes, trailers) = call(&tier, "Large").await;
        assert!(bytes == message("a") && trailers["grpc-status"] == "14", "{trailers:?}");
        let (_, bytes, trailers) = call(&tier, "Broken").await;
        assert_eq!(bytes, message("a"));
        assert!(trailers["grpc-status"] == "14" && trailers["grpc-message"] == "far: protocol", "{trailers:?}");
        // A status that speaks of the request is passed on with its message and details. `CA..` is code 11, now without padding.
        let (_, bytes, trailers) = call(&tier, "Gone").await;
        assert_eq!(bytes, message("a"));
        assert!(trailers["grpc-status"] == "11" && trailers["grpc-message"] == "internal name", "{trailers:?}");
        let details = trailers["grpc-status-details-bin"].to_str().expect("text");
        assert!(details.ends_with(DETAILS[4..].trim_end_matches('=')), "{details}");
        // The first error of the stream is that of the call, and its messages must fit the route's method.
        for (method, status, logged) in [
            ("Early", "5", ""),
            ("Unfit", "13", "s.Other has no field id"),
            ("One", "13", "the method returns one message, not a stream"),
        ] {
            let (head, bytes, trailers) = call(&tier, method).await;
            assert!(bytes.is_empty(), "{method}");
            let found = trailers.get("grpc-status").or_else(|| head.get("grpc-status"));
            assert_eq!(found.expect("a status"), status, "{method}");
            if !logged.is_empty() {
                tier.serving.logged(logged);
            }
        }
        // The client's time bounds the whole stream, which is silent here.
        let (_, bytes, trailers) = call_within(&tier, "Quiet", "3S").await;
        assert_eq!(bytes, message("a"));
        assert!(trailers["grpc-status"] == "4" && trailers["grpc-message"] == "the call's deadline has passed");
        let (_, bytes, _) = call(&tier, "Endless").await;
        assert!(bytes.starts_with(&message(&"x".repeat(1000))));
    });
    until("a client that leaves cancels the upstream", || tier.far.cancelled.load(SeqCst) == 1);
}

#[test]
fn check_knows_what_streams() {
    for (call, expected) in [
        ("stream(far.One({}))", "t.T/One returns one message: only a stream of messages can be passed on"),
        ("far.One({}, stream = True)", "t.T/One returns one message"),
        ("stream(far.call(\"t.T/One\", {}))", "t.T/One returns one message"),
        ("far.Late({}, stream = 1)", "stream of far.Late() must be True or False"),
        ("stream(far.Late({\"ids\": 1}))", "t.M has no field ids"),
        ("stream(near.read(\"a\"))", "stream() takes calls of HTTP and gRPC upstreams, and near is neither"),
    ] {
        let flow = format!("load(\"@upstreams\", \"far\", \"near\")\n\ndef late(req):\n    return {call}\n");
        let dir = folder(&flow, &["late"], 9);
        let (status, out, err) = run(&["check", dir.path().to_str().expect("text")]);
        let all = out + &err;
        assert!(
            status == Some(1) && all.contains(expected) && all.contains("t.star:4:"),
            "{call}: {expected} in\n{all}"
        );
    }
    let dir = folder(FLOW, &ROUTES, 9);
    let (status, out, err) = run(&["check", dir.path().to_str().expect("text")]);
    assert_eq!(status, Some(0), "{out}{err}");
}
