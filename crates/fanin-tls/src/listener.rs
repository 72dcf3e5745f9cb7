//! TLS of one listener.

use std::path::Path;
use std::sync::Arc;

use fanin_config::{Alpn, ClientCertificates, ServerTls, TlsVersion};
use rustls::crypto::CryptoProvider;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, ServerConnection, SupportedProtocolVersion};

use crate::client_certificate::ClientCertificate;
use crate::expiry::{Expiry, now};
use crate::handshakes::Outcome;
use crate::loading::{self, FileError, Named, ServerCertificate};
use crate::names::ByName;
use crate::sessions::Sessions;

/// TLS of one listener: what is made of `[server.tls]` or `[models.tls]` and the files that it names.
#[derive(Debug)]
pub struct Listener {
    config: Arc<ServerConfig>,
    sessions: Option<Sessions>,
    requires_certificate: bool,
    expiries: Vec<Expiry>,
}

impl Listener {
    /// Reads the files. `before`: the listener that this one replaces, whose sessions go on.
    ///
    /// # Errors
    /// The first file that cannot be used.
    pub fn load(tls: &ServerTls, before: Option<&Listener>) -> Result<Listener, FileError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let named = |key: &str, file| Named { key: key.to_owned(), file };
        let (cert, key) = (named("cert", &tls.cert), named("key", &tls.key));
        let default = loading::certificate(&cert, &key, &provider)?;
        let mut others = Vec::new();
        for (at, more) in tls.certificates.iter().enumerate() {
            let cert = named(&format!("certificates[{at}].cert"), &more.cert);
            let key = named(&format!("certificates[{at}].key"), &more.key);
            let one = loading::certificate(&cert, &key, &provider)?;
            if one.names.is_empty() {
                return Err(cert.error("has no DNS name, so no client would get it"));
            }
            others.push(one);
        }
        let by_name = ByName::new(&default, &others).map_err(|taken| {
            let cert = named(&format!("certificates[{}].cert", taken.index), &tls.certificates[taken.index].cert);
            cert.error(format_args!("has the name {}, as {} has", taken.name, taken.by.display()))
        })?;
        let mut expiries: Vec<Expiry> =
            std::iter::once(&default).chain(&others).map(|one: &ServerCertificate| one.expiry.clone()).collect();
        let Verified { verifier, by } = verified(tls, &provider, &mut expiries)?;

        let failed = |error: rustls::Error| cert.error(error);
        let builder = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(versions(tls.min_version))
            .map_err(failed)?;
        let builder = match verifier {
            Some(verifier) => builder.with_client_cert_verifier(verifier),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_cert_resolver(Arc::new(by_name));
        config.alpn_protocols = tls.alpn.iter().map(|protocol: &Alpn| protocol.name().into()).collect();
        let sessions = if tls.resumption {
            let before = before.and_then(|before| before.sessions.as_ref());
            let sessions = Sessions::new(before, &by).map_err(failed)?;
            sessions.apply(&mut config);
            Some(sessions)
        } else {
            Sessions::none(&mut config);
            None
        };
        Ok(Listener {
            config: Arc::new(config),
            sessions,
            requires_certificate: tls.client_certificates == ClientCertificates::Required,
            expiries,
        })
    }

    /// For the handshakes of connections.
    pub fn config(&self) -> &Arc<ServerConfig> {
        &self.config
    }

    /// When its certificates expire.
    pub fn expiries(&self) -> &[Expiry] {
        &self.expiries
    }

    /// What deserves a warning: certificates that have expired.
    pub fn warnings(&self) -> impl Iterator<Item = String> {
        self.expiries.iter().filter_map(Expiry::warning)
    }

    /// The client of a connection whose handshake is complete. `None` if it has presented no certificate.
    ///
    /// # Errors
    /// The connection may not go on: a session was resumed whose certificate has expired since, and one is required.
    pub fn client(&self, connection: &ServerConnection) -> Result<Option<Arc<ClientCertificate>>, Outcome> {
        let Some(own) = connection.peer_certificates().and_then(<[_]>::first) else { return Ok(None) };
        // It was verified, so it can be parsed; if not, it names nobody.
        let client = ClientCertificate::parse(own).filter(|client| client.not_after >= now());
        match client {
            None if self.requires_certificate => Err(Outcome::BadCertificate),
            client => Ok(client.map(Arc::new)),
        }
    }
}

fn versions(least: TlsVersion) -> &'static [&'static SupportedProtocolVersion] {
    static SINCE_1_2: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];
    match least {
        TlsVersion::V1_2 => &SINCE_1_2,
        TlsVersion::V1_3 => &SINCE_1_2[..1],
    }
}

/// How clients are verified.
#[derive(Default)]
struct Verified {
    verifier: Option<Arc<dyn ClientCertVerifier>>,
    /// All that decides whether a client is accepted.
    by: Vec<Vec<u8>>,
}

fn verified(
    tls: &ServerTls,
    provider: &Arc<CryptoProvider>,
    expiries: &mut Vec<Expiry>,
) -> Result<Verified, FileError> {
    if tls.client_certificates == ClientCertificates::Off {
        return Ok(Verified::default());
    }
    // The reader of the configuration demands it.
    let ca = Named { key: "client_ca".to_owned(), file: tls.client_ca.as_deref().unwrap_or(Path::new("")) };
    let mut by = vec![vec![tls.client_certificates as u8], ca.bytes()?];
    let roots = loading::authorities(&ca, &by[1], expiries)?;
    let mut builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    let mut blamed = ca;
    if let Some(file) = &tls.client_crl {
        let crl = Named { key: "client_crl".to_owned(), file };
        let bytes = crl.bytes()?;
        builder = builder.with_crls(loading::revocation_lists(&crl, &bytes, expiries)?);
        by.push(bytes);
        blamed = crl;
    }
    if tls.client_certificates == ClientCertificates::Optional {
        builder = builder.allow_unauthenticated();
    }
    let verifier = builder.build().map_err(|error| blamed.error(error))?;
    Ok(Verified { verifier: Some(verifier), by })
}

#[cfg(test)]
mod tests;
