//! The `Host` header of a request (RFC 9110, section 7.2; RFC 9112, section 3.2).

use http::header::HOST;
use http::{HeaderMap, Version};

/// Why a request is answered 400 because of its `Host`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostError {
    Missing,
    Repeated,
    Invalid,
}

impl HostError {
    pub(crate) fn detail(self) -> &'static str {
        match self {
            HostError::Missing => "an HTTP/1.1 request needs a Host header",
            HostError::Repeated => "the request has more than one Host header",
            HostError::Invalid => "the Host header is not a host with an optional port",
        }
    }
}

/// Checks that the header is there where HTTP/1.1 needs it, at most once, and valid.
#[inline]
pub(crate) fn check(version: Version, headers: &HeaderMap) -> Result<(), HostError> {
    let mut hosts = headers.get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (None, _) if version == Version::HTTP_11 => Err(HostError::Missing),
        (None, _) => Ok(()),
        (Some(_), Some(_)) => Err(HostError::Repeated),
        (Some(host), None) if is_valid(host.as_bytes()) => Ok(()),
        (Some(_), None) => Err(HostError::Invalid),
    }
}

/// Whether this is `uri-host [ ":" port ]`, the host not empty.
pub(crate) fn is_valid(host: &[u8]) -> bool {
    let (name, port) = match host {
        [b'[', rest @ ..] => {
            let Some(end) = rest.iter().position(|byte| *byte == b']') else { return false };
            let (address, after) = (&rest[..end], &rest[end + 1..]);
            let is_address = |byte: &u8| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.');
            if address.is_empty() || !address.iter().all(is_address) {
                return false;
            }
            match after {
                [] => return true,
                [b':', port @ ..] => (address, port),
                _ => return false,
            }
        }
        _ => match host.iter().position(|byte| *byte == b':') {
            Some(colon) if host[..colon].iter().all(is_name) => (&host[..colon], &host[colon + 1..]),
            Some(_) => return false,
            None => return !host.is_empty() && host.iter().all(is_name),
        },
    };
    // RFC 3986 allows an empty port.
    !name.is_empty() && port.len() <= 5 && port.iter().all(u8::is_ascii_digit)
}

/// A character of a registered name (RFC 3986, section 3.2.2). Of a percent-encoding only the characters are checked.
#[inline]
fn is_name(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=".contains(byte)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn hosts_with_or_without_a_port() {
        for host in ["a", "a.example", "a:80", "127.0.0.1:8080", "[::1]", "[::1]:8080", "a_b", "xn--bcher-kva", "a:"] {
            assert!(is_valid(host.as_bytes()), "{host}");
        }
        for host in [
            "", ":80", "a b", "a/b", "a@b", "user:x@b", "a:b", "a:80:80", "a:123456", "[::1", "[]", "[::1]x", "[g]",
            "ü",
        ] {
            assert!(!is_valid(host.as_bytes()), "{host}");
        }
    }

    #[test]
    fn http_1_1_needs_exactly_one() {
        let headers = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            values.iter().for_each(|value| {
                headers.append(HOST, HeaderValue::from_static(value));
            });
            headers
        };
        assert_eq!(check(Version::HTTP_11, &headers(&[])), Err(HostError::Missing));
        assert_eq!(check(Version::HTTP_10, &headers(&[])), Ok(()));
        assert_eq!(check(Version::HTTP_2, &headers(&[])), Ok(()));
        assert_eq!(check(Version::HTTP_11, &headers(&["a"])), Ok(()));
        assert_eq!(check(Version::HTTP_2, &headers(&["a", "a"])), Err(HostError::Repeated));
        assert_eq!(check(Version::HTTP_11, &headers(&["a b"])), Err(HostError::Invalid));
    }
}
