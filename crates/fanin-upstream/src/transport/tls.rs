//! TLS to upstreams: root certificates and client certificates.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use fanin_config::{ClientTls, HttpVersion, TlsVersion};
use fanin_io::client_tls::{self, Part};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
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
    let identity = match (&settings.cert, &settings.key) {
        (Some(cert), Some(key)) => Some((cert.as_path(), key.as_path())),
        (None, None) => None,
        (Some(_), None) => return Err(("tls.key", "missing, though tls.cert is given".to_owned())),
        (None, Some(_)) => return Err(("tls.cert", "missing, though tls.key is given".to_owned())),
    };
    let config = client_tls::client_config(settings.ca.as_deref(), identity, settings.min_version == TlsVersion::V1_3);
    let mut config = config.map_err(|error| {
        let key = match error.part {
            Part::Ca => "tls.ca",
            Part::Cert => "tls.cert",
            Part::Key => "tls.key",
        };
        (key, error.what)
    })?;
    config.alpn_protocols = match protocol {
        HttpVersion::Http1 => vec![b"http/1.1".to_vec()],
        HttpVersion::Http2 => vec![b"h2".to_vec()],
    };
    Ok(Arc::new(config))
}
