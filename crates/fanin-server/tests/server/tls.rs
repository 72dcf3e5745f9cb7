//! TLS of the listeners.

use std::path::Path;
use std::sync::Arc;

use crate::common::{TestServer, eventually, metric};
use fanin_config::ServerTls;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Writes a new certificate for `localhost`, and gives what a client needs to trust it.
pub fn certificate(folder: &Path) -> RootCertStore {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    std::fs::write(folder.join("cert.pem"), made.cert.pem()).unwrap();
    std::fs::write(folder.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(folder.join("cert.pem")).unwrap()).unwrap();
    roots
}

fn with_tls(folder: &Path) -> TestServer {
    TestServer::with(|setup| {
        setup.server.tls = Some(ServerTls::new(folder.join("cert.pem"), folder.join("key.pem")));
    })
}

async fn connect(server: &TestServer, roots: &RootCertStore, alpn: &[&str]) -> std::io::Result<TlsStream<TcpStream>> {
    handshake(TcpStream::connect(server.address).await?, roots, alpn).await
}

pub async fn handshake(
    stream: TcpStream,
    roots: &RootCertStore,
    alpn: &[&str],
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots.clone())
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("localhost").unwrap(), stream).await
}

async fn get_http1(stream: &mut TlsStream<TcpStream>) -> String {
    stream.write_all(b"GET /hello HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await.unwrap();
    reply
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn both_protocols_by_alpn() {
    let folder = tempfile::tempdir().unwrap();
    let roots = certificate(folder.path());
    let server = with_tls(folder.path());
    for alpn in [&["http/1.1"][..], &[]] {
        let mut stream = connect(&server, &roots, alpn).await.unwrap();
        let reply = get_http1(&mut stream).await;
        assert!(reply.starts_with("HTTP/1.1 200 OK") && reply.ends_with("hello"), "{reply}");
    }
    let stream = connect(&server, &roots, &["h2", "http/1.1"]).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(b"h2".as_slice()));
    let (sender, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let mut sender: h2::client::SendRequest<bytes::Bytes> = sender.ready().await.unwrap();
    let request = http::Request::get("https://localhost/hello").body(()).unwrap();
    let response = sender.send_request(request, true).unwrap().0.await.unwrap();
    assert_eq!(response.status(), 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_client_that_speaks_no_tls_is_dropped() {
    let folder = tempfile::tempdir().unwrap();
    certificate(folder.path());
    let server = with_tls(folder.path());
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(b"GET /hello HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    let mut reply = Vec::new();
    let _ = stream.read_to_end(&mut reply).await;
    assert!(!reply.starts_with(b"HTTP"), "{reply:?}");
    eventually("counted", || {
        let page = server.metrics();
        (0..2).map(|worker| metric(&page, &format!("fanin_tls_failures_total{{worker=\"{worker}\"}}"))).sum::<f64>()
            == 1.0
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_handshake_that_does_not_come_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    certificate(folder.path());
    let server = TestServer::with(|setup| {
        setup.server.tls = Some(ServerTls::new(folder.path().join("cert.pem"), folder.path().join("key.pem")));
        setup.server.header_timeout = std::time::Duration::from_millis(100);
    });
    let mut client = server.connect();
    assert!(client.is_closed());
    assert_eq!(metric(&server.metrics(), "fanin_connection_timeouts_total{kind=\"header\"}"), 1.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_reload_takes_a_new_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let old = certificate(folder.path());
    let server = with_tls(folder.path());
    let mut kept = connect(&server, &old, &[]).await.unwrap();
    let new = certificate(folder.path());
    assert!(connect(&server, &new, &[]).await.is_err(), "nothing has been reloaded yet");
    server.handle().reload().unwrap();
    assert!(connect(&server, &new, &[]).await.is_ok());
    assert!(connect(&server, &old, &[]).await.is_err());
    assert!(get_http1(&mut kept).await.ends_with("hello"), "open connections go on");
}
