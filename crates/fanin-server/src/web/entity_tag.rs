//! Entity tags (RFC 9110, 8.8.3): names of a body's bytes.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderMap;
use http::header::{ETAG, HeaderValue};
use sha2::{Digest, Sha256};

use crate::Body;

/// Larger bodies have no tag: hashing them would hold the worker too long.
const MOST: usize = 1 << 20;
/// Bytes of the hash that a tag has: nobody finds two bodies with the same.
const LEN: usize = 16;

/// The strong tag of a whole body: a hash, so that who can choose bodies cannot make two with the same tag.
pub(super) fn of(body: &Body) -> Option<HeaderValue> {
    if body.is_stream() || body.len() > MOST {
        return None;
    }
    let mut hash = Sha256::new();
    body.pieces().for_each(|piece| hash.update(piece));
    let tag = URL_SAFE_NO_PAD.encode(&hash.finalize()[..LEN]);
    HeaderValue::from_str(&format!("\"{tag}\"")).ok()
}

/// Makes the tag weak: the bytes that are sent are no longer those that it names.
pub(super) fn weaken(headers: &mut HeaderMap) {
    let strong = headers.get(ETAG).filter(|tag| tag.as_bytes().starts_with(b"\""));
    if let Some(weak) = strong.and_then(|tag| HeaderValue::from_bytes(&[b"W/", tag.as_bytes()].concat()).ok()) {
        headers.insert(ETAG, weak);
    }
}

/// Whether a list of tags, or `*`, has this one. Weak and strong tags are the same here (RFC 9110, 8.8.3.2).
pub(crate) fn is_in<'a>(mut lists: impl Iterator<Item = &'a [u8]>, tag: &[u8]) -> bool {
    let opaque = |tag: &'a [u8]| tag.strip_prefix(b"W/").unwrap_or(tag);
    let wanted = tag.strip_prefix(b"W/").unwrap_or(tag);
    lists.any(|list| {
        let mut rest = list.trim_ascii();
        if rest == b"*" {
            return true;
        }
        // A tag may have commas in it, so the list is read tag by tag.
        while let Some(begin) = memchr::memchr(b'"', rest) {
            let Some(len) = memchr::memchr(b'"', &rest[begin + 1..]) else { return false };
            let end = begin + len + 2;
            if opaque(&rest[begin..end]) == wanted {
                return true;
            }
            rest = &rest[end..];
        }
        false
    })
}

/// Reads any list, for [`crate::fuzzing`].
pub(crate) fn fuzz(list: &[u8]) {
    let has = |tag: &[u8]| is_in(std::iter::once(list), tag);
    if has(b"\"\0 no client has this\"") {
        assert!(list.trim_ascii() == b"*" || list.contains(&0), "a tag that is not in the list");
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn a_tag_depends_on_the_bytes_and_not_on_the_pieces() {
        let text = vec![b'x'; 40_000];
        let whole = of(&Body::from(text.clone())).unwrap();
        let pieces: Vec<_> = text.chunks(20_000).map(Bytes::copy_from_slice).collect();
        assert_eq!(of(&Body::from(pieces)).unwrap(), whole);
        assert_eq!(whole.len(), LEN * 8 / 6 + 1 + 2);
        assert_ne!(of(&Body::from(text[1..].to_vec())).unwrap(), whole);
        assert!(of(&Body::from(vec![b'x'; MOST + 1])).is_none());
        assert!(of(&Body::empty()).is_some());
    }

    #[test]
    fn lists_of_tags() {
        for (list, has) in [
            ("\"a\"", true),
            ("W/\"a\"", true),
            ("\"b\", \"a\"", true),
            ("\"x,\", W/\"a\"", true),
            ("*", true),
            (" * ", true),
            ("\"b\"", false),
            ("\"x, a\"", false),
            ("a", false),
            ("\"a", false),
            ("", false),
            ("\"aa\"", false),
        ] {
            assert_eq!(is_in(std::iter::once(list.as_bytes()), b"\"a\""), has, "{list}");
            assert_eq!(is_in(std::iter::once(list.as_bytes()), b"W/\"a\""), has, "{list}");
        }
        assert!(is_in([&b"\"b\""[..], b"\"a\""].into_iter(), b"\"a\""));
    }

    #[test]
    fn a_tag_is_made_weak_once() {
        let mut headers = HeaderMap::new();
        weaken(&mut headers);
        assert!(headers.is_empty());
        for _ in 0..2 {
            headers.entry(ETAG).or_insert(HeaderValue::from_static("\"a\""));
            weaken(&mut headers);
            assert_eq!(headers[ETAG], "W/\"a\"");
        }
    }
}
