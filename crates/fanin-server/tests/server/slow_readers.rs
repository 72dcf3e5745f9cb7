//! Clients that do not read their responses.

use std::time::Duration;

use bytes::Bytes;
use http::Request;

use crate::common::{TestServer, eventually, metric};

/// A client over HTTP/2 that never opens its window asks for many large responses. Those that were made before it was noticed are kept,
/// further ones are not, and in the end its connection is closed.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_client_that_never_opens_its_window_is_refused_and_closed() {
    let server = TestServer::with(|setup| {
        setup.server.max_unsent = 3_000_000;
        setup.server.slow_reader_timeout = Some(Duration::from_secs(1));
    });
    let stream = tokio::net::TcpStream::connect(server.address).await.unwrap();
    let mut builder = h2::client::Builder::new();
    let (sender, connection) = builder.initial_window_size(0).handshake::<_, Bytes>(stream).await.unwrap();
    let ended = tokio::spawn(connection);
    let mut refused = 0;
    let mut pending = Vec::new();
    for _ in 0..20 {
        let request = Request::builder().uri("http://test/big").body(()).unwrap();
        let (response, _) = sender.clone().ready().await.unwrap().send_request(request, true).unwrap();
        let response = response.await.unwrap();
        refused += usize::from(response.status() == 503);
        // Not read, and not given up either.
        pending.push(response);
    }
    assert_eq!(refused, 16, "four responses of a megabyte pass the bound of three");
    assert_eq!(
        metric(&server.metrics(), "fanin_requests_refused_total{method=\"GET\",route=\"/big\",reason=\"unsent\"}"),
        16.0
    );
    let closed = "fanin_connection_timeouts_total{kind=\"slow-reader\"}";
    eventually("it is closed", || metric(&server.metrics(), closed) == 1.0);
    let _ended = ended.await.unwrap();
    assert_eq!(server.get("/hello").status, 200);
}

/// Each of many connections holds less than `max_unsent`; together they hold more than `max_unsent_total`. They are closed long before
/// `slow_reader_timeout`, while a client that reads is served.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn many_clients_that_read_nothing_are_bounded_together() {
    let server = TestServer::with(|setup| {
        setup.server.workers = 1;
        setup.server.max_unsent_total = 3_000_000;
        setup.server.slow_reader_timeout = Some(Duration::from_secs(3600));
    });
    let mut pending = Vec::new();
    for _ in 0..12 {
        let stream = tokio::net::TcpStream::connect(server.address).await.unwrap();
        let mut builder = h2::client::Builder::new();
        let (mut sender, connection) = builder.initial_window_size(0).handshake::<_, Bytes>(stream).await.unwrap();
        let ended = tokio::spawn(connection);
        let request = Request::builder().uri("http://test/big").body(()).unwrap();
        let (response, _) = sender.send_request(request, true).unwrap();
        pending.push((sender, response, ended));
    }
    let closed = "fanin_connection_timeouts_total{kind=\"slow-reader\"}";
    eventually("no more than three megabytes are left", || metric(&server.metrics(), closed) >= 9.0);
    let mut client = server.connect();
    client.send_get("/big");
    assert_eq!(client.reply().body.len(), 1_000_000);
}

#[test]
fn a_client_that_reads_a_large_response_gets_all_of_it() {
    let server = TestServer::with(|setup| setup.server.slow_reader_timeout = Some(Duration::from_secs(1)));
    let mut client = server.connect();
    client.send_get("/big");
    assert_eq!(client.reply().body.len(), 1_000_000);
    let closed = "fanin_connection_timeouts_total{kind=\"slow-reader\"}";
    assert_eq!(metric(&server.metrics(), closed), 0.0);
}
