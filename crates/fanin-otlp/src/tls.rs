//! TLS to the collector.

use std::path::Path;
use std::sync::Arc;

use fanin_config::ClientTls;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

/// A key of `[otlp]` and what is wrong with it.
pub(crate) type Problem = (&'static str, String);

fn read(key: &'static str, file: &Path) -> Result<Vec<u8>, Problem> {
    std::fs::read(file).map_err(|error| (key, format!("{}: {error}", file.display())))
}

/// For gRPC.
pub(crate) fn grpc(tls: &ClientTls) -> Result<ClientTlsConfig, Problem> {
    let mut config = match &tls.ca {
        Some(file) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read("tls.ca", file)?)),
        None => ClientTlsConfig::new().with_native_roots(),
    };
    if let (Some(cert), Some(key)) = (&tls.cert, &tls.key) {
        config = config.identity(Identity::from_pem(read("tls.cert", cert)?, read("tls.key", key)?));
    }
    if let Some(name) = &tls.server_name {
        config = config.domain_name(name);
    }
    Ok(config)
}

/// For HTTP.
pub(crate) fn http(tls: &ClientTls) -> Result<Arc<ClientConfig>, Problem> {
    let mut roots = RootCertStore::empty();
    match &tls.ca {
        Some(file) => {
            for certificate in certificates("tls.ca", file)? {
                roots.add(certificate).map_err(|error| ("tls.ca", format!("{}: {error}", file.display())))?;
            }
        }
        None => drop(roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs)),
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| ("tls", error.to_string()))?
        .with_root_certificates(roots);
    let config = match (&tls.cert, &tls.key) {
        (Some(cert), Some(key)) => {
            let private = PrivateKeyDer::from_pem_file(key);
            let private = private.map_err(|error| ("tls.key", format!("{}: {error}", key.display())))?;
            builder
                .with_client_auth_cert(certificates("tls.cert", cert)?, private)
                .map_err(|error| ("tls.cert", error.to_string()))?
        }
        _ => builder.with_no_client_auth(),
    };
    Ok(Arc::new(config))
}

fn certificates(key: &'static str, file: &Path) -> Result<Vec<CertificateDer<'static>>, Problem> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err((key, format!("{}: no certificate in the file", file.display()))),
        Err(error) => Err((key, format!("{}: {error}", file.display()))),
    }
}
