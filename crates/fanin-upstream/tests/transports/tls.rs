//! HTTPS upstreams.

use std::path::PathBuf;
use std::sync::Arc;

use crate::common::{LocalExecutor, client, in_time, run, text};
use fanin_config::{ClientTls, HttpVersion};
use fanin_upstream::{ErrorKind, Request, Upstreams, WorkerClient};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::TcpListener;
use tokio::task::spawn_local;
use tokio_rustls::TlsAcceptor;

struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: tempfile::TempDir,
}

impl Authority {
    fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        Authority { issuer, folder: tempfile::tempdir().unwrap() }
    }

    fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    fn ca(&self) -> PathBuf {
        self.file("ca.pem", &self.issuer.pem())
    }

    /// Certificate and key for a name.
    fn issue(&self, name: &str) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.signed_by(&key, &self.issuer).unwrap(), key)
    }

    async fn serve(&self, alpn: &[u8], wants_client: bool) -> String {
        let (certificate, key) = self.issue("localhost");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).unwrap();
        let builder =
            ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions().unwrap();
        let builder = match wants_client {
            true => builder.with_client_cert_verifier(
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap(),
            ),
            false => builder.with_no_client_auth(),
        };
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let mut config = builder.with_single_cert(vec![certificate.der().clone()], key).unwrap();
        config.alpn_protocols = vec![alpn.to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        spawn_local(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let acceptor = acceptor.clone();
                spawn_local(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let two = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                    let service = service_fn(|request: http::Request<_>| async move {
                        Ok::<_, std::convert::Infallible>(text(format!("{:?}", request.version())))
                    });
                    let io = TokioIo::new(stream);
                    let _ = match two {
                        false => hyper::server::conn::http1::Builder::new().serve_connection(io, service).await,
                        true => {
                            hyper::server::conn::http2::Builder::new(LocalExecutor).serve_connection(io, service).await
                        }
                    };
                });
            }
        });
        format!("https://localhost:{port}")
    }
}

#[test]
fn custom_roots_and_both_versions() {
    run(async {
        let authority = Authority::new();
        for (alpn, http, seen) in
            [(&b"http/1.1"[..], HttpVersion::Http1, "HTTP/1.1"), (b"h2", HttpVersion::Http2, "HTTP/2.0")]
        {
            let url = authority.serve(alpn, false).await;
            let client = client(&url, |config| {
                config.http = http;
                config.tls = Some(ClientTls { ca: Some(authority.ca()), ..ClientTls::default() });
            });
            for _ in 0..3 {
                assert_eq!(client.get("/").await.unwrap().body, seen);
            }
        }
    });
}

#[test]
fn untrusted_certificates_and_wrong_names_are_refused() {
    run(async {
        let authority = Authority::new();
        let url = authority.serve(b"http/1.1", false).await;
        let stranger = Authority::new();
        let tls = |ca: PathBuf, name: Option<&str>| {
            Some(ClientTls { ca: Some(ca), server_name: name.map(str::to_owned), ..ClientTls::default() })
        };
        let error = client(&url, |config| config.tls = tls(stranger.ca(), None)).get("/").await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Connect);
        assert!(error.detail.contains("TLS: invalid peer certificate"), "{error}");
        let error = client(&url, |config| config.tls = tls(authority.ca(), Some("other"))).get("/").await.unwrap_err();
        assert!(error.detail.contains("not valid for name"), "{error}");
        // The server is reached by its address and verified by its name.
        let address = url.replace("localhost", "127.0.0.1");
        client(&address, |config| config.tls = tls(authority.ca(), Some("localhost"))).get("/").await.unwrap();
    });
}

#[test]
fn an_upstream_without_http2_is_an_error() {
    run(async {
        let authority = Authority::new();
        let url = authority.serve(b"http/1.1", false).await;
        let client = client(&url, |config| {
            config.http = HttpVersion::Http2;
            config.tls = Some(ClientTls { ca: Some(authority.ca()), ..ClientTls::default() });
        });
        assert_eq!(client.get("/").await.unwrap_err().kind, ErrorKind::Connect);
    });
}

#[test]
fn a_client_certificate_is_sent() {
    run(async {
        let authority = Authority::new();
        let url = authority.serve(b"http/1.1", true).await;
        let (certificate, key) = authority.issue("me");
        let own = ClientTls {
            ca: Some(authority.ca()),
            cert: Some(authority.file("cert.pem", &certificate.pem())),
            key: Some(authority.file("key.pem", &key.serialize_pem())),
            server_name: None,
            min_version: fanin_config::TlsVersion::V1_3,
        };
        client(&url, |config| config.tls = Some(own.clone())).get("/").await.unwrap();
        let nobody = ClientTls { cert: None, key: None, ..own };
        let error = client(&url, |config| config.tls = Some(nobody)).get("/").await.unwrap_err();
        assert!(matches!(error.kind, ErrorKind::Connect | ErrorKind::Protocol), "{error}");
    });
}

#[test]
fn a_reload_reads_files_again_whose_paths_are_the_same() {
    run(async {
        let authority = Authority::new();
        let ca = authority.ca();
        let mut config = crate::common::config(&authority.serve(b"http/1.1", false).await);
        config.tls = Some(ClientTls { ca: Some(ca.clone()), ..ClientTls::default() });
        let first = Upstreams::new([&config]).unwrap();
        let worker = WorkerClient::new();
        let call = async |upstreams: &Upstreams| {
            upstreams.get("u").unwrap().clone().call(&worker, Request::get("/"), in_time()).await
        };
        call(&first).await.unwrap();
        let same = first.reload([&config]).unwrap();
        assert!(Arc::ptr_eq(same.get("u").unwrap(), first.get("u").unwrap()));

        std::fs::write(&ca, Authority::new().issuer.pem()).unwrap();
        let other = first.reload([&config]).unwrap();
        first.switch_to(&other);
        let error = call(&other).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Connect, "the open connection is not used: {error}");

        std::fs::write(&ca, "no certificate").unwrap();
        let errors = other.reload([&config]).unwrap_err();
        assert_eq!((errors.len(), errors[0].key), (1, "tls.ca"), "{errors:?}");

        authority.ca();
        let again = other.reload([&config]).unwrap();
        other.switch_to(&again);
        call(&again).await.unwrap();
    });
}

#[test]
fn files_that_are_missing_or_something_else_are_named() {
    let authority = Authority::new();
    let text = authority.file("text.pem", "no certificate");
    for (tls, key) in [
        (ClientTls { ca: Some("missing.pem".into()), ..ClientTls::default() }, "tls.ca"),
        (ClientTls { ca: Some(text.clone()), ..ClientTls::default() }, "tls.ca"),
        (ClientTls { ca: Some(authority.ca()), cert: Some(authority.ca()), ..ClientTls::default() }, "tls.key"),
        (
            ClientTls { ca: Some(authority.ca()), cert: Some(authority.ca()), key: Some(text), ..ClientTls::default() },
            "tls.key",
        ),
    ] {
        let mut config = crate::common::config("https://localhost:1");
        config.tls = Some(tls);
        let errors = Upstreams::new([&config]).unwrap_err();
        assert_eq!((errors.len(), errors[0].key), (1, key), "{errors:?}");
    }
}
