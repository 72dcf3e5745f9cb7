//! TLS to a broker: root certificates and client certificates.

use std::sync::Arc;

use fanin_config::{ClientTls, TlsVersion};
use fanin_io::client_tls::{self, Part};
use rustls::ClientConfig;

/// A key of `[push.broker_tls]` and what is wrong with it.
type TlsError = (&'static str, String);

/// Reads the configured files.
pub(crate) fn client_config(settings: &ClientTls) -> Result<Arc<ClientConfig>, TlsError> {
    let identity = settings.cert.as_deref().zip(settings.key.as_deref());
    let config = client_tls::client_config(settings.ca.as_deref(), identity, settings.min_version == TlsVersion::V1_3);
    config.map(Arc::new).map_err(|error| {
        let key = match error.part {
            Part::Ca => "ca",
            Part::Cert => "cert",
            Part::Key => "key",
        };
        (key, error.what)
    })
}
