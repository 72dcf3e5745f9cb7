//! Refusals that never become requests.

use std::sync::atomic::Ordering::SeqCst;

use fanin_config::AccessLog;

use crate::common::{Client, Reply, TestServer, eventually, metric};

/// One worker whose route `/limited` is full, and the client that fills it.
fn full(server: &TestServer) -> [Client; 2] {
    let mut clients = [(); 2].map(|()| server.connect());
    for client in &mut clients {
        client.send_get("/limited");
    }
    eventually("one runs, one waits", || {
        server.shared.begun.load(SeqCst) == 1
            && metric(&server.metrics(), "fanin_requests_waiting{method=\"GET\",route=\"/limited\"}") == 1.0
    });
    clients
}

fn start() -> TestServer {
    TestServer::with(|setup| setup.server.workers = 1)
}

fn shed(server: &TestServer) -> f64 {
    metric(&server.metrics(), "fanin_requests_shed_total{worker=\"0\"}")
}

/// What does not differ between two refusals.
fn same(reply: &Reply) -> (String, serde_json::Value) {
    let head = reply.head.lines().filter(|line| !line.starts_with("date: ")).collect::<Vec<_>>().join("\n");
    let mut json = reply.json();
    json["instance"] = "".into();
    (head, json)
}

#[test]
fn clients_log_and_metrics_get_the_same_either_way() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let server = TestServer::with(|setup| {
        setup.server.workers = 1;
        setup.server.access_log = AccessLog::File(path.clone());
    });
    let mut full = full(&server);
    let mut client = server.connect();
    let usual = client.get("/limited?a=b");
    assert_eq!((usual.status, shed(&server)), (503, 0.0), "the first has to be a request");
    let short = (0..3).map(|_| client.get("/limited?a=b")).collect::<Vec<_>>();
    assert_eq!(shed(&server), 3.0);
    assert!(short.iter().all(|reply| same(reply) == same(&usual)), "{usual:?} {short:?}");
    let page = server.metrics();
    assert_eq!(
        metric(&page, "fanin_requests_refused_total{method=\"GET\",route=\"/limited\",reason=\"route-limit\"}"),
        4.0
    );
    assert_eq!(metric(&page, "fanin_requests_total{method=\"GET\",route=\"/limited\",status=\"5xx\"}"), 4.0);

    // What would not be refused becomes a request, on the same connection too.
    assert_eq!(client.get("/hello").status, 200);
    server.shared.limiter.add_permits(3);
    assert!(full.iter_mut().all(|client| client.reply().status == 200));
    assert_eq!(client.get("/limited").status, 200);
    assert_eq!(shed(&server), 3.0);
    server.end();

    let text = std::fs::read_to_string(&path).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let refused = lines.filter(|line| line["status"] == 503).collect::<Vec<_>>();
    let ids = [&usual].into_iter().chain(&short).map(|reply| reply.json()["instance"].clone());
    assert!(ids.zip(&refused).all(|(id, line)| id.as_str().unwrap().ends_with(line["id"].as_str().unwrap())));
    for line in &refused {
        for member in ["path", "route", "remote", "protocol", "bytes", "calls"] {
            assert_eq!(line[member], refused[0][member], "{member}");
        }
    }
    assert_eq!(refused.len(), 4);
}

#[test]
fn what_is_no_plain_request_goes_the_usual_way() {
    let server = start();
    let _full = full(&server);
    let mut client = server.connect();
    assert_eq!(client.get("/limited").status, 503);
    for (request, answers) in [
        ("GET /limited HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\nGET ", 1),
        ("HEAD /limited HTTP/1.1\r\nhost: a\r\n\r\n", 1),
        ("GET /limited HTTP/1.1\r\nhost: a\r\n\r\nGET /limited HTTP/1.1\r\nhost: a\r\n\r\n", 2),
    ] {
        let mut client = server.connect();
        client.send(request);
        for _ in 0..answers {
            let method = request.split(' ').next().unwrap();
            assert_eq!(client.reply_to(method).status, 503, "{request}");
        }
    }
    assert_eq!(shed(&server), 0.0);
}

#[test]
fn after_requests_that_came_together_nothing_is_shed_on_that_connection() {
    let server = start();
    let _full = full(&server);
    let mut client = server.connect();
    client.send("GET /limited HTTP/1.1\r\nhost: a\r\n\r\nGET /limited HTTP/1.1\r\nhost: a\r\n\r\nGET /lim");
    assert_eq!((client.reply().status, client.reply().status), (503, 503));
    client.send("ited HTTP/1.1\r\nhost: a\r\n\r\n");
    assert_eq!(client.reply().status, 503);
    for _ in 0..3 {
        assert_eq!(client.get("/limited").status, 503);
    }
    assert_eq!(shed(&server), 0.0);
    assert_eq!(server.connect().get("/limited").status, 503);
}

/// The rest of a request whose beginning hyper holds may look like a whole one. It is none.
#[test]
fn the_rest_of_a_half_request_is_not_taken_for_a_request() {
    let server = start();
    let _full = full(&server);
    let mut client = server.connect();
    client.send("GET /limited HTTP/1.1\r\nhost: a\r\n\r\nGET /hello HTTP/1.1\r\nx-inner: ");
    assert_eq!(client.reply().status, 503);
    client.send("GET /limited HTTP/1.1\r\nhost: a\r\n\r\n");
    assert_eq!((client.reply().status, shed(&server)), (200, 0.0));
}
