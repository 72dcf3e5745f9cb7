//! Spans of attempts, and links between calls that share a request, as OpenTelemetry's own receiver gets them.
#![cfg(unix)]
#![allow(clippy::disallowed_methods, reason = "the test's own threads may block")]

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use common::Serving;
use common::collector::{Collector, attribute, list};
use serde_json::Value;

const FLOW: &str = r#"load("@upstreams", "far")

def flaky(req):
    return far.get("/flaky")

def same(req):
    return far.same()

def item(req):
    return far.items(ids = [req.params["id"]])
"#;

/// Answers after a while, for others to join. The first request of `/flaky` fails. Notes the `traceparent` of each request.
fn far() -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let noted = seen.clone();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let noted = noted.clone();
            thread::spawn(move || answer(stream, &noted));
        }
    });
    (address, seen)
}

fn answer(mut stream: TcpStream, noted: &Mutex<Vec<String>>) {
    let mut reader = BufReader::new(stream.try_clone().expect("cloned"));
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).unwrap_or(0) == 0 {
            return;
        }
    }
    let parent = head.lines().find_map(|line| line.strip_prefix("traceparent: ")).unwrap_or("none").to_owned();
    let first = {
        let mut noted = noted.lock().expect("not poisoned");
        noted.push(parent);
        noted.len() == 1
    };
    let fails = first && head.starts_with("GET /flaky");
    if !head.starts_with("GET /flaky") {
        thread::sleep(Duration::from_millis(500));
    }
    let status = if fails { "503 Service Unavailable" } else { "200 OK" };
    let body = r#"[{"id": "a"}, {"id": "b"}]"#;
    let head = "content-type: application/json\r\nconnection: close\r\ncontent-length";
    let _ = stream.write_all(format!("HTTP/1.1 {status}\r\n{head}: {}\r\n\r\n{body}", body.len()).as_bytes());
}

fn serving(far: &str, collector: &Collector) -> (Serving, tempfile::TempDir) {
    let dir = tempfile::tempdir().expect("a folder");
    let routes = [("/flaky", "flaky"), ("/same", "same"), ("/items/{id}", "item")]
        .map(|(path, flow)| format!("[[routes]]\npath = \"{path}\"\nflow = \"flow.star:{flow}\"\n"));
    let toml = format!(
        r#"[server]
listen = "127.0.0.1:0"
admin = "127.0.0.1:0"
workers = 1
access_log = "off"

[tracing]
sample = 1.0

[otlp]
endpoint = "http://127.0.0.1:{}"

[upstreams.far]
url = "http://{far}"
retry = {{ budget = 1.0, floor = 1000.0 }}

[upstreams.far.operations.same]
path = "/same"
single_flight = true

[upstreams.far.operations.items]
path = "/items"
params = {{ ids = "list" }}
batch = {{ key = "ids", match = "id", share = true, linger = "400ms" }}

{}"#,
        collector.port,
        routes.join("\n")
    );
    fs::write(dir.path().join("fanin.toml"), toml).expect("written");
    fs::write(dir.path().join("flow.star"), FLOW).expect("written");
    (Serving::start(dir.path()), dir)
}

/// The spans of this name, in the order of their starts.
fn named(spans: &[Value], wanted: impl Fn(&Value) -> bool) -> Vec<&Value> {
    let mut found: Vec<&Value> = spans.iter().filter(|span| wanted(span)).collect();
    found.sort_by_key(|span| span["startTimeUnixNano"].as_str().map(str::to_owned));
    found
}

fn is_call(span: &Value) -> bool {
    attribute(span, "code.file.path").is_some() && attribute(span, "fanin.attempt").is_none()
}

#[test]
fn each_attempt_of_a_retried_call_has_a_span() {
    let collector = Collector::start("grpc", None);
    let (far, seen) = far();
    let (serving, _dir) = serving(&far, &collector);
    assert!(serving.get("/flaky").starts_with("HTTP/1.1 200"));
    let spans = collector.spans("four spans", |spans| spans.len() >= 4);
    assert_eq!(spans.len(), 4, "{spans:?}");
    let server = named(&spans, |span| span["kind"] == 2)[0];
    let call = named(&spans, is_call)[0];
    assert_eq!((&call["kind"], &call["parentSpanId"]), (&1.into(), &server["spanId"]), "{call}");
    let attempts = named(&spans, |span| attribute(span, "fanin.attempt").is_some());
    let of = |key: &str| attempts.iter().map(|span| attribute(span, key)).collect::<Vec<_>>();
    let some = |texts: [&str; 2]| texts.map(|text| Some(text.to_owned())).to_vec();
    assert_eq!(of("fanin.attempt"), some(["first", "retry"]));
    assert_eq!(of("http.response.status_code"), some(["503", "200"]));
    assert_eq!(of("http.request.resend_count"), [None, Some("1".to_owned())]);
    assert_eq!(of("error.type"), [Some("503".to_owned()), None]);
    assert!(attempts.iter().all(|span| span["kind"] == 3 && span["parentSpanId"] == call["spanId"]), "{attempts:?}");
    // The upstream's spans hang below the attempts.
    let seen = seen.lock().expect("not poisoned");
    let parents: Vec<&str> = seen.iter().filter_map(|parent| parent.split('-').nth(2)).collect();
    assert_eq!(parents, attempts.iter().map(|span| span["spanId"].as_str().expect("an id")).collect::<Vec<_>>());
}

/// Sends two requests, the second while the first waits. Gives the spans of their calls.
fn together(serving: &Serving, collector: &Collector, paths: [&str; 2]) -> Vec<Value> {
    let mut clients = paths.map(|path| {
        let mut client = serving.connect();
        write!(client, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").expect("sent");
        thread::sleep(Duration::from_millis(100));
        client
    });
    for client in &mut clients {
        let mut answer = String::new();
        client.read_to_string(&mut answer).expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    let spans = collector.spans("four spans", |spans| spans.len() >= 4);
    let calls = named(&spans, is_call).into_iter().cloned().collect::<Vec<_>>();
    assert_eq!((spans.len(), calls.len()), (4, 2), "{spans:?}");
    calls
}

/// The second call is linked to the first, of another request, and so is nothing else.
fn check_link(calls: &[Value], seen: &Mutex<Vec<String>>) {
    let [first, second] = calls else { panic!("two calls") };
    assert_ne!(first["traceId"], second["traceId"]);
    assert_eq!(list(&first["links"]).count(), 0, "{first}");
    let [link] = &list(&second["links"]).collect::<Vec<_>>()[..] else { panic!("one link: {second}") };
    assert_eq!((&link["traceId"], &link["spanId"]), (&first["traceId"], &first["spanId"]));
    // It is the span below which the upstream's spans hang: one request was sent.
    let seen = seen.lock().expect("not poisoned");
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    assert_eq!(*seen, [format!("00-{}-{}-01", text(&first["traceId"]), text(&first["spanId"]))]);
}

#[test]
fn a_call_that_joins_another_is_linked_to_it() {
    let collector = Collector::start("grpc", None);
    let (far, seen) = far();
    let (serving, _dir) = serving(&far, &collector);
    check_link(&together(&serving, &collector, ["/same", "/same"]), &seen);
    // Explanations name the leader, too.
    let page = common::websocket::admin_page(&serving, "/requests");
    let page: Value = serde_json::from_str(page.split("\r\n\r\n").last().expect("a body")).expect("JSON");
    let requests = list(&page["requests"]).collect::<Vec<_>>();
    let shared = |of: &Value| of["calls"][0]["shared_with"].clone();
    let leader = requests.iter().find(|one| one["calls"][0]["sharing"]["kind"] == "alone").expect("a leader");
    let follower =
        requests.iter().find(|one| one["calls"][0]["sharing"]["kind"] == "single_flight").expect("a follower");
    assert_eq!(shared(follower), serde_json::json!([{"request": leader["id"], "call": 0}]));
    assert_eq!(shared(leader), serde_json::json!([]));
}

#[test]
fn calls_of_a_shared_batch_are_linked_to_the_one_that_sends_it() {
    let collector = Collector::start("grpc", None);
    let (far, seen) = far();
    let (serving, _dir) = serving(&far, &collector);
    check_link(&together(&serving, &collector, ["/items/a", "/items/b"]), &seen);
    let page = common::websocket::admin_page(&serving, "/requests");
    let page: Value = serde_json::from_str(page.split("\r\n\r\n").last().expect("a body")).expect("JSON");
    let requests = list(&page["requests"]).collect::<Vec<_>>();
    for (one, other) in [(0, 1), (1, 0)] {
        let shared = &requests[one]["calls"][0]["shared_with"];
        assert_eq!(*shared, serde_json::json!([{"request": requests[other]["id"], "call": 0}]), "{page}");
    }
}
