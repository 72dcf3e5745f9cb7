//! What fuzz targets call.

use fanin_config::CertificateName;

use crate::ClientCertificate;

/// Reads bytes as a client certificate, and looks at all of it. Whether they are one.
pub fn client_certificate(bytes: &[u8]) -> bool {
    let Some(read) = ClientCertificate::parse(bytes) else { return false };
    let json = read.to_json();
    // A byte becomes at most six, and the names of its members are few.
    assert!(json.len() <= 24 * bytes.len() + 1024, "{} bytes from {}", json.len(), bytes.len());
    for uri in &read.uri {
        if let Ok(name @ CertificateName::Uri(_)) = CertificateName::parse(&format!("uri:{uri}")) {
            assert!(uri.ends_with("/*") || read.has(&name), "{uri}");
        }
    }
    read.has(&CertificateName::Fingerprint(read.fingerprint.clone()))
}
