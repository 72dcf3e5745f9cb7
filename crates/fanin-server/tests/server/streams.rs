//! Bodies that are made while they are sent.

use std::sync::atomic::Ordering::SeqCst;

use crate::common::{TestServer, eventually, metric};
use crate::http2;

#[test]
fn parts_arrive_as_they_are_made() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.send_get("/stream/gated");
    let head = client.read_until(b"\r\n\r\n");
    assert!(head.contains("transfer-encoding: chunked"), "{head}");
    for part in ["one,", "two,", "six,"] {
        server.shared.limiter.add_permits(1);
        assert_eq!(client.read_until(b",\r\n"), format!("4\r\n{part}\r\n"));
    }
    assert_eq!(client.read_until(b"0\r\n\r\n"), "0\r\n\r\n");
    assert_eq!(client.get("/hello").text(), "hello", "on the same connection");
    eventually("the stream is dropped", || server.shared.dropped.load(SeqCst) == 1);
}

#[test]
fn a_stream_whose_length_is_known_has_a_content_length() {
    let server = TestServer::start();
    let mut client = server.connect();
    let reply = client.get("/stream/known");
    assert_eq!((reply.header("content-length"), reply.text().as_str()), (Some("3"), "abc"));
    let reply = client.send("HEAD /stream/known HTTP/1.1\r\nhost: a\r\n\r\n").reply_to("HEAD");
    assert_eq!((reply.header("content-length"), reply.text().as_str()), (Some("3"), ""));
    assert_eq!(client.get("/hello").status, 200, "on the same connection");
}

#[test]
fn a_client_that_does_not_read_stops_a_stream() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.send_get("/stream/endless");
    let mut last = usize::MAX;
    eventually("no part is made any more", || {
        crate::common::pause(std::time::Duration::from_millis(50));
        let now = server.shared.begun.load(SeqCst);
        std::mem::replace(&mut last, now) == now && now > 0
    });
    // What the kernel's buffers and hyper's hold, not more.
    assert!(last * crate::common::streams::PART < 32 << 20, "{last} parts");
    drop(client);
    eventually("the stream is dropped", || server.shared.dropped.load(SeqCst) == 1);
}

#[test]
fn an_aborted_stream_is_seen_as_incomplete() {
    let server = TestServer::start();
    for kind in ["aborted", "panics"] {
        let mut client = server.connect();
        client.send_get(&format!("/stream/{kind}"));
        let all = String::from_utf8(client.rest()).unwrap();
        assert!(all.ends_with("3\r\nabc\r\n"), "{kind}: {all}");
    }
    let page = server.metrics();
    assert_eq!(metric(&page, "fanin_requests_left_total{method=\"GET\",route=\"/stream/{kind}\"}"), 2.0, "{page}");
}

#[test]
fn a_stream_holds_its_permit_and_its_calls_are_counted_at_its_end() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.send_get("/stream/gated");
    client.read_until(b"\r\n\r\n");
    eventually("it is in flight", || metric(&server.metrics(), "fanin_server_in_flight") == 1.0);
    server.shared.limiter.add_permits(3);
    client.read_until(b"0\r\n\r\n");
    eventually("it is not in flight", || metric(&server.metrics(), "fanin_server_in_flight") == 0.0);
    let page = server.metrics();
    assert_eq!(metric(&page, "fanin_request_calls_total{method=\"GET\",route=\"/stream/{kind}\"}"), 5.0, "{page}");
}

#[test]
fn a_drain_waits_for_a_stream_and_ends_it_after_the_drain_timeout() {
    let mut server = TestServer::with(|setup| setup.server.drain_timeout = std::time::Duration::from_millis(200));
    let mut client = server.connect();
    client.send_get("/stream/silent");
    client.read_until(b"abc\r\n");
    let handle = server.handle.take().unwrap();
    handle.drain();
    assert_eq!(handle.wait(), fanin_server::Exit::DrainTimeout);
    assert!(client.is_closed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn streams_over_http2_end_with_trailers_or_a_reset() {
    let server = TestServer::start();
    let sender = http2::connect(&server).await;
    let mut bodies = Vec::new();
    for kind in ["trailers", "aborted"] {
        let mut sender = sender.clone().ready().await.unwrap();
        let (response, _) = sender.send_request(http2::request("GET", &format!("/stream/{kind}")), true).unwrap();
        bodies.push(response.await.unwrap().into_body());
    }
    assert_eq!(bodies[0].data().await.unwrap().unwrap(), "abc");
    assert!(bodies[0].data().await.is_none());
    assert_eq!(bodies[0].trailers().await.unwrap().unwrap()["x-trailer"], "last");
    assert_eq!(bodies[1].data().await.unwrap().unwrap(), "abc");
    let error = bodies[1].data().await.unwrap().unwrap_err();
    assert_eq!(error.reason(), Some(h2::Reason::INTERNAL_ERROR), "{error}");
}
