//! API keys: the file knows their hashes only.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use arcstr::ArcStr;
use ring::digest::{SHA256, digest};
use subtle::ConstantTimeEq;

use crate::identity::Identity;

/// Largest file.
const MAX_FILE: u64 = 16 << 20;

type Hash = [u8; 32];

/// The keys of one `[auth.NAME]`.
///
/// Keys are random and long, so that a plain hash of one tells nothing. They are found by a part of the hash, which nobody can choose
/// without the key; the whole hash is compared in constant time.
#[derive(Debug, Default)]
pub(crate) struct ApiKeys(HashMap<u64, Vec<(Hash, Arc<Identity>)>>);

impl ApiKeys {
    pub fn load(file: &Path) -> Result<ApiKeys, String> {
        let name = file.display();
        let size = std::fs::metadata(file).map_err(|error| format!("{name} cannot be read: {error}"))?.len();
        if size > MAX_FILE {
            return Err(format!("{name} is larger than {MAX_FILE} bytes"));
        }
        let text = std::fs::read_to_string(file).map_err(|error| format!("{name} cannot be read: {error}"))?;
        ApiKeys::read(&text).map_err(|(line, why)| format!("{name}:{line}: {why}"))
    }

    /// Reads lines `NAME:HASH`. Empty ones, and those that begin with `#`, say nothing. An error has its line, and no part of a hash.
    fn read(text: &str) -> Result<ApiKeys, (usize, String)> {
        let mut keys = ApiKeys::default();
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |why: &str| (at + 1, why.to_owned());
            let (name, hash) = line.rsplit_once(':').ok_or_else(|| wrong("write NAME:HASH"))?;
            if name.is_empty() || name.chars().any(char::is_control) {
                return Err(wrong("the key has no name; write NAME:HASH"));
            }
            let hash = hex(hash).ok_or_else(|| wrong("the hash is not a SHA-256: it needs 64 hexadecimal digits"))?;
            if keys.find_hash(&hash).is_some() {
                return Err(wrong("the same key is in the file twice"));
            }
            let identity = Arc::new(Identity { principal: Some(ArcStr::from(name)), claims: None });
            keys.0.entry(index(&hash)).or_default().push((hash, identity));
        }
        Ok(keys)
    }

    /// Who has this key.
    pub fn find(&self, key: &str) -> Option<Arc<Identity>> {
        let hash: Hash = digest(&SHA256, key.as_bytes()).as_ref().try_into().ok()?;
        self.find_hash(&hash).cloned()
    }

    fn find_hash(&self, hash: &Hash) -> Option<&Arc<Identity>> {
        let alike = self.0.get(&index(hash))?;
        alike.iter().find(|(known, _)| bool::from(known.ct_eq(hash))).map(|(_, identity)| identity)
    }
}

fn index(hash: &Hash) -> u64 {
    hash.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn hex(text: &str) -> Option<Hash> {
    let digits = text.as_bytes();
    let mut hash = Hash::default();
    if digits.len() != 2 * hash.len() || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    for (at, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `printf secret | sha256sum` prints it.
    const HASH: &str = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

    #[test]
    fn a_key_is_found_by_its_hash() {
        let keys = ApiKeys::read(&format!("# partners\n\nshop:a:{HASH}\n")).unwrap();
        let found = keys.find("secret").expect("known");
        assert_eq!(found.principal.as_deref(), Some("shop:a"));
        for wrong in ["", "secre", "secret ", HASH] {
            assert!(keys.find(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn mistakes_name_their_line_and_no_hash() {
        let upper = HASH.to_uppercase();
        for (text, line, why) in [
            ("a".to_owned(), 1, "NAME:HASH"),
            (format!("\n:{HASH}"), 2, "no name"),
            ("a:1234".to_owned(), 1, "64 hexadecimal digits"),
            (format!("a:+{}", &HASH[1..]), 1, "64 hexadecimal digits"),
            (format!("a:{HASH}\nb:{upper}"), 2, "twice"),
        ] {
            let (at, error) = ApiKeys::read(&text).unwrap_err();
            assert!(at == line && error.contains(why) && !error.contains(&HASH[1..9]), "{text}: {at} {error}");
        }
    }
}
