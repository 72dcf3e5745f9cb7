//! A kept response as the client gets it: whole, a 304, or a range (RFC 9110, 13 and 14).

use bytes::Bytes;
use http::header::{
    ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, DATE, ETAG,
    HeaderName, HeaderValue, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, LAST_MODIFIED, RANGE,
};
use http::{HeaderMap, StatusCode};
use tokio::time::Instant;

use super::freshness::date;
use super::stored::Stored;
use crate::web::has_tag;
use crate::{Body, Response};

/// Headers that describe a body, which a 304 has not.
const OF_THE_BODY: [HeaderName; 6] =
    [ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE];

/// The response to a request with these headers.
pub(super) fn reply(stored: &Stored, request: &HeaderMap, now: Instant) -> Response {
    let headers = stored.headers_at(now);
    let mut response = Response { status: stored.status, headers, ..Response::default() };
    if is_not_modified(stored.status, &stored.headers, request) {
        not_modified(&mut response);
        return response;
    }
    let range = request.get(RANGE).filter(|_| stored.status == StatusCode::OK && is_range_of_this(stored, request));
    match range.map(|range| Range::of(range.as_bytes(), stored.body.len())) {
        None | Some(Range::Whole) => response.body = Body::from(stored.body.clone()),
        Some(Range::Part(from, to)) => {
            response.status = StatusCode::PARTIAL_CONTENT;
            let range = format!("bytes {from}-{}/{}", to - 1, stored.body.len());
            response.body = Body::from(stored.body.slice(from..to));
            set(&mut response.headers, CONTENT_RANGE, &range);
        }
        Some(Range::Beyond) => {
            response.status = StatusCode::RANGE_NOT_SATISFIABLE;
            for name in &OF_THE_BODY {
                response.headers.remove(name);
            }
            set(&mut response.headers, CONTENT_RANGE, &format!("bytes */{}", stored.body.len()));
        }
    }
    response
}

fn set(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

/// Takes the body of a response, and what describes it.
pub(super) fn not_modified(response: &mut Response) {
    response.status = StatusCode::NOT_MODIFIED;
    response.body = Body::empty();
    for name in &OF_THE_BODY {
        response.headers.remove(name);
    }
}

/// Whether the client has the response already. A tag counts more than a time (RFC 9110, 13.2.2).
pub(super) fn is_not_modified(status: StatusCode, headers: &HeaderMap, request: &HeaderMap) -> bool {
    if status != StatusCode::OK {
        return false;
    }
    if request.contains_key(IF_NONE_MATCH) {
        return match headers.get(ETAG) {
            Some(tag) => has_tag(request, &IF_NONE_MATCH, tag),
            None => request.get_all(IF_NONE_MATCH).iter().any(|list| list.as_bytes().trim_ascii() == b"*"),
        };
    }
    let Some(since) = date(request, &IF_MODIFIED_SINCE) else { return false };
    let modified = date(headers, &LAST_MODIFIED).or_else(|| date(headers, &DATE));
    modified.is_some_and(|modified| modified <= since)
}

/// Whether a range is asked for of this response, and not of another one (RFC 9110, 13.1.5).
fn is_range_of_this(stored: &Stored, request: &HeaderMap) -> bool {
    let Some(wanted) = request.get(IF_RANGE) else { return true };
    let bytes = wanted.as_bytes();
    if bytes.starts_with(b"\"") || bytes.starts_with(b"W/") {
        return !bytes.starts_with(b"W/") && stored.headers.get(ETAG) == Some(wanted);
    }
    stored.headers.get(LAST_MODIFIED) == Some(wanted)
}

#[derive(Debug, PartialEq, Eq)]
enum Range {
    /// Not a single range of bytes: it is not obeyed.
    Whole,
    Part(usize, usize),
    Beyond,
}

impl Range {
    fn of(value: &[u8], len: usize) -> Range {
        let whole = || {
            let text = std::str::from_utf8(value).ok()?.trim();
            let (unit, set) = text.split_once('=')?;
            let (first, last) = set.trim().split_once('-').filter(|_| unit.trim().eq_ignore_ascii_case("bytes"))?;
            let number = |text: &str| match text.trim() {
                "" => Some(None),
                text if text.bytes().all(|byte| byte.is_ascii_digit()) => {
                    Some(Some(text.parse().unwrap_or(usize::MAX)))
                }
                _ => None,
            };
            Some(match (number(first)?, number(last)?) {
                (None, None) => return None,
                (None, Some(last)) if last == 0 || len == 0 => Range::Beyond,
                (None, Some(last)) => Range::Part(len.saturating_sub(last), len),
                (Some(first), Some(last)) if last < first => return None,
                (Some(first), _) if first >= len => Range::Beyond,
                (Some(first), last) => Range::Part(first, last.map_or(len, |last| last.saturating_add(1).min(len))),
            })
        };
        whole().unwrap_or(Range::Whole)
    }
}

/// Reads any range, for [`crate::fuzzing`]. Whether it is one.
pub(crate) fn fuzz(value: &[u8]) -> bool {
    for len in [0, 1, 1000] {
        if let Range::Part(from, to) = Range::of(value, len) {
            assert!(from < to && to <= len);
            assert!(!Bytes::from(vec![0; len]).slice(from..to).is_empty());
        }
    }
    Range::of(value, 1000) != Range::Whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        for (text, expected) in [
            ("bytes=0-1", Range::Part(0, 2)),
            ("bytes=1-", Range::Part(1, 10)),
            ("bytes=-3", Range::Part(7, 10)),
            ("bytes=-30", Range::Part(0, 10)),
            ("bytes=5-500", Range::Part(5, 10)),
            ("Bytes = 5 - 6", Range::Part(5, 7)),
            ("bytes=5-99999999999999999999999", Range::Part(5, 10)),
            ("bytes=10-", Range::Beyond),
            ("bytes=-0", Range::Beyond),
            ("bytes=2-1", Range::Whole),
            ("bytes=0-1,4-5", Range::Whole),
            ("bytes=-", Range::Whole),
            ("bytes=+1-2", Range::Whole),
            ("lines=0-1", Range::Whole),
            ("", Range::Whole),
        ] {
            assert_eq!(Range::of(text.as_bytes(), 10), expected, "{text}");
        }
    }
}
