//! Which headers are sent and which are passed on.

use std::time::Duration;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};

/// Whether a header concerns one connection only (RFC 9110, 7.6.1, and the older `keep-alive` and `proxy-connection`).
/// Such headers are not passed on in either direction.
fn is_hop_by_hop(name: &HeaderName) -> bool {
    *name == header::CONNECTION
        || *name == header::TRANSFER_ENCODING
        || *name == header::UPGRADE
        || *name == header::TE
        || *name == header::TRAILER
        || *name == header::PROXY_AUTHENTICATE
        || *name == header::PROXY_AUTHORIZATION
        || name.as_str() == "keep-alive"
        || name.as_str() == "proxy-connection"
}

/// Headers that a request cannot set: those of the connection, the framing, the host.
pub(crate) fn is_ours(name: &HeaderName) -> bool {
    is_hop_by_hop(name) || *name == header::HOST || *name == header::CONTENT_LENGTH
}

/// The headers of one attempt: the upstream's own, `host` included, and the request's over them. A request cannot set
/// `host` or the message's framing, so that it cannot smuggle a second request.
pub(crate) fn outgoing(default_headers: &HeaderMap, request: &HeaderMap) -> HeaderMap {
    let mut headers = default_headers.clone();
    if request.is_empty() {
        return headers;
    }
    headers.reserve(request.keys_len());
    for name in request.keys() {
        if is_ours(name) {
            continue;
        }
        let mut values = request.get_all(name).iter();
        if let Some(first) = values.next() {
            headers.insert(name.clone(), first.clone());
        }
        for value in values {
            headers.append(name.clone(), value.clone());
        }
    }
    headers
}

/// Whole milliseconds, at least one: a call with no time left is not sent.
pub(crate) fn remaining(left: Duration) -> HeaderValue {
    HeaderValue::from(u64::try_from(left.as_millis()).unwrap_or(u64::MAX).max(1))
}

/// Removes hop-by-hop headers, and those that `connection` names.
pub(crate) fn strip_hop_by_hop(headers: &mut HeaderMap) {
    // Few answers have any, and a scan of the names is cheaper than hashing each possible name.
    if !headers.keys().any(is_hop_by_hop) {
        return;
    }
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named {
        headers.remove(name);
    }
    let present: Vec<HeaderName> = headers.keys().filter(|name| is_hop_by_hop(name)).cloned().collect();
    for name in present {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn a_request_cannot_set_its_framing() {
        let default_headers = map(&[("host", "a"), ("x-key", "ours")]);
        let sent = outgoing(
            &default_headers,
            &map(&[
                ("host", "evil"),
                ("content-length", "3"),
                ("transfer-encoding", "chunked"),
                ("connection", "close"),
                ("x-key", "1"),
                ("x-key", "2"),
            ]),
        );
        assert_eq!(sent, map(&[("host", "a"), ("x-key", "1"), ("x-key", "2")]));
    }

    #[test]
    fn hop_by_hop_headers_are_removed_with_those_that_connection_names() {
        let mut headers = map(&[
            ("connection", "close, x-hop"),
            ("x-hop", "1"),
            ("keep-alive", "timeout=5"),
            ("transfer-encoding", "chunked"),
            ("set-cookie", "a"),
            ("set-cookie", "b"),
        ]);
        strip_hop_by_hop(&mut headers);
        assert_eq!(headers, map(&[("set-cookie", "a"), ("set-cookie", "b")]));
    }

    #[test]
    fn remaining_time_is_never_zero() {
        assert_eq!(remaining(Duration::from_micros(10)), "1");
        assert_eq!(remaining(Duration::from_micros(2999)), "2");
    }
}
