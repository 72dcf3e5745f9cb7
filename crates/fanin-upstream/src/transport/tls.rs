//! TLS to upstreams: root certificates and client certificates.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use fanin_config::{ClientTls, HttpVersion};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::error::{ErrorKind, Failure};

/// The TLS client of one upstream URL.
#[derive(Clone)]
pub(crate) struct Tls {
    connector: TlsConnector,
    server_name: ServerName<'static>,
    protocol: HttpVersion,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TLS to {:?}", self.server_name)
    }
}

/// A key of `[upstreams.NAME.tls]` and what is wrong with it.
pub(crate) type TlsError = (&'static str, String);

impl Tls {
    pub fn new(config: Arc<ClientConfig>, server_name: &str, protocol: HttpVersion) -> Result<Tls, TlsError> {
        let server_name = ServerName::try_from(server_name.to_owned())
            .map_err(|_| ("tls.server_name", format!("{server_name:?} is not a name that a certificate can carry")))?;
        Ok(Tls { connector: TlsConnector::from(config), server_name, protocol })
    }

    pub async fn handshake(&self, stream: TcpStream, address: SocketAddr) -> Result<TlsStream<TcpStream>, Failure> {
        let failed = |what: &dyn fmt::Display| Failure::new(ErrorKind::Connect, format!("{address}: TLS: {what}"));
        let stream = self.connector.connect(self.server_name.clone(), stream).await.map_err(|error| failed(&error))?;
        if self.protocol == HttpVersion::Http2 && stream.get_ref().1.alpn_protocol() != Some(b"h2") {
            return Err(failed(&"the upstream does not speak HTTP/2 (no h2 by ALPN)"));
        }
        Ok(stream)
    }
}

/// Reads the configured files. Called when a configuration is loaded, never for a connection.
pub(crate) fn client_config(
    settings: Option<&ClientTls>,
    protocol: HttpVersion,
) -> Result<Arc<ClientConfig>, TlsError> {
    let nothing = ClientTls::default();
    let settings = settings.unwrap_or(&nothing);
    let roots = match &settings.ca {
        Some(file) => custom_roots(file)?,
        None => system_roots()?,
    };
    let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| ("tls", error.to_string()))?
        .with_root_certificates(roots);
    let mut config = match (&settings.cert, &settings.key) {
        (Some(cert), Some(key)) => {
            let chain = certificates(cert, "tls.cert")?;
            let key = PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable("tls.key", key, &error))?;
            builder.with_client_auth_cert(chain, key).map_err(|error| ("tls.cert", error.to_string()))?
        }
        (None, None) => builder.with_no_client_auth(),
        (Some(_), None) => return Err(("tls.key", "missing, though tls.cert is given".to_owned())),
        (None, Some(_)) => return Err(("tls.cert", "missing, though tls.key is given".to_owned())),
    };
    config.alpn_protocols = match protocol {
        HttpVersion::Http1 => vec![b"http/1.1".to_vec()],
        HttpVersion::Http2 => vec![b"h2".to_vec()],
    };
    Ok(Arc::new(config))
}

fn unreadable(key: &'static str, file: &Path, error: &dyn fmt::Display) -> TlsError {
    (key, format!("{}: {error}", file.display()))
}

fn certificates(file: &Path, key: &'static str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let chain: Vec<_> = CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect)
        .map_err(|error| unreadable(key, file, &error))?;
    if chain.is_empty() {
        return Err(unreadable(key, file, &"no certificate in the file"));
    }
    Ok(chain)
}

fn custom_roots(file: &Path) -> Result<Arc<RootCertStore>, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file, "tls.ca")? {
        roots.add(certificate).map_err(|error| unreadable("tls.ca", file, &error))?;
    }
    Ok(Arc::new(roots))
}

/// The usable root certificates of the system.
pub(crate) fn system_certificates() -> Vec<CertificateDer<'static>> {
    let usable = |certificate: &CertificateDer<'static>| RootCertStore::empty().add(certificate.clone()).is_ok();
    rustls_native_certs::load_native_certs().certs.into_iter().filter(usable).collect()
}

/// The system's root certificates. Read once, because there are hundreds.
fn system_roots() -> Result<Arc<RootCertStore>, TlsError> {
    static ROOTS: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    let roots = ROOTS.get_or_init(|| {
        let mut roots = RootCertStore::empty();
        // System stores often contain single certificates that cannot be used.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        Arc::new(roots)
    });
    if roots.is_empty() {
        return Err(("tls.ca", "the system has no root certificates, name a file".to_owned()));
    }
    Ok(roots.clone())
}
