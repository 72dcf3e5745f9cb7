//! Web origins: scheme, host and port of a page, as browsers send them (RFC 6454).

/// A web origin in its one spelling: lower case, without the port that its scheme has anyway. `None`: it is none, or of another scheme than
/// http and https.
pub fn web_origin(text: &str) -> Option<String> {
    let text = text.to_ascii_lowercase();
    let (scheme, host) = text.split_once("://")?;
    let default = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => return None,
    };
    let host = host.strip_suffix(default).unwrap_or(host);
    let (name, port) = match host.rsplit_once(':') {
        // The address of IPv6 is in brackets.
        Some((name, port)) if !port.ends_with(']') => (name, Some(port)),
        _ => (host, None),
    };
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~[]:".contains(&byte);
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|number| number.to_string() == port);
    let is_valid = !name.is_empty()
        && name.bytes().all(is_name)
        && (!name.contains(':') || (name.starts_with('[') && name.ends_with(']')))
        && port.is_none_or(is_port);
    is_valid.then(|| format!("{scheme}://{host}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_has_one_spelling() {
        for (text, origin) in [
            ("https://Shop.example", "https://shop.example"),
            ("https://shop.example:443", "https://shop.example"),
            ("http://shop.example:80", "http://shop.example"),
            ("http://shop.example:443", "http://shop.example:443"),
            ("http://[::1]:8080", "http://[::1]:8080"),
            ("http://[::1]", "http://[::1]"),
            ("http://127.0.0.1:1", "http://127.0.0.1:1"),
        ] {
            assert_eq!(web_origin(text).as_deref(), Some(origin), "{text}");
        }
        for text in [
            "null",
            "",
            "shop.example",
            "ftp://shop.example",
            "https://",
            "https://:80",
            "https://shop.example/",
            "https://user@shop.example",
            "https://shop.example:x",
            "https://shop.example:",
            "https://shop.example:08",
            "https://shop.example:99999",
            "https://a:b:1",
            "https://*.example",
            "https://a b",
        ] {
            assert_eq!(web_origin(text), None, "{text}");
        }
    }
}
