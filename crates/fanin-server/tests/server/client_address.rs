//! Who is asking, behind load balancers: PROXY headers, `X-Forwarded-For`, `Forwarded`.

use std::path::Path;
use std::time::Duration;

use crate::common::{Client, Setup, TestServer, eventually, metric};
use crate::tls;
use fanin_config::AccessLog;

pub const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// Version 2 for 203.0.113.7:4711, with an extension.
fn version_2() -> Vec<u8> {
    let rest = [203, 0, 113, 7, 127, 0, 0, 1, 0x12, 0x67, 0, 80, 4, 0, 3, 1, 2, 3];
    [SIGNATURE, &[0x21, 0x11, 0, rest.len() as u8], &rest].concat()
}

fn trusting(setup: &mut Setup) {
    setup.server.trusted = vec!["127.0.0.1".parse().unwrap()];
}

fn behind_proxies() -> TestServer {
    TestServer::with(|setup| {
        trusting(setup);
        setup.server.proxy_protocol = true;
    })
}

fn remote(client: &mut Client) -> String {
    client.get("/items/1").json()["remote"].as_str().unwrap().to_owned()
}

fn errors(server: &TestServer) -> f64 {
    let page = server.metrics();
    let of = |worker| metric(&page, &format!("fanin_proxy_protocol_errors_total{{worker=\"{worker}\"}}"));
    (0..2).map(of).sum()
}

#[test]
fn a_proxy_header_names_the_client() {
    let server = behind_proxies();
    for header in [b"PROXY TCP4 203.0.113.7 127.0.0.1 4711 80\r\n".to_vec(), version_2()] {
        // However the bytes arrive: at once with the request, or one by one.
        let mut client = server.connect();
        client.send([&header[..], b"GET /items/1 HTTP/1.1\r\nhost: a\r\n\r\n"].concat());
        assert_eq!(client.reply().json()["remote"], "203.0.113.7:4711");
        assert_eq!(remote(&mut client), "203.0.113.7:4711", "and for later requests");
        let mut client = server.connect();
        for byte in &header {
            client.send([*byte]);
        }
        assert_eq!(remote(&mut client), "203.0.113.7:4711");
    }
    for header in [b"PROXY UNKNOWN\r\n".to_vec(), [SIGNATURE, &[0x20, 0, 0, 0]].concat()] {
        let mut client = server.connect();
        client.send(&header);
        assert_eq!(remote(&mut client), client.local().to_string(), "the proxy itself");
    }
    assert_eq!(errors(&server), 0.0);
}

#[test]
fn without_a_valid_proxy_header_a_connection_is_closed() {
    let server = behind_proxies();
    let too_long = format!("PROXY UNKNOWN {}", "x".repeat(100));
    let v2_too_long = [SIGNATURE, &[0x21, 0x11, 0xff, 0xff]].concat();
    for bytes in [&b"GET /hello HTTP/1.1\r\n\r\n"[..], b"PROXY TCP4 a b 1 2\r\n", too_long.as_bytes(), &v2_too_long[..]]
    {
        let mut client = server.connect();
        client.send(bytes);
        assert!(client.is_closed(), "{bytes:?}");
    }
    eventually("counted", || errors(&server) == 4.0);
    // A probe that only connects is no error.
    let mut probe = server.connect();
    probe.half_close();
    assert!(probe.is_closed());
    assert_eq!(errors(&server), 4.0);
}

#[test]
fn a_proxy_header_has_a_deadline() {
    let server = TestServer::with(|setup| {
        trusting(setup);
        setup.server.proxy_protocol = true;
        setup.server.header_timeout = Duration::from_millis(100);
    });
    let mut client = server.connect();
    client.send("PROXY TCP4 203.0.113.7");
    assert!(client.is_closed());
    assert_eq!(metric(&server.metrics(), "fanin_connection_timeouts_total{kind=\"header\"}"), 1.0);
}

#[test]
fn who_is_not_trusted_sends_no_proxy_header() {
    let server = TestServer::with(|setup| {
        setup.server.trusted = vec!["10.0.0.0/8".parse().unwrap()];
        setup.server.proxy_protocol = true;
    });
    let mut client = server.connect();
    assert_eq!(remote(&mut client), client.local().to_string());
    let mut forger = server.connect();
    forger.send("PROXY TCP4 203.0.113.7 127.0.0.1 4711 80\r\nGET /hello HTTP/1.1\r\nhost: a\r\n\r\n");
    assert_eq!(forger.reply().status, 400);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_proxy_header_precedes_tls_and_http2() {
    use tokio::io::AsyncWriteExt;
    let folder = tempfile::tempdir().unwrap();
    let roots = tls::certificate(folder.path());
    for with_tls in [true, false] {
        let server = TestServer::with(|setup| {
            trusting(setup);
            setup.server.proxy_protocol = true;
            let (cert, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
            setup.server.tls = with_tls.then_some(fanin_config::ServerTls::new(cert, key));
        });
        let mut stream = tokio::net::TcpStream::connect(server.address).await.unwrap();
        stream.write_all(&version_2()).await.unwrap();
        let json = match with_tls {
            true => ask_http2(tls::handshake(stream, &roots, &["h2"]).await.unwrap()).await,
            false => ask_http2(stream).await,
        };
        assert_eq!(json["remote"], "203.0.113.7:4711");
    }
}

async fn ask_http2<S>(stream: S) -> serde_json::Value
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let mut sender: h2::client::SendRequest<bytes::Bytes> = sender.ready().await.unwrap();
    let request = http::Request::get("https://localhost/items/1").body(()).unwrap();
    let mut body = sender.send_request(request, true).unwrap().0.await.unwrap().into_body();
    serde_json::from_slice(&body.data().await.unwrap().unwrap()).unwrap()
}

fn with_header(name: &str, log: Option<&Path>) -> TestServer {
    TestServer::with(|setup| {
        setup.server.trusted = vec!["127.0.0.1".parse().unwrap(), "10.0.0.0/8".parse().unwrap()];
        setup.server.forwarded_header = Some(name.parse().unwrap());
        setup.server.access_log = log.map_or(AccessLog::Off, |path| AccessLog::File(path.to_owned()));
    })
}

fn remote_with(client: &mut Client, headers: &str) -> String {
    client.send(format!("GET /items/1 HTTP/1.1\r\nhost: a\r\n{headers}\r\n"));
    client.reply().json()["remote"].as_str().unwrap().to_owned()
}

#[test]
fn a_header_names_the_client_of_each_request() {
    let server = with_header("x-forwarded-for", None);
    let mut client = server.connect();
    for (headers, remote) in [
        ("x-forwarded-for: 203.0.113.7\r\n", "203.0.113.7:0"),
        ("X-Forwarded-For: 1.1.1.1, 198.51.100.3, 10.1.1.1\r\n", "198.51.100.3:0"),
        ("x-forwarded-for: 1.1.1.1, 198.51.100.3\r\nx-forwarded-for: 10.1.1.1\r\n", "198.51.100.3:0"),
        ("forwarded: for=203.0.113.7\r\n", &client.local().to_string()),
        ("", &client.local().to_string()),
    ] {
        assert_eq!(remote_with(&mut client, headers), remote, "{headers}");
    }
    let server = with_header("forwarded", None);
    let mut client = server.connect();
    let headers = "x-forwarded-for: 1.1.1.1\r\nforwarded: for=\"[2001:db8::1]:80\";proto=https, for=10.1.1.1\r\n";
    assert_eq!(remote_with(&mut client, headers), "[2001:db8::1]:80");
}

#[test]
fn who_is_not_trusted_names_no_client() {
    let server = TestServer::with(|setup| {
        setup.server.trusted = vec!["10.0.0.0/8".parse().unwrap()];
        setup.server.forwarded_header = Some("x-forwarded-for".parse().unwrap());
    });
    let mut client = server.connect();
    let local = client.local().to_string();
    assert_eq!(remote_with(&mut client, "x-forwarded-for: 203.0.113.7\r\n"), local);
    let unset = TestServer::with(trusting);
    let mut client = unset.connect();
    let local = client.local().to_string();
    assert_eq!(remote_with(&mut client, "x-forwarded-for: 203.0.113.7\r\n"), local, "the key is not set");
}

#[test]
fn the_access_log_shows_the_client_and_the_peer() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("access.log");
    let server = with_header("x-forwarded-for", Some(&log));
    let mut client = server.connect();
    let peer = client.local().to_string();
    remote_with(&mut client, "x-forwarded-for: 203.0.113.7\r\n");
    remote_with(&mut client, "");
    assert_eq!(server.end(), fanin_server::Exit::Drained);
    let text = std::fs::read_to_string(&log).unwrap();
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&lines[0]["remote"], &lines[0]["peer"]), (&"203.0.113.7".into(), &peer.as_str().into()));
    assert_eq!((&lines[1]["remote"], lines[1].get("peer")), (&peer.as_str().into(), None));
}
