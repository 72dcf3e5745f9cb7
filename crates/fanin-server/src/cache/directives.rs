//! `Cache-Control` of responses and of requests (RFC 9111, 5.2), and `CDN-Cache-Control` (RFC 9213).

use http::HeaderMap;
use http::header::{CACHE_CONTROL, HeaderName, HeaderValue, PRAGMA};

/// Larger numbers of seconds count as this (RFC 9111, 1.2.2).
const MOST_SECONDS: u64 = 1 << 31;

const CDN_CACHE_CONTROL: HeaderName = HeaderName::from_static("cdn-cache-control");

/// What a response says about its caching.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ResponseDirectives {
    pub(super) no_store: bool,
    /// Without field names: the whole response must be validated before each use.
    pub(super) no_cache: bool,
    pub(super) private: bool,
    /// Fields that `no-cache` or `private` name: a shared cache leaves them out.
    pub(super) without: Vec<HeaderName>,
    pub(super) public: bool,
    pub(super) must_revalidate: bool,
    pub(super) proxy_revalidate: bool,
    pub(super) must_understand: bool,
    pub(super) max_age: Option<u64>,
    pub(super) s_maxage: Option<u64>,
    pub(super) stale_while_revalidate: Option<u64>,
    pub(super) stale_if_error: Option<u64>,
    /// They are those of `CDN-Cache-Control`, which makes `Expires` void.
    pub(super) targeted: bool,
}

impl ResponseDirectives {
    pub(super) fn of(headers: &HeaderMap) -> ResponseDirectives {
        if let Some(targeted) = ResponseDirectives::targeted(headers) {
            return targeted;
        }
        let mut found = ResponseDirectives::default();
        for (name, argument) in lines(headers, &CACHE_CONTROL).flat_map(Directives) {
            found.set(name, argument, seconds(argument));
        }
        found
    }

    /// Those for CDNs, which a shared cache in front of a site obeys in place of the others (RFC 9213, 2.1 and 2.2). A field that is no
    /// dictionary of RFC 8941 is void.
    fn targeted(headers: &HeaderMap) -> Option<ResponseDirectives> {
        let mut found = ResponseDirectives { targeted: true, ..ResponseDirectives::default() };
        let mut any = false;
        for line in lines(headers, &CDN_CACHE_CONTROL) {
            for (name, argument) in Directives(line) {
                let is_key = name
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.*".contains(&byte))
                    && name.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase() || byte == b'*');
                let argument = argument.map(|argument| argument.split(';').next().unwrap_or(argument));
                if !is_key || !argument.is_none_or(is_item) {
                    return None;
                }
                let number = argument.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit())).and_then(digits);
                // A directive with a value of the wrong type is no directive.
                if is_timed(name) && number.is_none() {
                    continue;
                }
                any = true;
                found.set(name, argument, number.unwrap_or(0));
            }
        }
        any.then_some(found)
    }

    fn set(&mut self, name: &str, argument: Option<&str>, seconds: u64) {
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        // Of several values, the one that makes the response stale first counts (RFC 9111, 4.2.1).
        let least = |known: &mut Option<u64>| *known = Some(known.map_or(seconds, |known| known.min(seconds)));
        if is("max-age") {
            least(&mut self.max_age);
        } else if is("s-maxage") {
            least(&mut self.s_maxage);
        } else if is("stale-while-revalidate") {
            least(&mut self.stale_while_revalidate);
        } else if is("stale-if-error") {
            least(&mut self.stale_if_error);
        } else if is("no-store") {
            self.no_store = true;
        } else if is("no-cache") || is("private") {
            let names = argument.map(unquoted).filter(|names| !names.is_empty());
            match names {
                Some(names) => {
                    self.without.extend(names.split(',').filter_map(|name| name.trim().parse::<HeaderName>().ok()))
                }
                None if is("private") => self.private = true,
                None => self.no_cache = true,
            }
        } else if is("public") {
            self.public = true;
        } else if is("must-revalidate") {
            self.must_revalidate = true;
        } else if is("proxy-revalidate") {
            self.proxy_revalidate = true;
        } else if is("must-understand") {
            self.must_understand = true;
        }
    }

    /// Whether it may be kept although its request had credentials (RFC 9111, 3.5).
    pub(super) fn allows_credentials(&self) -> bool {
        self.public || self.must_revalidate || self.s_maxage.is_some()
    }
}

/// What a request says about its use of caches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RequestDirectives {
    pub(super) no_store: bool,
    pub(super) no_cache: bool,
    pub(super) only_if_cached: bool,
    pub(super) max_age: Option<u64>,
    pub(super) min_fresh: Option<u64>,
    /// However stale, if it has no value.
    pub(super) max_stale: Option<u64>,
}

impl RequestDirectives {
    pub(super) fn of(headers: &HeaderMap) -> RequestDirectives {
        let mut found = RequestDirectives::default();
        if !headers.contains_key(CACHE_CONTROL) {
            // RFC 9111, 5.4.
            found.no_cache =
                lines(headers, &PRAGMA).flat_map(Directives).any(|(name, _)| name.eq_ignore_ascii_case("no-cache"));
            return found;
        }
        for (name, argument) in lines(headers, &CACHE_CONTROL).flat_map(Directives) {
            let is = |known: &str| name.eq_ignore_ascii_case(known);
            if is("no-store") {
                found.no_store = true;
            } else if is("no-cache") {
                found.no_cache = true;
            } else if is("only-if-cached") {
                found.only_if_cached = true;
            } else if is("max-age") {
                found.max_age = Some(seconds(argument));
            } else if is("min-fresh") {
                found.min_fresh = Some(seconds(argument));
            } else if is("max-stale") {
                found.max_stale = Some(argument.map_or(MOST_SECONDS, |_| seconds(argument)));
            }
        }
        found
    }
}

/// The lines of a header that are text.
fn lines<'h>(headers: &'h HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'h str> + use<'h> {
    headers.get_all(name.clone()).iter().map(HeaderValue::as_bytes).filter_map(|line| std::str::from_utf8(line).ok())
}

/// Directives of a line: names, and arguments as they are written. A comma within quotes is a part of its argument.
struct Directives<'l>(&'l str);

impl<'l> Iterator for Directives<'l> {
    type Item = (&'l str, Option<&'l str>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if self.0.is_empty() {
                return None;
            }
            let (mut quoted, mut escaped) = (false, false);
            let end = self.0.bytes().position(|byte| {
                match (byte, escaped) {
                    (_, true) => escaped = false,
                    (b'\\', false) if quoted => escaped = true,
                    (b'"', false) => quoted = !quoted,
                    (b',', false) if !quoted => return true,
                    _ => {}
                }
                false
            });
            let (directive, rest) = end.map_or((self.0, ""), |end| (&self.0[..end], &self.0[end + 1..]));
            self.0 = rest;
            let directive = directive.trim();
            if directive.is_empty() {
                continue;
            }
            // Spaces around the equals sign make another name or another value, which nobody knows.
            return Some(match directive.split_once('=') {
                Some((name, argument)) => (name, Some(argument)),
                None => (directive, None),
            });
        }
    }
}

/// Seconds of an argument. One that is no number counts as 0: the response is stale then (RFC 9111, 4.2.1).
fn seconds(argument: Option<&str>) -> u64 {
    argument.map(unquoted).and_then(digits).unwrap_or(0)
}

/// A number, where larger ones than counted are the largest.
pub(super) fn digits(text: &str) -> Option<u64> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(text.parse().map_or(MOST_SECONDS, |number: u64| number.min(MOST_SECONDS)))
}

fn unquoted(text: &str) -> &str {
    text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text)
}

fn is_timed(name: &str) -> bool {
    matches!(name, "max-age" | "s-maxage" | "stale-while-revalidate" | "stale-if-error")
}

/// Whether a value can be an item of a structured field: a number, a string, a token, or a boolean.
fn is_item(text: &str) -> bool {
    let text = text.trim_end();
    match text.bytes().next() {
        Some(b'"') => text.len() >= 2 && text.ends_with('"'),
        Some(b'?') => matches!(text, "?0" | "?1"),
        Some(byte) if byte.is_ascii_digit() || byte == b'-' => {
            let number = text.strip_prefix('-').unwrap_or(text);
            let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
            digits(whole).is_some() && digits(fraction).is_some() && whole.len() <= 15 && fraction.len() <= 3
        }
        Some(byte) if byte.is_ascii_alphabetic() || byte == b'*' => {
            text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(&byte))
        }
        _ => false,
    }
}

/// Reads any line, for [`crate::fuzzing`]. Whether it has a directive.
pub(crate) fn fuzz(line: &[u8]) -> bool {
    let Ok(value) = HeaderValue::from_bytes(line) else { return false };
    let mut headers = HeaderMap::new();
    let mut any = false;
    for name in [CACHE_CONTROL, CDN_CACHE_CONTROL] {
        headers.insert(name, value.clone());
        let found = ResponseDirectives::of(&headers);
        assert!(found.max_age.is_none_or(|seconds| seconds <= MOST_SECONDS));
        let asked = RequestDirectives::of(&headers);
        assert!(asked.max_stale.is_none_or(|seconds| seconds <= MOST_SECONDS));
        any |= found != ResponseDirectives::default() || asked != RequestDirectives::default();
    }
    any
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(lines: &[&'static str]) -> ResponseDirectives {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(CACHE_CONTROL, HeaderValue::from_static(line));
        }
        ResponseDirectives::of(&headers)
    }

    #[test]
    fn directives_of_responses() {
        let found = response(&["Public, MAX-AGE=60 , s-maxage=\"5\"", "foo=\"max-age=1, no-store\", stale-if-error=7"]);
        assert!(found.public && !found.no_store && !found.targeted);
        assert_eq!((found.max_age, found.s_maxage, found.stale_if_error), (Some(60), Some(5), Some(7)));
        let found = response(&["private=\"x-a, X-B\", no-cache=set-cookie"]);
        assert!(!found.private && !found.no_cache);
        assert_eq!(found.without, ["x-a", "x-b", "set-cookie"]);
        assert!(response(&["private"]).private && response(&["no-cache"]).no_cache);
        for (text, seconds) in [
            ("max-age=003600", Some(3600)),
            ("max-age=99999999999999999999", Some(MOST_SECONDS)),
            ("max-age=-1", Some(0)),
            ("max-age='60'", Some(0)),
            ("max-age=60.5", Some(0)),
            ("max-age", Some(0)),
            ("max-age=60, max-age=5", Some(5)),
            ("max-age =60", None),
            ("max-age= 60", Some(0)),
            ("x=\"a\\\", max-age=60\"", None),
            ("", None),
        ] {
            assert_eq!(response(&[text]).max_age, seconds, "{text}");
        }
    }

    #[test]
    fn targeted_directives_take_precedence_if_they_are_valid() {
        let read = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("max-age=1"));
            headers.insert(CDN_CACHE_CONTROL, HeaderValue::from_static(text));
            ResponseDirectives::of(&headers)
        };
        let found = read("max-age=60, must-revalidate");
        assert!(found.targeted && found.must_revalidate);
        assert_eq!(found.max_age, Some(60));
        for void in ["max-age=&$60", "max-age=\"60\"", "Max-Age=60", ""] {
            assert!(!read(void).targeted, "{void}");
            assert_eq!(read(void).max_age, Some(1), "{void}");
        }
    }

    #[test]
    fn directives_of_requests() {
        let read = |name: HeaderName, text: &'static str| {
            RequestDirectives::of(&HeaderMap::from_iter([(name, HeaderValue::from_static(text))]))
        };
        let found = read(CACHE_CONTROL, "max-age=5, min-fresh=7, max-stale, only-if-cached");
        let expected = RequestDirectives {
            only_if_cached: true,
            max_age: Some(5),
            min_fresh: Some(7),
            max_stale: Some(MOST_SECONDS),
            ..RequestDirectives::default()
        };
        assert_eq!(found, expected);
        assert!(read(PRAGMA, "no-cache").no_cache && read(CACHE_CONTROL, "no-cache").no_cache);
        assert!(!read(PRAGMA, "foo").no_cache);
    }
}
