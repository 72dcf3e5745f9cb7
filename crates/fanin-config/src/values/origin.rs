//! Web origins: scheme, host and port of a page, as browsers send them (RFC 6454).

use std::fmt;

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

/// Origins that are named together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OriginPattern {
    /// `*`: every one, also those without a name.
    Any,
    /// This one, in its one spelling.
    One(Box<str>),
    /// `https://*.shop.example`: every subdomain.
    Below {
        /// `http` or `https`.
        scheme: Box<str>,
        /// Host, and port if there is one.
        domain: Box<str>,
    },
}

impl OriginPattern {
    /// Whether an origin is among them. Browsers send origins in their one spelling.
    pub fn matches(&self, origin: &str) -> bool {
        match self {
            OriginPattern::Any => true,
            OriginPattern::One(one) => **one == *origin,
            OriginPattern::Below { scheme, domain } => {
                let rest = origin.strip_prefix(&**scheme).and_then(|rest| rest.strip_prefix("://"));
                let labels = rest.and_then(|rest| rest.strip_suffix(&**domain)).and_then(|host| host.strip_suffix('.'));
                let of_label = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
                labels.is_some_and(|labels| !labels.is_empty() && labels.bytes().all(of_label))
            }
        }
    }
}

impl fmt::Display for OriginPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OriginPattern::Any => f.write_str("*"),
            OriginPattern::One(origin) => f.write_str(origin),
            OriginPattern::Below { scheme, domain } => write!(f, "{scheme}://*.{domain}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_subdomains_and_nothing_else() {
        let below = OriginPattern::Below { scheme: "https".into(), domain: "shop.example:8443".into() };
        for (origin, matches) in [
            ("https://a.shop.example:8443", true),
            ("https://a.b.shop.example:8443", true),
            ("https://shop.example:8443", false),
            ("https://.shop.example:8443", false),
            ("https://evilshop.example:8443", false),
            ("http://a.shop.example:8443", false),
            ("https://a.shop.example", false),
            ("https://a.shop.example:8443.evil.example", false),
            ("https://evil.example/.shop.example:8443", false),
            ("https://evil.example#.shop.example:8443", false),
            ("https://user@a.shop.example:8443", false),
            ("null", false),
        ] {
            assert_eq!(below.matches(origin), matches, "{origin}");
        }
        assert!(OriginPattern::Any.matches("null"));
        assert!(OriginPattern::One("https://a.example".into()).matches("https://a.example"));
        assert!(!OriginPattern::One("https://a.example".into()).matches("https://a.example.evil"));
        assert_eq!(below.to_string(), "https://*.shop.example:8443");
    }

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
