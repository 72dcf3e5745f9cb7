//! What a TLS client needs: root certificates and its own, from files, or the roots of the system.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};

/// The newest first.
static VERSIONS: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];

/// Which of the files it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The root certificates.
    Ca,
    /// The client's own certificates.
    Cert,
    /// Their key.
    Key,
}

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileError {
    /// Which file.
    pub part: Part,
    /// What is wrong.
    pub what: String,
}

/// The configuration of a client. `ca`: a file of root certificates instead of those of the system. `identity`: the files of the client's own
/// certificates and of their key. `only_13`: no older version than TLS 1.3.
///
/// Reads files: called when a configuration is loaded, never for a connection.
///
/// # Errors
/// The first file that cannot be used.
pub fn client_config(
    ca: Option<&Path>,
    identity: Option<(&Path, &Path)>,
    only_13: bool,
) -> Result<ClientConfig, FileError> {
    let roots = match ca {
        Some(file) => custom_roots(file)?,
        None => system_roots()?,
    };
    let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_protocol_versions(if only_13 { &VERSIONS[..1] } else { &VERSIONS })
        .map_err(|error| FileError { part: Part::Ca, what: error.to_string() })?
        .with_root_certificates(roots);
    let Some((cert, key)) = identity else { return Ok(builder.with_no_client_auth()) };
    let chain = certificates(cert, Part::Cert)?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(|error| unusable(Part::Key, key, &error))?;
    builder.with_client_auth_cert(chain, key).map_err(|error| FileError { part: Part::Cert, what: error.to_string() })
}

/// The usable root certificates of the system.
pub fn system_certificates() -> Vec<CertificateDer<'static>> {
    let usable = |certificate: &CertificateDer<'static>| RootCertStore::empty().add(certificate.clone()).is_ok();
    rustls_native_certs::load_native_certs().certs.into_iter().filter(usable).collect()
}

fn unusable(part: Part, file: &Path, error: &dyn fmt::Display) -> FileError {
    FileError { part, what: format!("{}: {error}", file.display()) }
}

fn certificates(file: &Path, part: Part) -> Result<Vec<CertificateDer<'static>>, FileError> {
    let chain: Vec<_> = CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect)
        .map_err(|error| unusable(part, file, &error))?;
    if chain.is_empty() {
        return Err(unusable(part, file, &"no certificate in the file"));
    }
    Ok(chain)
}

fn custom_roots(file: &Path) -> Result<Arc<RootCertStore>, FileError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file, Part::Ca)? {
        roots.add(certificate).map_err(|error| unusable(Part::Ca, file, &error))?;
    }
    Ok(Arc::new(roots))
}

/// The system's root certificates. Read once, because there are hundreds.
fn system_roots() -> Result<Arc<RootCertStore>, FileError> {
    static ROOTS: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    let roots = ROOTS.get_or_init(|| {
        let mut roots = RootCertStore::empty();
        // System stores often contain single certificates that cannot be used.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        Arc::new(roots)
    });
    if roots.is_empty() {
        let what = "the system has no root certificates, name a file".to_owned();
        return Err(FileError { part: Part::Ca, what });
    }
    Ok(roots.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_used_is_named_with_its_part() {
        let missing = Path::new("/does/not/exist.pem");
        let error = client_config(Some(missing), None, false).unwrap_err();
        assert_eq!(error.part, Part::Ca);
        assert!(error.what.starts_with("/does/not/exist.pem: "), "{}", error.what);
        // A file without a certificate.
        let file = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"));
        let error = client_config(Some(file), None, true).unwrap_err();
        assert!(error.part == Part::Ca && error.what.ends_with("no certificate in the file"), "{}", error.what);
    }
}
