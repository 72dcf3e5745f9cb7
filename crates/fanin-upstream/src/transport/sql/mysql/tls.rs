//! TLS for MySQL's client, which brings a TLS implementation of its own.

use std::path::Path;

use fanin_config::{ClientTls, TlsVersion};
use fanin_io::client_tls::system_certificates;
use mysql_async::{ClientIdentity, SslOpts};

/// The client's options. Files are read here, when a configuration is loaded.
pub(in crate::transport::sql) fn options(
    settings: Option<&ClientTls>,
    name: &str,
) -> Result<SslOpts, (&'static str, String)> {
    let file = |path: &Path, key: &'static str| match std::fs::read(path) {
        Ok(bytes) => Ok(bytes),
        Err(error) => Err((key, format!("{}: {error}", path.display()))),
    };
    let nothing = ClientTls::default();
    let settings = settings.unwrap_or(&nothing);
    if settings.min_version != TlsVersion::default() {
        return Err(("tls.min_version", "cannot be chosen for MySQL; let the server demand it".to_owned()));
    }
    let roots = match &settings.ca {
        Some(ca) => vec![file(ca, "tls.ca")?],
        None => system_certificates().iter().map(|root| root.to_vec()).collect(),
    };
    let identity = match (&settings.cert, &settings.key) {
        (Some(cert), Some(key)) => {
            Some(ClientIdentity::new(file(cert, "tls.cert")?.into(), file(key, "tls.key")?.into()))
        }
        _ => None,
    };
    Ok(SslOpts::default()
        .with_disable_built_in_roots(true)
        .with_root_certs(roots.into_iter().map(Into::into).collect())
        .with_client_identity(identity)
        .with_danger_tls_hostname_override(Some(name.to_owned())))
}
