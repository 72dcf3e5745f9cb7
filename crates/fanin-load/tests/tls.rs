//! Load over TLS, HTTP/1.1 and HTTP/2.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fanin_load::{Outcome, Plan, Protocol, Request, Shape, Trust, run};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::PrivateKeyDer;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// A server with a certificate of its own making for `localhost`, and that certificate as PEM.
async fn serve() -> (SocketAddr, Vec<u8>) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let pem = made.cert.pem().into_bytes();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = builder.with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                let service = service_fn(|request: http::Request<Incoming>| async move {
                    let version = format!("{:?} {}", request.version(), request.uri().path());
                    Ok::<_, Infallible>(http::Response::new(Full::new(Bytes::from(version))))
                });
                let io = TokioIo::new(stream);
                if is_http2 {
                    drop(
                        hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                            .serve_connection(io, service)
                            .await,
                    );
                } else {
                    drop(hyper::server::conn::http1::Builder::new().serve_connection(io, service).await);
                }
            });
        }
    });
    (address, pem)
}

async fn load(address: SocketAddr, protocol: Protocol, trust: Trust) -> Outcome {
    let url = format!("https://localhost:{}/path", address.port());
    let mut plan = Plan::new(Request::get(&url).unwrap(), Shape::constant(100.0, Duration::from_millis(200)));
    (plan.protocol, plan.trust, plan.connections) = (protocol, trust, 4);
    run(&plan, |_| ()).await.unwrap()
}

#[tokio::test]
async fn answers_come_over_tls_from_who_is_trusted() {
    let (address, pem) = serve().await;
    for (protocol, bytes) in [(Protocol::Http1, "HTTP/1.1 /path".len()), (Protocol::Http2, "HTTP/2.0 /path".len())] {
        for trust in [Trust::Roots(pem.clone()), Trust::Anything] {
            let outcome = load(address, protocol, trust.clone()).await;
            assert_eq!((outcome.good, outcome.bytes), (20, 20 * bytes as u64), "{protocol:?} {trust:?}");
        }
    }
}

#[tokio::test]
async fn who_is_not_trusted_gets_no_request() {
    let (address, _) = serve().await;
    let other = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap().cert.pem().into_bytes();
    let outcome = load(address, Protocol::Http1, Trust::Roots(other)).await;
    assert_eq!((outcome.good, outcome.connect_errors), (0, 20));
}

#[tokio::test]
async fn roots_that_are_none_are_refused() {
    let request = Request::get("https://localhost:1/").unwrap();
    let mut plan = Plan::new(request, Shape::constant(1.0, Duration::from_secs(1)));
    plan.trust = Trust::Roots(b"nothing".to_vec());
    let error = run(&plan, |_| ()).await.unwrap_err().to_string();
    assert!(error.contains("no certificate among the roots"), "{error}");
}
