//! Spans and metrics over OTLP, taken by the receiver of OpenTelemetry's own collector, and collectors that do not work.
#![cfg(unix)]

mod common;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;

use common::collector::{Collector, attribute, list};
use common::websocket::{admin_page, eventually};
use common::{Serving, fanin};
use serde_json::Value;
use tempfile::TempDir;

const ID: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

const FLOW: &str = r#"load("@upstreams", "far", "broken")

def page(req):
    first = far.get("/first", query = {"secret": "1"})
    second = far.item(id = req.params["id"])
    return [first["traceparent"], second["traceparent"]]

def fails(req):
    return broken.get("/x")

def fine(req):
    return {}
"#;

/// An upstream that answers with the `traceparent` that it got, and refuses the first request of a path with `retry`.
fn far() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|read| read > 0) {
                head.extend_from_slice(&byte);
            }
            let head = String::from_utf8_lossy(&head).into_owned();
            let parent = head.lines().find_map(|line| line.strip_prefix("traceparent: ")).unwrap_or("none");
            let body = format!("{{\"traceparent\":\"{parent}\"}}");
            let answer = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    address
}

fn folder(far: &str, otlp: &str) -> TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    let toml = format!(
        r#"[server]
listen = "127.0.0.1:0"
admin = "127.0.0.1:0"
workers = 1
access_log = "off"

{otlp}
[upstreams.far]
url = "http://{far}/base"

[upstreams.far.operations.item]
path = "/items/{{id}}"
params = {{ id = "string" }}

[upstreams.broken]
url = "http://127.0.0.1:1"
retry = "off"
breaker = "off"

[[routes]]
path = "/pages/{{id}}"
flow = "flow.star:page"

[[routes]]
path = "/fails"
flow = "flow.star:fails"

[[routes]]
path = "/fine"
flow = "flow.star:fine"
"#
    );
    fs::write(dir.path().join("fanin.toml"), toml).expect("written");
    fs::write(dir.path().join("flow.star"), FLOW).expect("written");
    dir
}

/// Sends a request with a trace context; the body of the response.
fn traced(serving: &Serving, path: &str, flags: &str) -> String {
    let mut stream = serving.connect();
    let head = format!("traceparent: 00-{ID}-{PARENT}-{flags}\r\ntracestate: vendor=1\r\n");
    write!(stream, "GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{head}\r\n").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    if path == PAGE && !answer.starts_with("HTTP/1.1 200") {
        panic!("{answer}\n{}", serving.lines_until("fanin::flow").join("\n"));
    }
    answer.split("\r\n\r\n").nth(1).unwrap_or_default().to_owned()
}

const PAGE: &str = "/pages/7";

const ALWAYS: &str = "[tracing]\ntrust = \"always\"\n";

/// The three spans of a page, checked against what the upstream has seen.
fn check_page(spans: &[Value], seen: &str) {
    let seen: Vec<String> = serde_json::from_str(seen).expect("a list");
    let server = spans.iter().find(|span| span["kind"] == 2).expect("a server span");
    assert!(spans.iter().all(|span| span["traceId"] == ID && span["traceState"] == "vendor=1"), "{spans:?}");
    assert_eq!((&server["parentSpanId"], &server["name"]), (&PARENT.into(), &"GET /pages/{id}".into()));
    for (key, value) in [
        ("http.request.method", "GET"),
        ("http.route", "/pages/{id}"),
        ("url.path", "/pages/7"),
        ("url.scheme", "http"),
        ("http.response.status_code", "200"),
        ("network.protocol.version", "1.1"),
        ("client.address", "127.0.0.1"),
    ] {
        assert_eq!(attribute(server, key).as_deref(), Some(value), "{key} of {server}");
    }
    assert_eq!(attribute(server, "error.type"), None);
    assert_eq!(attribute(&server["resource"], "service.name").as_deref(), Some("shop"));
    assert_eq!(attribute(&server["resource"], "deployment.environment.name").as_deref(), Some("test"));
    let calls: Vec<&Value> = spans.iter().filter(|span| span["kind"] == 3).collect();
    assert_eq!(calls.len(), 2, "{spans:?}");
    let time = |span: &Value, key: &str| span[key].as_str().and_then(|text| text.parse::<u64>().ok()).expect("a time");
    for call in &calls {
        let id = call["spanId"].as_str().expect("an id");
        assert!(seen.iter().any(|parent| parent == &format!("00-{ID}-{id}-01")), "{id}: {seen:?}");
        assert_eq!(call["parentSpanId"], server["spanId"]);
        assert_eq!((&call["name"], attribute(call, "fanin.upstream").as_deref()), (&"GET".into(), Some("far")));
        assert_eq!(attribute(call, "http.response.status_code").as_deref(), Some("200"));
        assert_eq!(attribute(call, "server.address").as_deref(), Some("127.0.0.1"));
        assert_eq!(attribute(call, "code.file.path").as_deref(), Some("flow.star"));
        let full = attribute(call, "url.full").expect("a URL");
        assert!(full.ends_with("/first") || full.ends_with("/items/7"), "{full}");
        assert!(time(server, "startTimeUnixNano") <= time(call, "startTimeUnixNano"));
        assert!(time(call, "startTimeUnixNano") <= time(call, "endTimeUnixNano"));
        assert!(time(call, "endTimeUnixNano") <= time(server, "endTimeUnixNano") + 1_000_000);
    }
}

#[test]
fn a_collector_gets_the_spans_over_grpc() {
    let (far, collector) = (far(), Collector::start("grpc", None));
    let otlp = format!(
        "{ALWAYS}[otlp]\nendpoint = \"http://127.0.0.1:{}\"\nservice_name = \"shop\"\n\
         resource = {{ \"deployment.environment.name\" = \"test\" }}\nheaders = {{ x-token = \"t\" }}\n",
        collector.port
    );
    let dir = folder(&far, &otlp);
    let serving = Serving::start(dir.path());
    let seen = traced(&serving, PAGE, "01");
    let spans = collector.spans("three spans", |spans| spans.len() >= 3);
    check_page(&spans, &seen);
    // What runs when the process ends is sent, too.
    serving.get("/fine");
    serving.signal("-TERM");
    assert_eq!(serving.end().0, Some(0));
    let spans = collector.spans("a fourth span", |spans| spans.len() >= 4);
    assert_eq!(spans[3]["name"], "GET /fine");
    assert_ne!(spans[3]["traceId"], ID);
}

#[test]
fn variables_name_the_collector_and_http_works_with_tls() {
    let certificate = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let tls = tempfile::tempdir().expect("a folder");
    fs::write(tls.path().join("cert.pem"), certificate.cert.pem()).expect("written");
    fs::write(tls.path().join("key.pem"), certificate.signing_key.serialize_pem()).expect("written");
    let ca = tls.path().join("cert.pem");
    for (protocol, name) in [("http", "http/protobuf"), ("grpc", "grpc")] {
        let (far, collector) = (far(), Collector::start(protocol, Some(tls.path())));
        let dir = folder(&far, &format!("{ALWAYS}[otlp]\n"));
        let serving = Serving::with(
            dir.path(),
            &[
                ("OTEL_EXPORTER_OTLP_ENDPOINT", &format!("https://localhost:{}", collector.port)),
                ("OTEL_EXPORTER_OTLP_PROTOCOL", name),
                ("OTEL_EXPORTER_OTLP_CERTIFICATE", ca.to_str().expect("text")),
                ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20x"),
                ("OTEL_SERVICE_NAME", "shop"),
                ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test,service.name=other"),
            ],
        );
        let seen = traced(&serving, PAGE, "01");
        check_page(&collector.spans(name, |spans| spans.len() >= 3), &seen);
    }
}

/// The metrics of the last batch that has them, by name.
fn metrics(collector: &Collector) -> std::collections::HashMap<String, Value> {
    let text = fs::read_to_string(&collector.file).unwrap_or_default();
    let batches = text.lines().map_while(|line| serde_json::from_str::<Value>(line).ok());
    let Some(last) = batches.filter(|batch| !batch["resourceMetrics"].is_null()).last() else {
        return Default::default();
    };
    let resource = &last["resourceMetrics"][0];
    assert_eq!(attribute(&resource["resource"], "service.name").as_deref(), Some("shop"));
    let metrics = list(&resource["scopeMetrics"][0]["metrics"]);
    metrics.map(|metric| (metric["name"].as_str().expect("a name").to_owned(), metric.clone())).collect()
}

#[test]
fn metrics_are_those_of_the_admin_page() {
    for protocol in ["grpc", "http"] {
        let collector = Collector::start(protocol, None);
        let otlp = format!(
            "[otlp]\nendpoint = \"http://127.0.0.1:{}\"\nprotocol = \"{protocol}\"\nservice_name = \"shop\"\nmetrics = \"200ms\"\n",
            collector.port
        );
        let dir = folder("127.0.0.1:1", &otlp);
        let serving = Serving::start(dir.path());
        for _ in 0..3 {
            serving.get("/fine");
        }
        let fine = |points: &Value| {
            let mut points = list(points).cloned().collect::<Vec<_>>();
            points.retain(|point| attribute(point, "route").as_deref() == Some("/fine"));
            points.pop()
        };
        eventually("three requests", || {
            let found = metrics(&collector);
            let counted =
                found.get("fanin_request_duration_seconds").and_then(|metric| fine(&metric["histogram"]["dataPoints"]));
            counted.is_some_and(|point| point["count"] == "3")
        });
        let found = metrics(&collector);
        let seconds = &found["fanin_request_duration_seconds"];
        assert_eq!((&seconds["unit"], &seconds["histogram"]["aggregationTemporality"]), (&"s".into(), &2.into()));
        let point = fine(&seconds["histogram"]["dataPoints"]).expect("a point");
        let number = |value: &Value| value.as_str().and_then(|text| text.parse::<u64>().ok()).expect("a number");
        assert_eq!(list(&point["bucketCounts"]).map(number).sum::<u64>(), 3);
        assert_eq!(list(&point["bucketCounts"]).count(), list(&point["explicitBounds"]).count() + 1);
        let requests = &found["fanin_requests"]["sum"];
        assert_eq!((&requests["isMonotonic"], &requests["aggregationTemporality"]), (&true.into(), &2.into()));
        assert_eq!(found["fanin_workers"]["gauge"]["dataPoints"][0]["asDouble"], 1.0);
        // Both have the same families.
        let page = admin_page(&serving, "/metrics");
        for line in page.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
            let name = line.split(' ').next().expect("a name");
            assert!(found.contains_key(name), "{name}");
        }
        serving.signal("-TERM");
        assert_eq!(serving.end().0, Some(0));
    }
}

#[test]
fn of_requests_that_are_not_sampled_only_failures_and_slow_ones_are_sent() {
    let collector = Collector::start("grpc", None);
    for (slow, failures) in [("\"off\"", 1), ("\"1ns\"", 3)] {
        let otlp = format!(
            "{ALWAYS}sample = 0.0\nslow = {slow}\n[otlp]\nendpoint = \"http://127.0.0.1:{}\"\n",
            collector.port
        );
        let dir = folder("127.0.0.1:1", &otlp);
        let serving = Serving::start(dir.path());
        let _ = fs::remove_file(&collector.file);
        serving.get("/fine");
        // The caller's flag decides for its trace.
        traced(&serving, "/fine", "00");
        serving.get("/fails");
        serving.signal("-TERM");
        assert_eq!(serving.end().0, Some(0));
        let spans = collector.spans("spans", |spans| spans.iter().filter(|span| span["kind"] == 2).count() >= failures);
        assert_eq!(spans.iter().filter(|span| span["kind"] == 2).count(), failures, "{spans:?}");
        let failed = spans.iter().find(|span| span["name"] == "GET /fails").expect("the failed one");
        assert_eq!(attribute(failed, "error.type").as_deref(), Some("502"));
        assert_eq!(failed["status"]["code"], 2);
        let call = spans.iter().find(|span| span["kind"] == 3).expect("its call");
        assert!(attribute(call, "error.type").is_some() && call["status"]["code"] == 2, "{call}");
    }
}

#[test]
fn a_collector_that_does_not_work_costs_nothing_but_spans() {
    // Nobody listens; somebody listens and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let (silent, dead) = (silent.local_addr().expect("an address").port(), (silent, 9));
    for (port, protocol) in [(dead.1, "grpc"), (dead.1, "http"), (silent, "grpc"), (silent, "http")] {
        let otlp = format!(
            "{ALWAYS}[otlp]\nendpoint = \"http://127.0.0.1:{port}\"\nprotocol = \"{protocol}\"\nqueue = 10\ntimeout = \"10m\"\n"
        );
        let dir = folder("127.0.0.1:1", &otlp);
        let serving = Serving::start(dir.path());
        // By either reason: a refused connection fails an export at once, a silent collector fills the queue.
        let dropped = || -> f64 {
            let page = admin_page(&serving, "/metrics");
            let lines = page.lines().filter(|line| line.starts_with("fanin_otlp_dropped_requests_total{"));
            lines
                .map(|line| line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok()).expect("a number"))
                .sum()
        };
        let mut served = 0;
        eventually("a request whose spans are dropped", || {
            for _ in 0..100 {
                assert!(serving.get("/fine").starts_with("HTTP/1.1 200"));
                served += 1;
            }
            dropped() > 0.0
        });
        // Its own bound is two seconds; one export may take ten minutes, which this does not wait for.
        serving.signal("-TERM");
        assert_eq!(serving.end().0, Some(0), "{protocol} {port}");
        assert!(served >= 100);
    }
}

#[test]
fn a_wrong_configuration_is_refused() {
    for (section, problem) in [
        ("[otlp]\nendpoint = \"collector:4317\"", "otlp.endpoint: the scheme is not supported; use http or https"),
        ("[otlp]\nendpoint = \"http://a/?b\"", "otlp.endpoint: has a query or fragment"),
        ("[otlp]\nprotocol = \"udp\"", "`udp` is not allowed; write \"grpc\" or \"http\""),
        ("[otlp]\ntls = { ca = \"fanin.toml\" }", "otlp.tls: needs an endpoint with https://"),
        ("[otlp]\nendpoint = \"https://a\"\nprotocol = \"http\"\ntls = { ca = \"flow.star\" }", "otlp.tls.ca: "),
        ("[otlp]\nqueue = 0", "otlp.queue"),
        ("[otlp]\nservice_name = \"\"", "otlp.service_name: must not be empty"),
        ("[tracing]\nsample = 2", "2 is out of range; write 0 to 1"),
    ] {
        let dir = folder("127.0.0.1:1", &format!("{section}\n"));
        let output = fanin(&["check", dir.path().to_str().expect("text")]).output().expect("it runs");
        let text = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
        assert!(!output.status.success() && text.contains(problem), "{section}: {text}");
    }
    let dir = folder("127.0.0.1:1", "[otlp]\n");
    let mut check = fanin(&["check", dir.path().to_str().expect("text")]);
    let output = check.env("OTEL_EXPORTER_OTLP_TIMEOUT", "soon").output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("OTEL_EXPORTER_OTLP_TIMEOUT: is not a number of milliseconds"), "{text}");
}
