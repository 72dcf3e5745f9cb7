//! TLS of the listeners.

use std::path::Path;
use std::sync::Arc;

use fanin_config::ServerTls;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::LoadError;

/// Reads certificate and key. ALPN offers HTTP/2 and HTTP/1.1; TLS 1.2 and 1.3.
pub(crate) fn load(tls: &ServerTls) -> Result<Arc<ServerConfig>, LoadError> {
    let error = |path: &Path, what: &dyn std::fmt::Display| {
        LoadError::new(format!("{}: {what} ([server.tls])", path.display()))
    };
    let certificates = CertificateDer::pem_file_iter(&tls.cert)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|source| error(&tls.cert, &source))?;
    if certificates.is_empty() {
        return Err(error(&tls.cert, &"no certificate in this file"));
    }
    let key = PrivateKeyDer::from_pem_file(&tls.key).map_err(|source| error(&tls.key, &source))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(certificates, key))
        .map_err(|source| error(&tls.cert, &source))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
