//! TLS to a broker: root certificates and client certificates.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use fanin_config::ClientTls;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

/// A key of `[push.broker_tls]` and what is wrong with it.
type TlsError = (&'static str, String);

/// Reads the configured files.
pub(crate) fn client_config(settings: &ClientTls) -> Result<Arc<ClientConfig>, TlsError> {
    let roots = match &settings.ca {
        Some(file) => custom_roots(file)?,
        None => system_roots()?,
    };
    let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| ("ca", error.to_string()))?
        .with_root_certificates(roots);
    let config = match (&settings.cert, &settings.key) {
        (Some(cert), Some(key)) => {
            let chain = certificates(cert, "cert")?;
            let key = PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable("key", key, &error))?;
            builder.with_client_auth_cert(chain, key).map_err(|error| ("cert", error.to_string()))?
        }
        _ => builder.with_no_client_auth(),
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
    for certificate in certificates(file, "ca")? {
        roots.add(certificate).map_err(|error| unreadable("ca", file, &error))?;
    }
    Ok(Arc::new(roots))
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
        return Err(("ca", "the system has no root certificates, name a file".to_owned()));
    }
    Ok(roots.clone())
}
