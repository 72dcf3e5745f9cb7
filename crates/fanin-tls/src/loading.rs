//! Certificates, keys, authorities and revocation lists, from PEM files.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{CertificateRevocationList, FromDer, X509Certificate};

use crate::client_certificate::rfc4514;
use crate::expiry::Expiry;

/// Largest file. A bundle of all public authorities has a quarter of a megabyte, large revocation lists a few.
const MAX_FILE: u64 = 64 << 20;

/// A file that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {}: {what}", file.display())]
pub struct FileError {
    /// The key of the section, such as `cert` or `certificates[1].key`.
    pub key: String,
    /// The file.
    pub file: PathBuf,
    /// What is wrong.
    pub what: String,
}

/// A file that a key names.
#[derive(Clone, Debug)]
pub(crate) struct Named<'a> {
    pub key: String,
    pub file: &'a Path,
}

impl Named<'_> {
    pub fn error(&self, what: impl fmt::Display) -> FileError {
        FileError { key: self.key.clone(), file: self.file.to_path_buf(), what: what.to_string() }
    }

    /// The bytes of the file.
    pub fn bytes(&self) -> Result<Vec<u8>, FileError> {
        let length = std::fs::metadata(self.file).map_err(|error| self.error(error))?.len();
        if length > MAX_FILE {
            return Err(self.error(format_args!("is larger than {MAX_FILE} bytes")));
        }
        std::fs::read(self.file).map_err(|error| self.error(error))
    }

    fn certificates(&self, bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>, FileError> {
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(bytes).collect();
        let found = found.map_err(|error| self.error(error))?;
        if found.is_empty() {
            return Err(self.error("no certificate in this file"));
        }
        Ok(found)
    }
}

/// A certificate of the server, with what it says.
#[derive(Debug)]
pub(crate) struct ServerCertificate {
    pub certified: Arc<CertifiedKey>,
    /// Its DNS names, in lower case.
    pub names: Vec<String>,
    pub expiry: Expiry,
}

/// Reads a certificate and its key.
pub(crate) fn certificate(
    cert: &Named<'_>,
    key: &Named<'_>,
    provider: &CryptoProvider,
) -> Result<ServerCertificate, FileError> {
    let chain = cert.certificates(&cert.bytes()?)?;
    let key_bytes = key.bytes()?;
    let private = PrivateKeyDer::from_pem_slice(&key_bytes).map_err(|error| match error {
        rustls::pki_types::pem::Error::NoItemsFound => key.error("no private key in this file"),
        error => key.error(error),
    })?;
    let (_, own) = X509Certificate::from_der(&chain[0]).map_err(|error| cert.error(error))?;
    let expiry = Expiry {
        file: cert.file.to_path_buf(),
        subject: rfc4514(own.subject()),
        not_before: own.validity().not_before.timestamp(),
        not_after: own.validity().not_after.timestamp(),
        kind: "certificate",
    };
    let names = dns_names(&own).map_err(|what| cert.error(what))?;
    let certified = CertifiedKey::from_der(chain, private, provider).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => {
            key.error(format_args!("is not the key of the certificate in {}", cert.file.display()))
        }
        error => key.error(error),
    })?;
    Ok(ServerCertificate { certified: Arc::new(certified), names, expiry })
}

fn dns_names(certificate: &X509Certificate<'_>) -> Result<Vec<String>, String> {
    let names = certificate.subject_alternative_name().map_err(|error| error.to_string())?;
    let mut found: Vec<String> = Vec::new();
    for name in names.iter().flat_map(|names| &names.value.general_names) {
        if let GeneralName::DNSName(name) = name {
            let name = name.to_ascii_lowercase();
            if !found.contains(&name) {
                found.push(name);
            }
        }
    }
    Ok(found)
}

/// The authorities that sign client certificates. `bytes`: the content of the file.
pub(crate) fn authorities(
    ca: &Named<'_>,
    bytes: &[u8],
    expiries: &mut Vec<Expiry>,
) -> Result<RootCertStore, FileError> {
    let mut roots = RootCertStore::empty();
    for certificate in ca.certificates(bytes)? {
        let (_, parsed) = X509Certificate::from_der(&certificate).map_err(|error| ca.error(error))?;
        expiries.push(Expiry {
            file: ca.file.to_path_buf(),
            subject: rfc4514(parsed.subject()),
            not_before: parsed.validity().not_before.timestamp(),
            not_after: parsed.validity().not_after.timestamp(),
            kind: "client-ca",
        });
        roots.add(certificate.clone()).map_err(|error| ca.error(error))?;
    }
    Ok(roots)
}

/// Revocation lists. `bytes`: the content of the file.
pub(crate) fn revocation_lists(
    crl: &Named<'_>,
    bytes: &[u8],
    expiries: &mut Vec<Expiry>,
) -> Result<Vec<CertificateRevocationListDer<'static>>, FileError> {
    let lists: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(bytes).collect();
    let lists = lists.map_err(|error| crl.error(error))?;
    if lists.is_empty() {
        return Err(crl.error("no revocation list in this file"));
    }
    for list in &lists {
        let (_, parsed) = CertificateRevocationList::from_der(list).map_err(|error| crl.error(error))?;
        if let Some(next) = parsed.next_update() {
            expiries.push(Expiry {
                file: crl.file.to_path_buf(),
                subject: rfc4514(parsed.issuer()),
                not_before: parsed.last_update().timestamp(),
                not_after: next.timestamp(),
                kind: "client-crl",
            });
        }
    }
    Ok(lists)
}
