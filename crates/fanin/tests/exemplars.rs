//! Exemplars on the latency histograms of `/metrics`, read by the parser of Prometheus' own Python client.
#![cfg(unix)]
#![allow(clippy::disallowed_methods, reason = "the test's own threads may block")]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::thread;

use common::{Serving, TIMEOUT, root};
use serde_json::Value;

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0,text/plain;q=0.5";

/// Prints each exemplar as a line of JSON: the series, its upper bound, and the exemplar.
const PARSER: &str = "
import json, sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families
for family in text_string_to_metric_families(sys.stdin.read()):
    for sample in family.samples:
        if sample.exemplar:
            print(json.dumps([sample.name, sample.labels, sample.exemplar.labels, sample.exemplar.value, float(sample.exemplar.timestamp)]))
print('read')
";

/// The page, as a reader that accepts this.
fn metrics(serving: &Serving, accept: &str) -> String {
    let mut stream = TcpStream::connect(&serving.admin).expect("connected");
    stream.set_read_timeout(Some(TIMEOUT)).expect("set");
    write!(stream, "GET /metrics HTTP/1.1\r\nhost: localhost\r\naccept: {accept}\r\nconnection: close\r\n\r\n")
        .expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer.split_once("\r\n\r\n").expect("a head").1.to_owned()
}

/// An exemplar, with the series that it stands in.
struct Exemplar {
    series: String,
    labels: BTreeMap<String, String>,
    trace: String,
    span: String,
    value: f64,
    at: f64,
}

/// The exemplars of a page.
fn exemplars(page: &str) -> Vec<Exemplar> {
    let python = root().join(".venv/openmetrics/bin/python");
    assert!(python.exists(), "run .ci/setup openmetrics");
    let mut command = Command::new(python);
    let command = command.args(["-c", PARSER]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("Python runs");
    child.stdin.take().expect("piped").write_all(page.as_bytes()).expect("sent");
    let output = child.wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.ends_with("read\n"), "{}", String::from_utf8_lossy(&output.stderr));
    let one = |line: &str| {
        let value: Value = serde_json::from_str(line).expect("JSON");
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        Exemplar {
            series: text(&value[0]),
            labels: serde_json::from_value(value[1].clone()).expect("texts"),
            trace: text(&value[2]["trace_id"]),
            span: text(&value[2]["span_id"]),
            value: value[3].as_f64().expect("a number"),
            at: value[4].as_f64().expect("a time"),
        }
    };
    text.lines().filter(|line| *line != "read").map(one).collect()
}

fn upstream() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}");
        }
    });
    address
}

fn serving(tracing: &str) -> (Serving, tempfile::TempDir) {
    let dir = tempfile::tempdir().expect("a folder");
    let toml = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\nworkers = 2\naccess_log = \"off\"\n{tracing}\n\
         [upstreams.far]\nurl = \"http://{}\"\n[[routes]]\npath = \"/pages/{{id}}\"\nflow = \"flow.star:page\"\n",
        upstream()
    );
    fs::write(dir.path().join("fanin.toml"), toml).expect("written");
    let flow = "load(\"@upstreams\", \"far\")\n\ndef page(req):\n    return far.get(\"/x\")\n";
    fs::write(dir.path().join("flow.star"), flow).expect("written");
    (Serving::start(dir.path()), dir)
}

#[test]
fn buckets_name_sampled_traces() {
    let (serving, _dir) = serving("[tracing]\ntrust = \"always\"");
    let (trace, parent) = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");
    let mut stream = serving.connect();
    let head = format!("traceparent: 00-{trace}-{parent}-01\r\nconnection: close");
    write!(stream, "GET /pages/1 HTTP/1.1\r\nhost: a\r\n{head}\r\n\r\n").expect("sent");
    stream.read_to_string(&mut String::new()).expect("an answer");
    let found = exemplars(&metrics(&serving, OPENMETRICS));
    let of = |series: &str| found.iter().filter(|one| one.series == series).collect::<Vec<_>>();
    let [request] = of("fanin_request_duration_seconds_bucket")[..] else { panic!("one bucket has counted it") };
    let [call] = of("fanin_upstream_seconds_bucket")[..] else { panic!("one bucket has counted it") };
    assert_eq!((&*request.labels["route"], &*call.labels["upstream"]), ("/pages/{id}", "far"));
    for one in [request, call] {
        assert_eq!(one.trace, trace);
        assert!(one.span.len() == 16 && one.span != parent, "{}", one.span);
        let bound = one.labels["le"].parse::<f64>().expect("a bound");
        assert!(one.value > 0.0 && one.value <= bound, "{} {bound}", one.value);
        assert!(one.at > 1.7e9, "{}", one.at);
    }
    assert_eq!(found.len(), 2);
    // Whoever does not name OpenMetrics may not understand them.
    for accept in ["*/*", "text/plain"] {
        let page = metrics(&serving, accept);
        assert!(!page.contains("trace_id") && exemplars(&page).is_empty(), "{page}");
    }
}

#[test]
fn only_traces_that_somebody_keeps_are_named() {
    let otlp = "[otlp]\nendpoint = \"http://127.0.0.1:9\"";
    for (tracing, expected) in [
        (String::new(), vec![]),
        ("[tracing]\nsample = 0.0".to_owned(), vec![]),
        (format!("[tracing]\nsample = 0.0\nslow = \"off\"\n{otlp}"), vec![]),
        // Sent because it was slow. That is known when the request has ended.
        (format!("[tracing]\nsample = 0.0\nslow = \"1ns\"\n{otlp}"), vec!["fanin_request_duration_seconds_bucket"]),
        (
            format!("[tracing]\nsample = 1.0\n{otlp}"),
            vec!["fanin_request_duration_seconds_bucket", "fanin_upstream_seconds_bucket"],
        ),
    ] {
        let (serving, _dir) = serving(&tracing);
        assert!(serving.get("/pages/1").starts_with("HTTP/1.1 200"));
        let found = exemplars(&metrics(&serving, OPENMETRICS));
        let mut series: Vec<&str> = found.iter().map(|one| &*one.series).collect();
        series.sort_unstable();
        assert_eq!(series, expected, "{tracing}");
    }
}
