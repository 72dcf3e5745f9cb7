//! How to sign on to a database: user, password, database, TLS.

use std::fmt;
use std::sync::Arc;

use fanin_config::{PostgresAuth, UpstreamKind};
use mysql_async::SslOpts;
use percent_encoding::percent_decode_str;
use rustls::ClientConfig;
use url::Url;

use super::mysql::tls as mysql_client;
use crate::transport::tls::{self, Tls};

/// User, password, database and TLS of a database upstream.
pub(crate) struct Access {
    pub user: String,
    pub password: Option<String>,
    pub database: String,
    pub application: String,
    pub tls: Option<Tls>,
    /// The same for MySQL's client, which brings a TLS implementation of its own.
    pub mysql_tls: Option<SslOpts>,
    /// The weakest way in which PostgreSQL may ask for the password.
    pub auth: PostgresAuth,
    /// Longest message from the server, in bytes.
    pub max_message: usize,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.user, self.database)
    }
}

impl Access {
    /// Reads a URL that the configuration has checked.
    pub fn new(config: &fanin_config::Upstream, url: &Url, host: &str) -> Result<Access, (&'static str, String)> {
        let text = |encoded: &str| percent_decode_str(encoded).decode_utf8_lossy().into_owned();
        let parameter =
            |name: &str| url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned());
        let sslmode = parameter("sslmode");
        let secure = match sslmode.as_deref() {
            Some("disable") if config.tls.is_some() => {
                return Err(("tls", "contradicts sslmode=disable; keep one of them".to_owned()));
            }
            Some("disable") => false,
            Some(_) => true,
            None => config.tls.is_some(),
        };
        let name = config.tls.as_ref().and_then(|tls| tls.server_name.as_deref()).unwrap_or(host);
        let mysql_tls = match secure && config.kind() == UpstreamKind::Mysql {
            true => Some(mysql_client::options(config.tls.as_ref(), name.trim_matches(['[', ']']))?),
            false => None,
        };
        let tls = if secure {
            let settings = config.tls.as_ref();
            let shared = tls::client_config(settings, fanin_config::HttpVersion::Http1)?;
            // The protocol is agreed upon before TLS starts, so ALPN is not needed.
            let mut own = ClientConfig::clone(&shared);
            own.alpn_protocols.clear();
            Some(Tls::new(Arc::new(own), name, fanin_config::HttpVersion::Http1)?)
        } else {
            None
        };
        Ok(Access {
            user: text(url.username()),
            password: url.password().map(text).or_else(|| config.password.clone()),
            database: text(url.path().trim_start_matches('/')),
            application: parameter("application_name").unwrap_or_else(|| "fanin".to_owned()),
            tls,
            mysql_tls,
            // Without TLS, whoever reads along must not learn the password. With TLS, the server is the right one.
            auth: config.auth.unwrap_or(if secure { PostgresAuth::Cleartext } else { PostgresAuth::Scram }),
            max_message: config.max_answer,
        })
    }
}
