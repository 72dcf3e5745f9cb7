//! The `Host` header of a request (RFC 9110, section 7.2; RFC 9112, section 3.2).

use std::borrow::Cow;

use http::header::HOST;
use http::{HeaderMap, Uri, Version};

/// Why a request is answered 400 because of its `Host`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostError {
    Missing,
    Repeated,
    Invalid,
    /// It is another one than `:authority` of the same request.
    Differs,
}

impl HostError {
    pub(crate) fn detail(self) -> &'static str {
        match self {
            HostError::Missing => "an HTTP/1.1 request needs a Host header",
            HostError::Repeated => "the request has more than one Host header",
            HostError::Differs => "the Host header and :authority differ",
            HostError::Invalid => "the Host header is not a host with an optional port",
        }
    }
}

/// Checks that the header is there where HTTP/1.1 needs it, at most once, and valid.
#[inline]
pub(crate) fn check(version: Version, target: &Uri, headers: &HeaderMap) -> Result<(), HostError> {
    let mut hosts = headers.get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (None, _) if version == Version::HTTP_11 => Err(HostError::Missing),
        (None, _) => Ok(()),
        (Some(_), Some(_)) => Err(HostError::Repeated),
        (Some(host), None) if !is_valid(host.as_bytes()) => Err(HostError::Invalid),
        // RFC 9113, section 8.3.1. In HTTP/1.1 an absolute target takes precedence (RFC 9112, section 3.2.2).
        (Some(host), None) if version == Version::HTTP_2 => match target.authority() {
            Some(authority) if !authority.as_str().as_bytes().eq_ignore_ascii_case(host.as_bytes()) => {
                Err(HostError::Differs)
            }
            _ => Ok(()),
        },
        (Some(_), None) => Ok(()),
    }
}

/// The host that a request is for, in lower case, without a port and without the dot of the root.
pub(crate) fn of<'r>(target: &'r Uri, headers: &'r HeaderMap) -> Option<Cow<'r, str>> {
    let host = match target.authority() {
        Some(authority) => authority.host(),
        None => without_port(headers.get(HOST)?.to_str().ok()?),
    };
    let host = host.strip_suffix('.').unwrap_or(host);
    Some(match host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        true => Cow::Owned(host.to_ascii_lowercase()),
        false => Cow::Borrowed(host),
    })
}

/// A valid host without its port.
fn without_port(host: &str) -> &str {
    match host.rfind(':') {
        Some(colon) if !host.ends_with(']') => &host[..colon],
        _ => host,
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
        let (path, absolute) = (Uri::from_static("/"), Uri::from_static("http://A.example:80/"));
        let check = |version, target: &Uri, hosts: &[&'static str]| check(version, target, &headers(hosts));
        assert_eq!(check(Version::HTTP_11, &path, &[]), Err(HostError::Missing));
        assert_eq!(check(Version::HTTP_10, &path, &[]), Ok(()));
        assert_eq!(check(Version::HTTP_2, &absolute, &[]), Ok(()));
        assert_eq!(check(Version::HTTP_11, &path, &["a"]), Ok(()));
        assert_eq!(check(Version::HTTP_2, &path, &["a", "a"]), Err(HostError::Repeated));
        assert_eq!(check(Version::HTTP_11, &path, &["a b"]), Err(HostError::Invalid));
        assert_eq!(check(Version::HTTP_2, &absolute, &["a.example:80"]), Ok(()));
        assert_eq!(check(Version::HTTP_2, &absolute, &["b.example"]), Err(HostError::Differs));
        assert_eq!(check(Version::HTTP_11, &absolute, &["b.example"]), Ok(()));
    }

    #[test]
    fn the_host_of_a_request() {
        let mut headers = HeaderMap::new();
        assert_eq!(of(&Uri::from_static("/"), &headers), None);
        for (sent, host) in
            [("Shop.Example:8080", "shop.example"), ("a.", "a"), ("[::1]", "[::1]"), ("[::1]:80", "[::1]")]
        {
            headers.insert(HOST, HeaderValue::from_static(sent));
            assert_eq!(of(&Uri::from_static("/"), &headers).as_deref(), Some(host));
            assert_eq!(of(&Uri::from_static("http://Other.example:1/"), &headers).as_deref(), Some("other.example"));
        }
    }
}
