//! What makes two calls identical.

use std::sync::Arc;

use fanin_config::REQUEST_ID_HEADERS;
use http::{HeaderMap, HeaderName, HeaderValue};
use smallvec::SmallVec;

use crate::request::Request;

/// Headers that do not change an answer: traces, request ids, priority (RFC 9218). The header with the remaining time
/// is added later.
const LEFT_OUT: [&str; 9] = [
    "b3",
    "priority",
    "traceparent",
    "tracestate",
    "x-b3-flags",
    "x-b3-parentspanid",
    "x-b3-sampled",
    "x-b3-spanid",
    "x-b3-traceid",
];

/// A call's whole request without a fixed list of headers, so that no answer of one user reaches another. It is
/// compared as a whole, not by its hash.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RequestKey(Arc<[u8]>);

impl RequestKey {
    /// The key of a request.
    pub fn of(request: &Request) -> RequestKey {
        RequestKey::with(request, |_| {})
    }

    /// The key of a request that is not complete yet. `more` appends the rest.
    pub fn with(request: &Request, more: impl FnOnce(&mut Vec<u8>)) -> RequestKey {
        let mut key = Vec::with_capacity(request.path_and_query.len() + request.body.len() + 64);
        // Each piece carries its length, so that two different requests never have the same key.
        piece(&mut key, request.method.as_str().as_bytes());
        piece(&mut key, request.path_and_query.as_bytes());
        headers(&mut key, &request.headers);
        piece(&mut key, &request.body);
        more(&mut key);
        RequestKey(key.into())
    }

    /// Appends a piece to a key.
    pub fn piece(key: &mut Vec<u8>, bytes: &[u8]) {
        piece(key, bytes);
    }

    /// The parts that it was made of.
    #[must_use]
    pub fn parts(&self) -> Option<KeyParts<'_>> {
        let mut rest: &[u8] = &self.0;
        let (method, path_and_query) = (KeyParts::piece(&mut rest)?, KeyParts::piece(&mut rest)?);
        let headers = KeyParts::number(&mut rest)?;
        for _ in 0..headers * 2 {
            KeyParts::piece(&mut rest)?;
        }
        let body = KeyParts::piece(&mut rest)?;
        Some(KeyParts { method, path_and_query, body, rest })
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

/// What a key was made of, without the headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyParts<'a> {
    /// The HTTP method.
    pub method: &'a [u8],
    /// Path and query.
    pub path_and_query: &'a [u8],
    /// The body.
    pub body: &'a [u8],
    /// What was appended.
    pub rest: &'a [u8],
}

impl KeyParts<'_> {
    /// Takes a number.
    pub fn number(bytes: &mut &[u8]) -> Option<u64> {
        let (number, rest) = bytes.split_first_chunk()?;
        *bytes = rest;
        Some(u64::from_le_bytes(*number))
    }

    /// Takes a piece.
    pub fn piece<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
        let length = KeyParts::number(bytes)?;
        let (piece, rest) = bytes.split_at_checked(usize::try_from(length).ok()?)?;
        *bytes = rest;
        Some(piece)
    }
}

fn piece(key: &mut Vec<u8>, bytes: &[u8]) {
    key.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
    key.extend_from_slice(bytes);
}

fn headers(key: &mut Vec<u8>, headers: &HeaderMap) {
    let left_out = |name: &str| LEFT_OUT.contains(&name) || REQUEST_ID_HEADERS.contains(&name);
    let counts = |name: &HeaderName| !left_out(name.as_str());
    let mut all: SmallVec<[(&HeaderName, &HeaderValue); 8]> = headers.iter().filter(|(name, _)| counts(name)).collect();
    // A stable sort: several values of one header keep their order.
    all.sort_by(|a, b| a.0.as_str().cmp(b.0.as_str()));
    key.extend_from_slice(&(all.len() as u64).to_le_bytes());
    for (name, value) in all {
        piece(key, name.as_str().as_bytes());
        piece(key, value.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    fn request(pairs: &[(&'static str, &'static str)]) -> Request {
        let mut request = Request::get("/a?b=1");
        for (name, value) in pairs {
            request.headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        request
    }

    fn key(pairs: &[(&'static str, &'static str)]) -> RequestKey {
        RequestKey::of(&request(pairs))
    }

    #[test]
    fn traces_do_not_count_and_everything_else_does() {
        assert_eq!(
            key(&[("traceparent", "1"), ("x-request-id", "2"), ("correlation-id", "3"), ("priority", "u=1")]),
            key(&[])
        );
        assert_ne!(key(&[("authorization", "a")]), key(&[("authorization", "b")]));
        assert_ne!(key(&[("authorization", "a")]), key(&[]));
        assert_ne!(key(&[("cookie", "a")]), key(&[("x-cookie", "a")]));
        assert_eq!(key(&[("a", "1"), ("b", "2")]), key(&[("b", "2"), ("a", "1")]));
        assert_ne!(key(&[("a", "1"), ("a", "2")]), key(&[("a", "2"), ("a", "1")]));
        let other = [
            Request { method: Method::HEAD, ..request(&[]) },
            Request { path_and_query: "/a?b=2".into(), ..request(&[]) },
            Request { body: "x".into(), ..request(&[]) },
        ];
        for other in other {
            assert_ne!(RequestKey::of(&other), key(&[]));
        }
    }

    #[test]
    fn the_parts_of_a_key() {
        let mut request = request(&[("a", "1"), ("traceparent", "2")]);
        request.body = "x".into();
        let key = RequestKey::with(&request, |key| RequestKey::piece(key, b"more"));
        let parts = key.parts().unwrap();
        assert_eq!((parts.method, parts.path_and_query, parts.body), (&b"GET"[..], &b"/a?b=1"[..], &b"x"[..]));
        assert_eq!(KeyParts::piece(&mut { parts.rest }), Some(&b"more"[..]));
    }

    #[test]
    fn keys_of_different_pieces_differ() {
        assert_ne!(key(&[("a", "1b"), ("c", "2")]), key(&[("a", "1"), ("bc", "2")]));
        let with = |pieces: &[&str]| {
            RequestKey::with(&request(&[]), |key| pieces.iter().for_each(|one| RequestKey::piece(key, one.as_bytes())))
        };
        assert_ne!(with(&["ab", "c"]), with(&["a", "bc"]));
    }
}
