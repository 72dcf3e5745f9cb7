//! TLS to the server under load.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::error::LoadError;
use crate::protocol::Protocol;

/// Whose certificate is believed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// What the system's roots have signed.
    #[default]
    System,
    /// What the roots in this PEM text have signed.
    Roots(Vec<u8>),
    /// Any. For servers under test: whoever stands in between reads along.
    Anything,
}

/// Makes TLS connections to one server.
#[derive(Clone)]
pub(crate) struct Tls {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TLS to {:?}", self.name)
    }
}

impl Tls {
    pub(crate) fn new(trust: &Trust, host: &str, protocol: Protocol) -> Result<Tls, LoadError> {
        let bad = |error: &dyn fmt::Display| LoadError::Tls(error.to_string());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| bad(&error))?;
        let builder = match trust {
            Trust::Anything => builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate(provider))),
            Trust::System => builder.with_root_certificates(system_roots()?),
            Trust::Roots(pem) => builder.with_root_certificates(roots(pem)?),
        };
        let mut config = builder.with_no_client_auth();
        config.alpn_protocols = match protocol {
            Protocol::Http1 => vec![b"http/1.1".to_vec()],
            Protocol::Http2 | Protocol::Grpc => vec![b"h2".to_vec()],
        };
        let name = ServerName::try_from(host.to_owned()).map_err(|error| bad(&error))?;
        Ok(Tls { connector: TlsConnector::from(Arc::new(config)), name })
    }

    pub(crate) async fn connect(&self, stream: TcpStream) -> std::io::Result<TlsStream<TcpStream>> {
        self.connector.connect(self.name.clone(), stream).await
    }
}

fn system_roots() -> Result<RootCertStore, LoadError> {
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    match added {
        0 => Err(LoadError::Tls("the system has no root certificates".into())),
        _ => Ok(roots),
    }
}

fn roots(pem: &[u8]) -> Result<RootCertStore, LoadError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let added = certificate
            .map_err(|error| error.to_string())
            .and_then(|certificate| roots.add(certificate).map_err(|error| error.to_string()));
        added.map_err(|error| LoadError::Tls(format!("the root certificates cannot be read: {error}")))?;
    }
    if roots.is_empty() {
        return Err(LoadError::Tls("there is no certificate among the roots".into()));
    }
    Ok(roots)
}

/// Believes any certificate; signatures are checked all the same, so that the handshake costs what it costs.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
