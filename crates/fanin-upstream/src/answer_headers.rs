//! An answer's headers, kept as bytes until they are read.
//!
//! A flow usually reads no header but the content type. Parsing the headers into a map would cost more than the rest of
//! a small call: two allocations, a hash for each name, a copy of each value.

use std::fmt;
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::sync::OnceLock;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};

use crate::headers::strip_hop_by_hop;

/// Most header lines of an answer; hyper allows as many.
pub(crate) const MAX_HEADERS: usize = 100;

/// An answer's headers without hop-by-hop headers (RFC 9110, 7.6.1). It derefs to a [`HeaderMap`], which is built when
/// it is first read. [`content_type`](Self::content_type) does without it.
#[derive(Clone)]
pub struct Headers {
    /// The answer's head as it was received and checked. Empty if there is only the map.
    head: Bytes,
    /// Position of the value of the first `content-type` in `head`. The end is 0 if there is none.
    content_type: (u32, u32),
    /// `head` has a `content-encoding`.
    encoded: bool,
    map: OnceLock<Box<HeaderMap>>,
}

impl Headers {
    /// `head` has been parsed before, with at most [`MAX_HEADERS`] lines.
    pub(crate) fn received(head: Bytes, content_type: (u32, u32), encoded: bool) -> Headers {
        Headers { head, content_type, encoded, map: OnceLock::new() }
    }

    /// The value of the first `content-type`.
    pub fn content_type(&self) -> Option<&[u8]> {
        let (start, end) = self.content_type;
        if !self.head.is_empty() {
            return if end > 0 { self.head.get(start as usize..end as usize) } else { None };
        }
        self.map.get()?.get(CONTENT_TYPE).map(HeaderValue::as_bytes)
    }

    /// Whether the body has a `content-encoding`.
    pub(crate) fn is_encoded(&self) -> bool {
        if !self.head.is_empty() {
            return self.encoded;
        }
        self.map.get().is_some_and(|map| map.contains_key(CONTENT_ENCODING))
    }

    /// The map by value.
    pub fn into_map(mut self) -> HeaderMap {
        let _made = self.map();
        self.map.take().map(|map| *map).unwrap_or_default()
    }

    fn map(&self) -> &HeaderMap {
        self.map.get_or_init(|| Box::new(parse(&self.head)))
    }
}

/// The head has been parsed before, so no name or value is invalid here.
#[cold]
fn parse(head: &[u8]) -> HeaderMap {
    let mut lines = [const { MaybeUninit::uninit() }; MAX_HEADERS];
    let mut response = httparse::Response::new(&mut []);
    let parser = httparse::ParserConfig::default();
    let _seen_before = parser.parse_response_with_uninit_headers(&mut response, head, &mut lines);
    let mut map = HeaderMap::with_capacity(response.headers.len());
    for line in response.headers.iter() {
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(line.name.as_bytes()), HeaderValue::from_bytes(line.value))
        {
            map.append(name, value);
        }
    }
    strip_hop_by_hop(&mut map);
    map
}

impl Deref for Headers {
    type Target = HeaderMap;

    fn deref(&self) -> &HeaderMap {
        self.map()
    }
}

impl From<HeaderMap> for Headers {
    fn from(map: HeaderMap) -> Headers {
        Headers { head: Bytes::new(), content_type: (0, 0), encoded: false, map: OnceLock::from(Box::new(map)) }
    }
}

impl Default for Headers {
    fn default() -> Headers {
        HeaderMap::new().into()
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.map().fmt(f)
    }
}

impl PartialEq for Headers {
    fn eq(&self, other: &Headers) -> bool {
        self.map() == other.map()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_becomes_a_map_when_it_is_read() {
        let head =
            b"HTTP/1.1 200 OK\r\nContent-Type: text/x\r\nKeep-Alive: 5\r\nSet-Cookie: a\r\nset-cookie: b\r\n\r\n";
        let headers = Headers::received(Bytes::from_static(head), (31, 37), false);
        assert_eq!(headers.content_type(), Some(&b"text/x"[..]));
        assert!(headers.map.get().is_none(), "the content type alone makes no map");
        assert_eq!(headers["content-type"], "text/x");
        assert_eq!(headers.get_all("set-cookie").iter().count(), 2);
        assert!(!headers.contains_key("keep-alive"));
        assert_eq!(headers.clone().into_map().len(), 3);
    }

    #[test]
    fn a_map_of_headers_is_kept() {
        let mut map = HeaderMap::new();
        assert_eq!(Headers::from(map.clone()).content_type(), None);
        map.insert(CONTENT_TYPE, HeaderValue::from_static("text/y"));
        let headers = Headers::from(map.clone());
        assert_eq!(headers.content_type(), Some(&b"text/y"[..]));
        assert_eq!(headers.into_map(), map);
        assert_eq!(Headers::default(), HeaderMap::new().into());
    }
}
