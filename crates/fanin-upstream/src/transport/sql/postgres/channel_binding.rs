//! Channel binding of SCRAM by the hash of the server's certificate: `tls-server-end-point` (RFC 5929, section 4).

use sha2::{Digest, Sha256, Sha384, Sha512};

/// The hash of a certificate (DER), by the algorithm of its signature. `None` for a signature without such an algorithm.
pub(super) fn tls_server_end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    // RSA with MD5, SHA-1, SHA-256, SHA-384, SHA-512.
    const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01];
    // ECDSA with SHA-1; with the family of SHA-2.
    const ECDSA_SHA1: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x01];
    const ECDSA: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03];
    let algorithm = signature_algorithm(certificate)?;
    let (last, family) = algorithm.split_last()?;
    Some(match (family, last) {
        // MD5 and SHA-1 are replaced by SHA-256.
        (RSA, 4 | 5 | 11) | (ECDSA, 2) => Sha256::digest(certificate).to_vec(),
        (RSA, 12) | (ECDSA, 3) => Sha384::digest(certificate).to_vec(),
        (RSA, 13) | (ECDSA, 4) => Sha512::digest(certificate).to_vec(),
        _ if algorithm == ECDSA_SHA1 => Sha256::digest(certificate).to_vec(),
        _ => return None,
    })
}

/// The object identifier of a certificate's signature algorithm, behind the part that is signed (RFC 5280, 4.1).
fn signature_algorithm(certificate: &[u8]) -> Option<&[u8]> {
    const SEQUENCE: u8 = 0x30;
    const OBJECT_IDENTIFIER: u8 = 0x06;
    let (certificate, _) = element(certificate, SEQUENCE)?;
    let (_, rest) = element(certificate, SEQUENCE)?;
    let (algorithm, _) = element(rest, SEQUENCE)?;
    Some(element(algorithm, OBJECT_IDENTIFIER)?.0)
}

/// The content of the element at the front, which has this tag, and what follows it.
fn element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&[found, length], rest) = bytes.split_first_chunk()?;
    let (length, rest) = match length {
        0..=0x7f => (usize::from(length), rest),
        // So many bytes of length follow.
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(length & 0x7f))?;
            (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    rest.split_at_checked(length).filter(|_| found == tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signature_decides_the_hash() {
        for (algorithm, size) in [
            (&rcgen::PKCS_ECDSA_P256_SHA256, Some(32)),
            (&rcgen::PKCS_ECDSA_P384_SHA384, Some(48)),
            (&rcgen::PKCS_ED25519, None),
        ] {
            let key = rcgen::KeyPair::generate_for(algorithm).unwrap();
            let certificate = rcgen::CertificateParams::new(["a".to_owned()]).unwrap().self_signed(&key).unwrap();
            let hash = tls_server_end_point(certificate.der());
            assert_eq!(hash.as_ref().map(Vec::len), size, "{algorithm:?}");
            // Anything shorter is no certificate.
            for end in 0..certificate.der().len() {
                assert_eq!(tls_server_end_point(&certificate.der()[..end]), None);
            }
        }
    }
}
