//! Access log, metrics, admin pages, watchdog.

use std::sync::atomic::Ordering::SeqCst;

use crate::common::{Client, TestServer, eventually, metric};
use fanin_config::{AccessLog, RequestSlashes};
use serde_json::Value;

fn lines(path: &std::path::Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let whole = text.lines().filter(|line| line.ends_with('}'));
    whole.map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

#[test]
fn each_request_has_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let server = TestServer::with(|setup| {
        setup.server.access_log = AccessLog::File(path.clone());
        setup.server.escaped_slashes = RequestSlashes::Keep;
    });
    let mut client = server.connect();
    let id = client.get("/items/a%2Fb?secret=1").json()["id"].clone();
    client.get("/partial");
    client.get("/no\"where");
    client.send("HEAD /hello HTTP/1.1\r\nhost: a\r\n\r\n").reply_to("HEAD");
    // Another connection may be served by another worker, and lines of two workers have no order.
    eventually("four lines", || lines(&path).len() == 4);
    let mut leaver = server.connect();
    leaver.send_get("/limiter");
    eventually("it runs", || server.shared.begun.load(SeqCst) == 1);
    drop(leaver);

    eventually("five lines", || lines(&path).len() == 5);
    let lines = lines(&path);
    let first = &lines[0];
    assert_eq!((&first["method"], &first["path"]), (&"GET".into(), &"/items/a%2Fb".into()));
    assert_eq!((&first["route"], &first["status"]), (&"GET /items/{id}".into(), &200.into()));
    assert_eq!((&first["id"], &first["protocol"]), (&id, &"HTTP/1.1".into()));
    assert_eq!(first["remote"], client.local().to_string());
    assert!(first["bytes"].as_u64().unwrap() > 50);
    assert_eq!(first["partial"], false);
    assert!(!first.to_string().contains("secret"));
    let partial = &lines[1];
    assert_eq!(
        (&partial["partial"], &partial["calls"], &partial["upstream_ms"]),
        (&true.into(), &3.into(), &1.5.into())
    );
    assert_eq!((&lines[2]["route"], &lines[2]["status"]), (&Value::Null, &404.into()));
    assert_eq!(lines[2]["path"], "/no\"where");
    assert_eq!((&lines[3]["method"], &lines[3]["bytes"]), (&"HEAD".into(), &0.into()));
    assert_eq!((&lines[4]["status"], &lines[4]["route"]), (&499.into(), &"GET /limiter".into()));
}

#[test]
fn lines_are_complete_when_the_server_has_ended() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let server = TestServer::with(|setup| setup.server.access_log = AccessLog::File(path.clone()));
    let mut client = server.connect();
    for _ in 0..2000 {
        client.get("/hello");
    }
    server.end();
    assert_eq!(lines(&path).len(), 2000);
}

#[test]
fn the_log_can_be_switched_by_a_reload() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let server = TestServer::start();
    server.get("/hello");
    server.change(|setup| setup.server.access_log = AccessLog::File(path.clone()));
    server.handle().reload().unwrap();
    server.get("/greeting");
    eventually("a line", || lines(&path).len() == 1);
    assert_eq!(lines(&path)[0]["path"], "/greeting");
}

#[test]
fn metrics_count_what_happened() {
    let server = TestServer::start();
    let mut client = server.connect();
    for _ in 0..3 {
        client.get("/partial");
    }
    client.get("/nothing");
    let reply = Client::connect(server.admin).get("/metrics");
    assert!(reply.header("content-type").unwrap().starts_with("application/openmetrics-text"));
    let page = reply.text();
    assert!(page.ends_with("# EOF\n"));
    assert_eq!(page.matches("# EOF").count(), 1);
    for (line, value) in [
        ("fanin_requests_total{method=\"GET\",route=\"/partial\",status=\"2xx\"}", 3.0),
        ("fanin_requests_total{method=\"\",route=\"\",status=\"4xx\"}", 1.0),
        ("fanin_request_duration_seconds_count{method=\"GET\",route=\"/partial\"}", 3.0),
        ("fanin_requests_partial_total{method=\"GET\",route=\"/partial\"}", 3.0),
        ("fanin_request_calls_total{method=\"GET\",route=\"/partial\"}", 9.0),
        ("fanin_request_upstream_seconds_total{method=\"GET\",route=\"/partial\"}", 0.0045),
        ("fanin_requests_in_flight{method=\"GET\",route=\"/partial\"}", 0.0),
        ("fanin_workers", 2.0),
        ("test_application", 42.0),
    ] {
        assert_eq!(metric(&page, line), value, "{line}");
    }
    assert!(metric(&page, "fanin_resident_memory_bytes") > 1e6);
    let infinite = page
        .lines()
        .find(|line| line.contains("duration_seconds_bucket") && line.contains("/partial") && line.contains("+Inf"));
    assert!(infinite.unwrap().ends_with(" 3"));
}

#[test]
fn admin_pages() {
    let server = TestServer::start();
    assert_eq!(server.admin_get("/health").text(), "ok\n");
    assert_eq!(server.admin_get("/ready").text(), "ready\n");
    assert_eq!(server.admin_get("/config").json()["greeting"], "hello");
    let index = server.admin_get("/");
    assert_eq!(index.header("content-type"), Some("text/html; charset=utf-8"));
    for page in ["/health", "/ready", "/metrics", "/config", "/reload", "/debug/test"] {
        assert!(index.text().contains(&format!("<a href=\"{page}\">")), "{page} in {}", index.text());
    }
    let reply = server.admin_get("/nothing");
    assert_eq!((reply.status, reply.problem().as_str()), (404, "no-page"));
    let reply = server.admin_get("/reload");
    assert_eq!((reply.status, reply.header("allow")), (405, Some("POST")));
    let reply = Client::connect(server.admin).send("POST /health HTTP/1.1\r\nhost: a\r\n\r\n").reply();
    assert_eq!(reply.status, 405);
    assert!(server.admin_get("/debug/test?a=b").text().starts_with("/debug/test Some(\"a=b\")"));
    let reply = server.admin_get("/debug/none");
    assert_eq!((reply.status, reply.problem().as_str()), (404, "no-page"));
    assert_eq!(server.get("/metrics").status, 404, "not on the clients' listener");
}

#[test]
fn a_stalled_worker_is_reported() {
    let server = TestServer::with(|setup| setup.server.workers = 1);
    let stalls = || metric(&server.metrics(), "fanin_worker_stalls_total{worker=\"0\"}");
    assert_eq!(server.get("/hold").status, 200);
    eventually("it is counted", || stalls() >= 1.0);
    eventually("its end too", || metric(&server.metrics(), "fanin_worker_stalled_seconds_total{worker=\"0\"}") >= 0.1);
}

#[test]
fn an_idle_worker_is_not_stalled() {
    let server = TestServer::start();
    assert_eq!(server.get("/hello").status, 200);
    crate::common::pause(std::time::Duration::from_millis(300));
    let page = server.metrics();
    // The machine may hold a worker for a while, but not these 300 ms.
    let stalled =
        (0..2).map(|worker| metric(&page, &format!("fanin_worker_stalled_seconds_total{{worker=\"{worker}\"}}")));
    assert!(stalled.sum::<f64>() < 0.25);
}
