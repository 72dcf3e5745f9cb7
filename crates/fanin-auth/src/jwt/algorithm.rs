//! Keys, each with the one kind of signature that it verifies.

use fanin_config::Algorithm;
use ring::hmac;
use ring::signature::{self, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey};

/// What a key is made of. The kind decides which algorithms it can be used with, whatever a token says.
#[derive(Debug)]
pub(crate) enum Material {
    /// Modulus and exponent, without leading zeros.
    Rsa {
        n: Vec<u8>,
        e: Vec<u8>,
    },
    /// A point of P-256, uncompressed.
    P256(Vec<u8>),
    /// A point of P-384, uncompressed.
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
    Secret(Vec<u8>),
}

impl Material {
    /// Whether a key of this kind can have made a signature of this algorithm.
    pub fn fits(&self, algorithm: Algorithm) -> bool {
        use Algorithm::*;
        match self {
            Material::Rsa { .. } => matches!(algorithm, RS256 | RS384 | RS512 | PS256 | PS384 | PS512),
            Material::P256(_) => algorithm == ES256,
            Material::P384(_) => algorithm == ES384,
            Material::Ed25519(_) => algorithm == EdDSA,
            Material::Secret(_) => algorithm.is_symmetric(),
        }
    }

    /// Whether the signature is one of this message by this key. False for an algorithm that does not fit.
    pub fn verifies(&self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        match self {
            Material::Rsa { n, e } => rsa(algorithm).is_some_and(|parameters| {
                RsaPublicKeyComponents { n, e }.verify(parameters, message, signature).is_ok()
            }),
            Material::P256(point) if algorithm == Algorithm::ES256 => {
                UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, point).verify(message, signature).is_ok()
            }
            Material::P384(point) if algorithm == Algorithm::ES384 => {
                UnparsedPublicKey::new(&signature::ECDSA_P384_SHA384_FIXED, point).verify(message, signature).is_ok()
            }
            Material::Ed25519(key) if algorithm == Algorithm::EdDSA => {
                UnparsedPublicKey::new(&signature::ED25519, key).verify(message, signature).is_ok()
            }
            Material::Secret(secret) => hash(algorithm)
                .is_some_and(|hash| hmac::verify(&hmac::Key::new(hash, secret), message, signature).is_ok()),
            _ => false,
        }
    }
}

fn rsa(algorithm: Algorithm) -> Option<&'static RsaParameters> {
    Some(match algorithm {
        Algorithm::RS256 => &signature::RSA_PKCS1_2048_8192_SHA256,
        Algorithm::RS384 => &signature::RSA_PKCS1_2048_8192_SHA384,
        Algorithm::RS512 => &signature::RSA_PKCS1_2048_8192_SHA512,
        Algorithm::PS256 => &signature::RSA_PSS_2048_8192_SHA256,
        Algorithm::PS384 => &signature::RSA_PSS_2048_8192_SHA384,
        Algorithm::PS512 => &signature::RSA_PSS_2048_8192_SHA512,
        _ => return None,
    })
}

fn hash(algorithm: Algorithm) -> Option<hmac::Algorithm> {
    Some(match algorithm {
        Algorithm::HS256 => hmac::HMAC_SHA256,
        Algorithm::HS384 => hmac::HMAC_SHA384,
        Algorithm::HS512 => hmac::HMAC_SHA512,
        _ => return None,
    })
}
