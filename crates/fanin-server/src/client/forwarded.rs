//! The client of a request, as proxies name it in `X-Forwarded-For` or `Forwarded` (RFC 7239).
//!
//! Each proxy adds the address of whom it heard the request from, on the right. So the list is read from the right, as long as the
//! address that wrote an entry is trusted. Whatever stands further left may be made up by the client. Reading from the right also means
//! that no text of the client, such as an open quote, can change how a trusted entry is read.

use std::net::{IpAddr, SocketAddr};

use http::header::FORWARDED;
use http::{HeaderMap, HeaderName};

/// The client that trusted proxies name. `None`: the peer is not trusted, or names none.
pub(crate) fn client(
    headers: &HeaderMap,
    name: &HeaderName,
    peer: SocketAddr,
    trusts: impl Fn(IpAddr) -> bool,
) -> Option<SocketAddr> {
    if !headers.contains_key(name) || !trusts(peer.ip()) {
        return None;
    }
    let lines = headers.get_all(name).iter().rev().map(|value| value.as_bytes());
    walk(lines, name == FORWARDED, trusts)
}

/// The first entry from the right that is not trusted, or the last one that is readable. The lines come last one first.
pub(super) fn walk<'a>(
    lines: impl Iterator<Item = &'a [u8]>,
    is_forwarded: bool,
    trusts: impl Fn(IpAddr) -> bool,
) -> Option<SocketAddr> {
    let mut client = None;
    for mut line in lines {
        loop {
            let (rest, entry) = split_last(line, b',', is_forwarded);
            let entry = entry.trim_ascii();
            // RFC 9110, section 5.6.1: empty elements of a list count as absent.
            if !entry.is_empty() {
                let node = if is_forwarded { for_parameter(entry) } else { Some(entry) };
                let Some(address) = node.and_then(address) else { return client };
                client = Some(address);
                if !trusts(address.ip()) {
                    return client;
                }
            }
            match rest {
                Some(rest) => line = rest,
                None => break,
            }
        }
    }
    client
}

/// Splits at the last separator, one in quotes not counted.
fn split_last(text: &[u8], separator: u8, quotes: bool) -> (Option<&[u8]>, &[u8]) {
    let mut quoted = false;
    for at in (0..text.len()).rev() {
        match text[at] {
            b'"' if quotes && !(quoted && is_escaped(text, at)) => quoted = !quoted,
            byte if byte == separator && !quoted => return (Some(&text[..at]), &text[at + 1..]),
            _ => {}
        }
    }
    (None, text)
}

/// Whether an odd number of backslashes stands before it.
fn is_escaped(text: &[u8], at: usize) -> bool {
    text[..at].iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1
}

/// The value of the only `for` of a `Forwarded` element, without its quotes.
fn for_parameter(entry: &[u8]) -> Option<&[u8]> {
    let (mut rest, mut found) = (Some(entry), None);
    while let Some(text) = rest {
        let (before, pair) = split_last(text, b';', true);
        rest = before;
        let Some(equals) = pair.iter().position(|byte| *byte == b'=') else { continue };
        if pair[..equals].trim_ascii().eq_ignore_ascii_case(b"for") {
            // Two of them: the client may have written one.
            if found.is_some() {
                return None;
            }
            let value = pair[equals + 1..].trim_ascii();
            found = Some(value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value));
        }
    }
    found
}

/// An address with or without a port. Port 0 if there is none, or one that the proxy does not tell.
fn address(node: &[u8]) -> Option<SocketAddr> {
    let text = std::str::from_utf8(node).ok()?;
    let canonical = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
    let of_ip = |text: &str| text.parse::<IpAddr>().ok().map(|ip| canonical(SocketAddr::new(ip, 0)));
    let in_brackets = |text: &str| of_ip(text.strip_prefix('[')?.strip_suffix(']')?).filter(|_| text.contains(':'));
    let plain = |text: &str| of_ip(text).or_else(|| in_brackets(text));
    plain(text)
        .or_else(|| text.parse::<SocketAddr>().ok().map(canonical))
        .or_else(|| text.rsplit_once(":_").and_then(|(host, _)| plain(host)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trusts(address: IpAddr) -> bool {
        "10.0.0.0/8".parse::<fanin_config::Network>().unwrap().contains(address)
    }

    fn named(name: HeaderName, lines: &[&str]) -> Option<String> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(name.clone(), line.parse().unwrap());
        }
        client(&headers, &name, "10.0.0.1:5".parse().unwrap(), trusts).map(super::super::text)
    }

    fn list(lines: &[&str]) -> Option<String> {
        named(HeaderName::from_static("x-forwarded-for"), lines)
    }

    fn forwarded(lines: &[&str]) -> Option<String> {
        named(FORWARDED, lines)
    }

    #[test]
    fn a_list_is_read_from_the_right_over_trusted_addresses() {
        for (lines, client) in [
            (&["203.0.113.7"][..], "203.0.113.7"),
            (&["1.1.1.1, 203.0.113.7"], "203.0.113.7"),
            (&["1.1.1.1, 203.0.113.7, 10.1.1.1,10.2.2.2"], "203.0.113.7"),
            (&["1.1.1.1, 203.0.113.7", "10.1.1.1"], "203.0.113.7"),
            (&["203.0.113.7, , ", ""], "203.0.113.7"),
            (&["203.0.113.7:80"], "203.0.113.7:80"),
            (&["2001:db8::1"], "2001:db8::1"),
            (&["[2001:db8::1]:80"], "[2001:db8::1]:80"),
            (&["::ffff:203.0.113.7"], "203.0.113.7"),
            // All trusted: the one furthest away.
            (&["10.3.3.3, 10.2.2.2"], "10.3.3.3"),
            // What cannot be read ends the walk.
            (&["1.1.1.1, rubbish, 10.2.2.2"], "10.2.2.2"),
            (&["1.1.1.1, \", 10.2.2.2"], "10.2.2.2"),
        ] {
            assert_eq!(list(lines).as_deref(), Some(client), "{lines:?}");
        }
        for lines in [&[""][..], &["unknown"], &["1.1.1.1, -"], &["1.2.3"], &["[1.2.3.4]"], &["1.2.3.4:99999"]] {
            assert_eq!(list(lines), None, "{lines:?}");
        }
    }

    #[test]
    fn forwarded_is_read_from_the_right_too() {
        for (lines, client) in [
            (&["for=203.0.113.7"][..], "203.0.113.7"),
            (&["For=203.0.113.7;proto=http;by=10.0.0.1"], "203.0.113.7"),
            (&["for=1.1.1.1, proto=https;for=\"203.0.113.7:4711\", for=10.2.2.2"], "203.0.113.7:4711"),
            (&["for=\"[2001:db8:cafe::17]:4711\""], "[2001:db8:cafe::17]:4711"),
            (&["for=\"[2001:db8::1]\""], "2001:db8::1"),
            (&["for=\"203.0.113.7:_port\""], "203.0.113.7"),
            (&["for=203.0.113.7;x=\"a,b;for=1.1.1.1\\\",c\""], "203.0.113.7"),
            (&["for=203.0.113.7", "for=10.2.2.2"], "203.0.113.7"),
            // A quote that the client left open changes nothing.
            (&["for=\", for=203.0.113.7"], "203.0.113.7"),
            (&["for=\"\\, for=203.0.113.7"], "203.0.113.7"),
            (&["for=unknown, for=10.2.2.2"], "10.2.2.2"),
        ] {
            assert_eq!(forwarded(lines).as_deref(), Some(client), "{lines:?}");
        }
        for lines in [&["for=unknown"][..], &["for=_hidden"], &["by=1.1.1.1"], &["for=1.1.1.1;for=2.2.2.2"], &["for"]] {
            assert_eq!(forwarded(lines), None, "{lines:?}");
        }
    }

    #[test]
    fn who_is_not_trusted_names_nobody() {
        let name = HeaderName::from_static("x-forwarded-for");
        let headers = HeaderMap::from_iter([(name.clone(), "203.0.113.7".parse().unwrap())]);
        assert_eq!(client(&headers, &name, "192.0.2.1:5".parse().unwrap(), trusts), None);
    }
}
