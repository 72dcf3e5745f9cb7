//! Clients that leave.

use std::sync::atomic::Ordering::SeqCst;

use crate::common::{TestServer, eventually, metric};

#[test]
fn the_request_of_a_client_that_leaves_is_dropped() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.send_get("/limiter");
    eventually("it runs", || server.shared.begun.load(SeqCst) == 1);
    drop(client);
    eventually("it is dropped", || server.shared.dropped.load(SeqCst) == 1);
    eventually("its place is free", || metric(&server.metrics(), "fanin_server_in_flight") == 0.0);
    assert_eq!(metric(&server.metrics(), "fanin_requests_left_total{method=\"GET\",route=\"/limiter\"}"), 1.0);
}

#[test]
fn a_detached_flow_keeps_its_place_until_its_end() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.send_get("/detach");
    eventually("it runs", || server.shared.begun.load(SeqCst) == 1);
    drop(client);
    eventually("the client is gone", || {
        metric(&server.metrics(), "fanin_requests_left_total{method=\"GET\",route=\"/detach\"}") == 1.0
    });
    assert_eq!(metric(&server.metrics(), "fanin_server_in_flight"), 1.0);
    server.shared.limiter.add_permits(1);
    eventually("it has finished", || server.shared.finished.load(SeqCst) == 1);
    eventually("its place is free", || metric(&server.metrics(), "fanin_server_in_flight") == 0.0);
}
