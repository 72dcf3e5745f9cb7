//! The certificate by the host that a client names (SNI).

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::loading::ServerCertificate;

/// Certificates by name. An exact name goes before a wildcard, and that before the default.
#[derive(Debug)]
pub(crate) struct ByName {
    exact: HashMap<String, Arc<CertifiedKey>>,
    /// By what follows `*.`.
    wildcards: HashMap<String, Arc<CertifiedKey>>,
    default: Arc<CertifiedKey>,
}

/// A name that two certificates have: the name, and the file of the first.
pub(crate) struct Taken {
    pub name: String,
    pub by: PathBuf,
    /// The index of the second among the others.
    pub index: usize,
}

impl ByName {
    /// `default` has its names as well.
    pub fn new(default: &ServerCertificate, others: &[ServerCertificate]) -> Result<ByName, Taken> {
        let mut found = ByName { exact: HashMap::new(), wildcards: HashMap::new(), default: default.certified.clone() };
        let mut files: HashMap<&str, &PathBuf> = HashMap::new();
        for (index, one) in std::iter::once(default).chain(others).enumerate() {
            for name in &one.names {
                if let Some(by) = files.insert(name, &one.expiry.file) {
                    return Err(Taken { name: name.clone(), by: by.clone(), index: index.saturating_sub(1) });
                }
                match name.strip_prefix("*.") {
                    Some(domain) => found.wildcards.insert(domain.to_owned(), one.certified.clone()),
                    None => found.exact.insert(name.clone(), one.certified.clone()),
                };
            }
        }
        Ok(found)
    }

    /// A wildcard stands for one label (RFC 6125, 6.4.3).
    pub fn find(&self, host: &str) -> &Arc<CertifiedKey> {
        let host = host.to_ascii_lowercase();
        let by_wildcard = || self.wildcards.get(host.split_once('.')?.1);
        self.exact.get(&host).or_else(by_wildcard).unwrap_or(&self.default)
    }
}

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(hello.server_name().map_or(&self.default, |host| self.find(host)).clone())
    }
}
