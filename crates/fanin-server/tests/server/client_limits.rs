//! Bounds of one client. The test is a load balancer, which names clients other than loopback.

use std::sync::atomic::Ordering::SeqCst;

use crate::common::{Client, Reply, Setup, TestServer, eventually, metric};
use crate::tls;

fn behind_proxy(change: impl FnOnce(&mut Setup)) -> TestServer {
    TestServer::with(|setup| {
        setup.server.trusted = vec!["127.0.0.1".parse().unwrap()];
        setup.server.proxy_protocol = true;
        change(setup);
    })
}

pub fn header(client: &str) -> String {
    format!("PROXY TCP4 {client} 127.0.0.1 4711 80\r\n")
}

fn connect(server: &TestServer, client: &str) -> Client {
    let mut connection = server.connect();
    connection.send(header(client));
    connection
}

pub fn refused(server: &TestServer, bound: &str) -> f64 {
    metric(&server.metrics(), &format!("fanin_client_limits_total{{bound=\"{bound}\"}}"))
}

#[test]
fn one_client_cannot_take_all_connections() {
    let server = behind_proxy(|setup| setup.server.max_connections_per_client = Some(2));
    let mut open = [connect(&server, "203.0.113.7"), connect(&server, "203.0.113.7")];
    assert!(open.iter_mut().all(|connection| connection.get("/hello").status == 200));
    assert!(connect(&server, "203.0.113.7").is_closed());
    assert_eq!(refused(&server, "connections"), 1.0);
    assert_eq!(connect(&server, "203.0.113.8").get("/hello").status, 200, "another client");
    drop(open);
    eventually("its entry leaves the table", || metric(&server.metrics(), "fanin_clients") == 0.0);
    assert_eq!(connect(&server, "203.0.113.7").get("/hello").status, 200);
}

#[test]
fn an_ipv6_network_is_one_client() {
    let server = behind_proxy(|setup| setup.server.max_connections_per_client = Some(1));
    let connect = |client: &str| {
        let mut connection = server.connect();
        connection.send(format!("PROXY TCP6 {client} ::1 4711 80\r\n"));
        connection
    };
    let mut first = connect("2001:db8::1");
    assert_eq!(first.get("/hello").status, 200);
    assert!(connect("2001:db8::2").is_closed());
    assert_eq!(connect("2001:db8:0:1::1").get("/hello").status, 200);
}

#[test]
fn loopback_and_trusted_peers_have_no_bound_of_connections() {
    let loopback = TestServer::with(|setup| setup.server.max_connections_per_client = Some(1));
    let trusted = TestServer::with(|setup| {
        setup.server.trusted = vec!["127.0.0.1".parse().unwrap()];
        setup.server.max_connections_per_client = Some(1);
    });
    for server in [loopback, trusted] {
        let mut open: Vec<Client> = (0..5).map(|_| server.connect()).collect();
        assert!(open.iter_mut().all(|connection| connection.get("/hello").status == 200));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn one_client_cannot_take_all_handshakes() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let folder = tempfile::tempdir().unwrap();
    let roots = tls::certificate(folder.path());
    let server = behind_proxy(|setup| {
        let (cert, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
        setup.server.tls = Some(fanin_config::ServerTls::new(cert, key));
        setup.server.max_handshakes_per_client = Some(1);
    });
    let _silent = [connect(&server, "203.0.113.7"), connect(&server, "203.0.113.7")];
    eventually("one of them is closed", || refused(&server, "handshakes") == 1.0);
    // Handshakes that are over do not count.
    let mut open = Vec::new();
    for _ in 0..3 {
        let mut stream = tokio::net::TcpStream::connect(server.address).await.unwrap();
        stream.write_all(header("203.0.113.8").as_bytes()).await.unwrap();
        let mut stream = tls::handshake(stream, &roots, &[]).await.unwrap();
        // The client's side is done first: an answer shows that the server's is.
        stream.write_all(b"GET /hello HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
        assert!(stream.read(&mut [0; 64]).await.unwrap() > 0);
        open.push(stream);
    }
}

fn get(connection: &mut Client, client: &str, path: &str) -> Reply {
    send(connection, client, path);
    connection.reply()
}

fn send(connection: &mut Client, client: &str, path: &str) {
    connection.send(format!("GET {path} HTTP/1.1\r\nhost: a\r\nx-forwarded-for: {client}\r\n\r\n"));
}

fn is_client_limit(reply: &Reply, reason: &str, after: &str) {
    assert_eq!((reply.status, reply.problem().as_str()), (429, "client-limit"), "{reply:?}");
    assert_eq!((&reply.json()["reason"], reply.header("retry-after")), (&reason.into(), Some(after)));
}

#[test]
fn one_client_of_a_load_balancer_cannot_have_all_requests_in_progress() {
    let server = TestServer::with(|setup| {
        setup.server.trusted = vec!["127.0.0.1".parse().unwrap()];
        setup.server.forwarded_header = Some("x-forwarded-for".parse().unwrap());
        setup.server.max_in_progress_per_client = Some(1);
    });
    let (mut busy, mut other) = (server.connect(), server.connect());
    send(&mut busy, "203.0.113.7", "/limiter");
    eventually("it runs", || server.shared.begun.load(SeqCst) == 1);
    is_client_limit(&get(&mut other, "203.0.113.7", "/hello"), "in-progress", "1");
    assert_eq!(get(&mut other, "203.0.113.8", "/hello").status, 200, "another client");
    assert_eq!(other.get("/hello").status, 200, "the load balancer itself");
    assert_eq!(refused(&server, "in-progress"), 1.0);
    server.shared.limiter.add_permits(1);
    assert_eq!(busy.reply().status, 200);
    assert_eq!(get(&mut other, "203.0.113.7", "/hello").status, 200);
    // A request given up counts no more.
    send(&mut busy, "203.0.113.7", "/limiter");
    eventually("it runs", || server.shared.begun.load(SeqCst) == 2);
    drop(busy);
    eventually("its entry leaves the table", || metric(&server.metrics(), "fanin_clients") == 0.0);
    assert_eq!(get(&mut other, "203.0.113.7", "/hello").status, 200);
}

#[test]
fn one_client_cannot_have_all_requests_in_progress_over_several_connections() {
    let server = behind_proxy(|setup| setup.server.max_in_progress_per_client = Some(1));
    let (mut busy, mut other) = (connect(&server, "203.0.113.7"), connect(&server, "203.0.113.7"));
    busy.send_get("/limiter");
    eventually("it runs", || server.shared.begun.load(SeqCst) == 1);
    is_client_limit(&other.get("/hello"), "in-progress", "1");
    assert_eq!(connect(&server, "203.0.113.8").get("/hello").status, 200);
    server.shared.limiter.add_permits(1);
    assert_eq!(busy.reply().status, 200);
    assert_eq!(other.get("/hello").status, 200);
}
