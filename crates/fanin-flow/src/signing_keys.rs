//! The keys of `[signing]`, and what is signed by them.

use std::path::PathBuf;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;

/// Fewer bytes in a key could be guessed.
const SHORTEST: usize = 32;
/// Stands in front of what is signed, so that no other use of the key makes such a signature.
const PURPOSE: &[u8] = b"fanin sign 1\0";

/// The keys of `[signing]`.
pub(crate) struct Keys(Vec<hmac::Key>);

impl Keys {
    /// Reads the files. Spaces and line ends around a key do not count.
    ///
    /// # Errors
    /// What is wrong with one of them.
    pub(crate) fn read(files: &[PathBuf]) -> Result<Arc<Keys>, String> {
        let key = |file: &PathBuf| {
            let bytes = std::fs::read(file).map_err(|error| format!("{} cannot be read: {error}", file.display()))?;
            let bytes = bytes.trim_ascii();
            match bytes.len() >= SHORTEST {
                true => Ok(hmac::Key::new(hmac::HMAC_SHA256, bytes)),
                false => Err(format!("the key in {} has fewer than {SHORTEST} bytes", file.display())),
            }
        };
        files.iter().map(key).collect::<Result<_, _>>().map(Keys).map(Arc::new)
    }

    /// What is signed: the lengths keep name and payload apart.
    fn message(name: &str, payload: &str) -> Vec<u8> {
        let length = (name.len() as u64).to_be_bytes();
        [PURPOSE, &length, name.as_bytes(), payload.as_bytes()].concat()
    }

    /// A signed text, made at a time in seconds.
    pub(crate) fn sign(&self, value: &str, name: &str, time: u64) -> Option<String> {
        let payload = format!("{}.{time:x}", URL_SAFE_NO_PAD.encode(value));
        let signature = hmac::sign(self.0.first()?, &Keys::message(name, &payload));
        Some(format!("{payload}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }

    /// The value and the time of a text that one of the keys has signed.
    pub(crate) fn verify(&self, text: &str, name: &str) -> Option<(String, u64)> {
        let (payload, signature) = text.rsplit_once('.')?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        let message = Keys::message(name, payload);
        // `ring` compares in constant time.
        self.0.iter().find(|key| hmac::verify(key, &message, &signature).is_ok())?;
        let (value, time) = payload.split_once('.')?;
        let value = String::from_utf8(URL_SAFE_NO_PAD.decode(value).ok()?).ok()?;
        Some((value, u64::from_str_radix(time, 16).ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(secrets: &[&str]) -> Keys {
        Keys(secrets.iter().map(|secret| hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes())).collect())
    }

    #[test]
    fn what_was_signed_comes_back_and_nothing_else() {
        let (old, new) = (keys(&["old"]), keys(&["new", "old"]));
        let text = old.sign("user 7 ü", "session", 1_000).expect("a key");
        assert_eq!(old.verify(&text, "session"), Some(("user 7 ü".to_owned(), 1_000)));
        assert_eq!(new.verify(&text, "session"), Some(("user 7 ü".to_owned(), 1_000)), "old keys still verify");
        assert_eq!(keys(&["new"]).verify(&text, "session"), None);
        assert_eq!(old.verify(&new.sign("a", "", 0).expect("a key"), ""), None, "the first key signs");
        assert_eq!(old.verify(&text, "other"), None, "the name is signed, too");
        for at in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            assert_eq!(old.verify(std::str::from_utf8(&changed).expect("ASCII"), "session"), None, "byte {at}");
        }
        for text in ["", ".", "..", "a.b.c", &text[1..], &text[..text.len() - 1]] {
            assert_eq!(old.verify(text, "session"), None, "{text}");
        }
        assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)), "fit for a cookie");
    }
}
