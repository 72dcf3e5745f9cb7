//! TLS to the collector.

use std::path::Path;
use std::sync::Arc;

use fanin_config::{ClientTls, TlsVersion};
use fanin_io::client_tls::{self, Part};
use rustls::ClientConfig;
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

/// A key of `[otlp]` and what is wrong with it.
pub(crate) type Problem = (&'static str, String);

fn read(key: &'static str, file: &Path) -> Result<Vec<u8>, Problem> {
    std::fs::read(file).map_err(|error| (key, format!("{}: {error}", file.display())))
}

/// For gRPC.
pub(crate) fn grpc(tls: &ClientTls) -> Result<ClientTlsConfig, Problem> {
    if tls.min_version != TlsVersion::default() {
        return Err(("tls.min_version", "cannot be chosen for gRPC; use `protocol = \"http\"`".to_owned()));
    }
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
    let identity = tls.cert.as_deref().zip(tls.key.as_deref());
    let config = client_tls::client_config(tls.ca.as_deref(), identity, tls.min_version == TlsVersion::V1_3);
    config.map(Arc::new).map_err(|error| {
        let key = match error.part {
            Part::Ca => "tls.ca",
            Part::Cert => "tls.cert",
            Part::Key => "tls.key",
        };
        (key, error.what)
    })
}
