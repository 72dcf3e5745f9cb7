//! Conditions of a request for a file (RFC 9110, sections 13.2.2 and 14.2).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fanin_server::has_tag;
use http::header::{HeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE};
use http::{HeaderMap, HeaderValue};

/// What the conditions of a request mean.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The client has the file: 304.
    NotModified,
    /// The file is another one than the client names: 412.
    Failed,
    /// It is sent. `ranges`: parts of it, if the client asks for parts.
    Send { ranges: bool },
}

/// Evaluates the conditions for a file with this strong tag.
pub(super) fn evaluate(headers: &HeaderMap, tag: &HeaderValue, modified: SystemTime) -> Outcome {
    let modified = seconds(modified);
    let time = |name: &HeaderName| {
        let value = headers.get(name)?.to_str().ok()?;
        httpdate::parse_http_date(value).ok().map(seconds)
    };
    if headers.contains_key(IF_MATCH) {
        if !has_tag(headers, &IF_MATCH, tag) {
            return Outcome::Failed;
        }
    } else if time(&IF_UNMODIFIED_SINCE).is_some_and(|since| modified > since) {
        return Outcome::Failed;
    }
    if headers.contains_key(IF_NONE_MATCH) {
        if has_tag(headers, &IF_NONE_MATCH, tag) {
            return Outcome::NotModified;
        }
    } else if time(&IF_MODIFIED_SINCE).is_some_and(|since| modified <= since) {
        return Outcome::NotModified;
    }
    let ranges = match headers.get(IF_RANGE) {
        None => true,
        // Only a strong tag, or exactly the time, says that the parts fit together.
        Some(value) => value == tag || time(&IF_RANGE) == Some(modified),
    };
    Outcome::Send { ranges }
}

/// Dates in headers have whole seconds.
fn seconds(time: SystemTime) -> Duration {
    Duration::from_secs(time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_in_their_order() {
        let modified = UNIX_EPOCH + Duration::from_millis(1_000_000_500);
        let (then, before) = ("Mon, 12 Jan 1970 13:46:40 GMT", "Mon, 12 Jan 1970 13:46:39 GMT");
        let send = Outcome::Send { ranges: true };
        for (headers, expected) in [
            (vec![], send),
            (vec![("if-none-match", "\"a\"")], Outcome::NotModified),
            (vec![("if-none-match", "W/\"a\"")], Outcome::NotModified),
            (vec![("if-none-match", "\"b\""), ("if-modified-since", then)], Outcome::Send { ranges: true }),
            (vec![("if-modified-since", then)], Outcome::NotModified),
            (vec![("if-modified-since", before)], Outcome::Send { ranges: true }),
            (vec![("if-modified-since", "yesterday")], Outcome::Send { ranges: true }),
            (vec![("if-match", "\"b\"")], Outcome::Failed),
            (vec![("if-match", "*"), ("if-unmodified-since", before)], Outcome::Send { ranges: true }),
            (vec![("if-unmodified-since", before)], Outcome::Failed),
            (vec![("if-range", "\"a\"")], Outcome::Send { ranges: true }),
            (vec![("if-range", "W/\"a\"")], Outcome::Send { ranges: false }),
            (vec![("if-range", then)], Outcome::Send { ranges: true }),
            (vec![("if-range", "Mon, 12 Jan 1970 13:46:41 GMT")], Outcome::Send { ranges: false }),
        ] {
            let pairs =
                headers.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
            let map: HeaderMap = pairs.collect();
            assert_eq!(evaluate(&map, &HeaderValue::from_static("\"a\""), modified), expected, "{headers:?}");
        }
    }
}
