//! Sets of keys: JWK Sets (RFC 7517).

use bytes::Bytes;
use fanin_config::Algorithm;
use fanin_json::{Doc, Kind, Node};

use super::algorithm::Material;
use super::base64url;

/// Most keys of a set. A token without a key id is tried with each that fits.
const MAX_KEYS: usize = 64;

/// Largest JWK Set.
const MAX_SET: usize = 1 << 20;

/// Smallest modulus in bytes. RFC 7518 demands 2048 bits.
const MIN_MODULUS: usize = 256;

/// A key.
#[derive(Debug)]
pub(crate) struct Key {
    pub id: Option<Box<str>>,
    /// The algorithm that it is for, if the set says so.
    algorithm: Option<Algorithm>,
    pub material: Material,
}

impl Key {
    /// The key of a secret.
    pub fn secret(secret: &str) -> Key {
        Key { id: None, algorithm: None, material: Material::Secret(secret.as_bytes().to_vec()) }
    }

    /// Whether a token with this key id and algorithm may be one of this key.
    pub fn fits(&self, id: Option<&str>, algorithm: Algorithm) -> bool {
        let same_id = match (self.id.as_deref(), id) {
            (Some(own), Some(id)) => own == id,
            _ => true,
        };
        same_id && self.algorithm.is_none_or(|own| own == algorithm) && self.material.fits(algorithm)
    }
}

/// The usable keys of a set, and why others are not.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub keys: Vec<Key>,
    pub skipped: Vec<String>,
}

/// Reads a JWK Set. Keys that verify no signature, of other kinds, or too weak are left out.
///
/// # Errors
/// It is no JWK Set, or has no usable key.
pub(crate) fn read(text: Bytes) -> Result<Found, String> {
    if text.len() > MAX_SET {
        return Err(format!("it is larger than {MAX_SET} bytes"));
    }
    let doc = Doc::parse(text, 16).map_err(|error| format!("it is not JSON: {error}"))?;
    let list = doc.root().get("keys").filter(|keys| keys.kind() == Kind::Array);
    let list = list.ok_or("it is not a JWK Set: it has no list `keys`")?;
    let mut found = Found::default();
    for (at, jwk) in list.elements().enumerate() {
        if found.keys.len() == MAX_KEYS {
            found.skipped.push(format!("there are more than {MAX_KEYS} keys"));
            break;
        }
        match key(jwk) {
            Ok(key) => found.keys.push(key),
            Err(why) => found.skipped.push(format!("key {at}: {why}")),
        }
    }
    if found.keys.is_empty() {
        return Err(match found.skipped.as_slice() {
            [] => "it has no keys".to_owned(),
            why => format!("it has no usable key: {}", why.join("; ")),
        });
    }
    Ok(found)
}

fn key(jwk: Node<'_>) -> Result<Key, String> {
    let text = |name: &str| jwk.get(name).and_then(|value| value.as_str());
    let bytes = |name: &str| {
        let value = text(name).ok_or_else(|| format!("it has no `{name}`"))?;
        base64url(value.as_bytes()).ok_or_else(|| format!("`{name}` is not base64url"))
    };
    if text("use").is_some_and(|purpose| purpose != "sig") {
        return Err("it is not for signatures".into());
    }
    let verifies = |node: Node<'_>| node.elements().any(|operation| operation.as_str().as_deref() == Some("verify"));
    if jwk.get("key_ops").is_some_and(|operations| operations.kind() != Kind::Array || !verifies(operations)) {
        return Err("its `key_ops` do not have verify".into());
    }
    let kty = text("kty").ok_or("it has no `kty`")?;
    let point = |size: usize| {
        let (x, y) = (bytes("x")?, bytes("y")?);
        if x.len() != size || y.len() != size {
            return Err("its point has the wrong length".to_owned());
        }
        Ok([&[4][..], &x, &y].concat())
    };
    let curve = text("crv");
    let material = match (&*kty, curve.as_deref()) {
        ("RSA", _) => {
            let (n, e) = (without_zeros(bytes("n")?), without_zeros(bytes("e")?));
            if n.len() < MIN_MODULUS {
                return Err("its modulus has less than 2048 bits".into());
            }
            Material::Rsa { n, e }
        }
        ("EC", Some("P-256")) => Material::P256(point(32)?),
        ("EC", Some("P-384")) => Material::P384(point(48)?),
        ("OKP", Some("Ed25519")) => Material::Ed25519(bytes("x")?),
        // A secret in a published set is none.
        ("oct", _) => return Err("secrets are not taken from a JWK Set".into()),
        (kty, curve) => return Err(format!("{kty} {} is not supported", curve.unwrap_or_default())),
    };
    let algorithm = match text("alg") {
        None => None,
        Some(name) => match Algorithm::named(&name) {
            Some(algorithm) if material.fits(algorithm) => Some(algorithm),
            _ => return Err(format!("its algorithm {name} is not supported for this kind of key")),
        },
    };
    Ok(Key { id: text("kid").map(|id| (*id).into()), algorithm, material })
}

fn without_zeros(bytes: Vec<u8>) -> Vec<u8> {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    bytes[zeros..].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    const EC: &str = r#""kty":"EC","crv":"P-256","x":"04N0xi21hshyvBp7I167sbE_bXqyqkAPfefdklMO7wY","y":"UI8exy-C06a7DUnjIdENkxeFtHM4-l_41LqEw9nVgmw""#;

    fn set(keys: &str) -> Result<Found, String> {
        read(format!("{{\"keys\":[{keys}]}}").into())
    }

    #[test]
    fn keys_that_are_for_something_else_are_left_out() {
        let found =
            set(&format!("{{{EC},\"kid\":\"a\"}},{{{EC},\"use\":\"enc\"}},{{\"kty\":\"oct\",\"k\":\"c2VjcmV0\"}}"))
                .unwrap();
        assert_eq!(found.keys.len(), 1);
        assert!(found.keys[0].fits(Some("a"), Algorithm::ES256) && found.keys[0].fits(None, Algorithm::ES256));
        assert!(!found.keys[0].fits(Some("b"), Algorithm::ES256));
        // The kind of the key decides, not the token.
        for other in [Algorithm::HS256, Algorithm::RS256, Algorithm::ES384, Algorithm::EdDSA] {
            assert!(!found.keys[0].fits(Some("a"), other), "{other:?}");
            assert!(!found.keys[0].material.verifies(other, b"", b""));
        }
        assert_eq!(found.skipped, ["key 1: it is not for signatures", "key 2: secrets are not taken from a JWK Set"]);
    }

    #[test]
    fn a_key_for_one_algorithm_is_not_used_for_another() {
        let modulus = format!("{}A", "3".repeat(341));
        let found = set(&format!("{{\"kty\":\"RSA\",\"n\":\"{modulus}\",\"e\":\"AQAB\",\"alg\":\"PS256\"}}"));
        let found = found.unwrap_or_else(|why| panic!("{why}"));
        assert!(found.keys[0].fits(None, Algorithm::PS256) && !found.keys[0].fits(None, Algorithm::RS256));
    }

    #[test]
    fn what_is_no_usable_set_is_refused_with_a_reason() {
        let short = format!("{}A", "3".repeat(85));
        for (text, why) in [
            ("<html>".to_owned(), "not JSON"),
            ("[]".to_owned(), "no list `keys`"),
            ("{\"keys\":{}}".to_owned(), "no list `keys`"),
            ("{\"keys\":[]}".to_owned(), "it has no keys"),
            ("{\"keys\":[7]}".to_owned(), "no `kty`"),
            (format!("{{\"keys\":[{{\"kty\":\"RSA\",\"n\":\"{short}\",\"e\":\"AQAB\"}}]}}"), "less than 2048 bits"),
            ("{\"keys\":[{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"AA\",\"y\":\"AA\"}]}".to_owned(), "wrong length"),
            ("{\"keys\":[{\"kty\":\"EC\",\"crv\":\"secp256k1\"}]}".to_owned(), "not supported"),
            (format!("{{\"keys\":[{{{EC},\"alg\":\"HS256\"}}]}}"), "not supported for this kind"),
            (format!("{{\"keys\":[{{{EC},\"key_ops\":[\"sign\"]}}]}}"), "do not have verify"),
        ] {
            let error = read(text.clone().into()).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
