//! HTTP/2 with prior knowledge.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use crate::common::{TestServer, eventually, metric};
use bytes::Bytes;
use h2::client::SendRequest;
use http::{Request, Response};

pub async fn connect(server: &TestServer) -> SendRequest<Bytes> {
    let stream = tokio::net::TcpStream::connect(server.address).await.unwrap();
    let (sender, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(async move {
        let _ = connection.await;
    });
    sender
}

pub fn request(method: &str, path: &str) -> Request<()> {
    Request::builder().method(method).uri(format!("http://test{path}")).body(()).unwrap()
}

async fn whole(response: Response<h2::RecvStream>) -> (Response<()>, Vec<u8>) {
    let (parts, mut stream) = response.into_parts();
    let mut body = Vec::new();
    while let Some(chunk) = stream.data().await {
        let chunk = chunk.unwrap();
        stream.flow_control().release_capacity(chunk.len()).unwrap();
        body.extend_from_slice(&chunk);
    }
    (Response::from_parts(parts, ()), body)
}

async fn send(sender: &SendRequest<Bytes>, request: Request<()>, body: Option<&[u8]>) -> (Response<()>, Vec<u8>) {
    let mut sender = sender.clone().ready().await.unwrap();
    let (response, mut stream) = sender.send_request(request, body.is_none()).unwrap();
    if let Some(body) = body {
        stream.send_data(Bytes::copy_from_slice(body), true).unwrap();
    }
    whole(response.await.unwrap()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn requests_of_all_kinds() {
    let server = TestServer::start();
    let sender = connect(&server).await;
    let (response, body) = send(&sender, request("GET", "/hello"), None).await;
    assert_eq!((response.status().as_u16(), &body[..]), (200, b"hello".as_slice()));
    assert_eq!(response.headers()["content-length"], "5");
    let (response, body) = send(&sender, request("HEAD", "/hello"), None).await;
    assert_eq!((&response.headers()["content-length"], body.len()), (&"5".parse().unwrap(), 0));
    let (_, body) = send(&sender, request("POST", "/echo"), Some(b"over two")).await;
    assert_eq!(body, b"over two");
    let (response, body) = send(&sender, request("GET", "/big"), None).await;
    assert_eq!((response.status().as_u16(), body.len()), (200, 1_000_000));
    let (response, _) = send(&sender, request("POST", "/small"), Some(b"more than ten bytes")).await;
    assert_eq!(response.status(), 413);
    let (response, _) = send(&sender, request("GET", "/nothing"), None).await;
    assert_eq!(response.status(), 404);
    let (response, _) = send(&sender, request("GET", "/headers"), None).await;
    assert_eq!(
        (response.headers().get("connection"), &response.headers()["content-length"]),
        (None, &"2".parse().unwrap())
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn streams_run_side_by_side() {
    let server = TestServer::start();
    let sender = connect(&server).await;
    let slow = (0..100).map(|_| {
        tokio::spawn({
            let sender = sender.clone();
            async move { send(&sender, request("GET", "/limiter"), None).await.0.status() }
        })
    });
    let slow = slow.collect::<Vec<_>>();
    let shared = server.shared.clone();
    while shared.begun.load(SeqCst) < 100 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(send(&sender, request("GET", "/hello"), None).await.1, b"hello");
    shared.limiter.add_permits(100);
    for status in slow {
        assert_eq!(status.await.unwrap(), 200);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_reset_stream_drops_its_request_only() {
    let server = TestServer::start();
    let sender = connect(&server).await;
    let mut ready = sender.clone().ready().await.unwrap();
    let (response, mut stream) = ready.send_request(request("GET", "/limiter"), true).unwrap();
    while server.shared.begun.load(SeqCst) < 1 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    stream.send_reset(h2::Reason::CANCEL);
    drop(response);
    while server.shared.dropped.load(SeqCst) < 1 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(send(&sender, request("GET", "/hello"), None).await.1, b"hello");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_idle_connection_is_told_to_end() {
    let server = TestServer::with(|setup| setup.server.idle_timeout = Duration::from_millis(200));
    let stream = tokio::net::TcpStream::connect(server.address).await.unwrap();
    let (sender, connection) = h2::client::handshake(stream).await.unwrap();
    let connection = tokio::spawn(connection);
    assert_eq!(send(&sender, request("GET", "/hello"), None).await.1, b"hello");
    // A graceful end: no error for the client.
    connection.await.unwrap().unwrap();
    assert_eq!(metric(&server.metrics(), "fanin_connection_timeouts_total{kind=\"idle\"}"), 1.0);
    eventually("closed", || {
        let page = server.metrics();
        (0..2).map(|worker| metric(&page, &format!("fanin_connections{{worker=\"{worker}\"}}"))).sum::<f64>() == 0.0
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn drain_lets_streams_end() {
    let server = TestServer::start();
    let sender = connect(&server).await;
    let mut ready = sender.clone().ready().await.unwrap();
    let (response, _) = ready.send_request(request("GET", "/limiter"), true).unwrap();
    while server.shared.begun.load(SeqCst) < 1 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    server.handle().drain();
    while sender
        .clone()
        .ready()
        .await
        .is_ok_and(|mut sender| sender.send_request(request("GET", "/hello"), true).is_ok())
    {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    server.shared.limiter.add_permits(1);
    assert_eq!(whole(response.await.unwrap()).await.1, b"hello");
    assert_eq!(tokio::task::spawn_blocking(|| server.end()).await.unwrap(), fanin_server::Exit::Drained);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn heads_too_large_are_refused() {
    let server = TestServer::start();
    let sender = connect(&server).await;
    let mut large = request("GET", "/hello");
    large.headers_mut().insert("x-large", "x".repeat(40_000).parse().unwrap());
    let mut ready = sender.clone().ready().await.unwrap();
    // Either a 431 or a reset says so; the connection goes on.
    let (response, _) = ready.send_request(large, true).unwrap();
    if let Ok(response) = response.await {
        assert_eq!(response.status(), 431);
    }
    assert_eq!(send(&sender, request("GET", "/hello"), None).await.1, b"hello");
}

#[test]
fn a_client_that_does_not_answer_cannot_hold_the_drain() {
    let server = TestServer::with(|setup| setup.server.drain_timeout = Duration::from_secs(30));
    let mut client = server.connect();
    client.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0");
    eventually("the server speaks", || !client.is_silent());
    assert_eq!(server.end(), fanin_server::Exit::Drained);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn more_than_a_hundred_headers_are_431() {
    let server = TestServer::start();
    let sender = connect(&server).await;
    for (count, expected) in [(100, 200), (101, 431)] {
        let mut many = request("GET", "/hello");
        for number in 0..count {
            many.headers_mut().append("x-many", number.into());
        }
        let (response, body) = send(&sender, many, None).await;
        assert_eq!(response.status(), expected, "{}", String::from_utf8_lossy(&body));
    }
}
