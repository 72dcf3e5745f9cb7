//! Hosts of routes: names that a request's `Host` is compared with.

use std::fmt;

/// Which hosts a route is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HostPattern {
    /// This host: `"shop.example.com"`. In lower case, without a port.
    Exact(String),
    /// Every host below a domain, at any depth, but not the domain itself: `"*.example.com"`. The text begins with the dot.
    Below(String),
}

impl HostPattern {
    /// Reads a name, or `*.` and a domain.
    pub(crate) fn parse(text: &str) -> Result<HostPattern, String> {
        let lower = text.to_ascii_lowercase();
        if text.contains("://") || text.contains('/') {
            return Err(format!("`{text}` is no host; write only the name, such as \"shop.example.com\""));
        }
        if lower.starts_with('[') {
            let is_address = lower.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
            return match is_address.is_some_and(|address| address.parse::<std::net::Ipv6Addr>().is_ok()) {
                true => Ok(HostPattern::Exact(lower)),
                false => Err(format!("`{text}` is no address; write an IPv6 address in brackets, without a port")),
            };
        }
        if text.contains(':') {
            return Err(format!("`{text}` has a port; write the name only: a route serves all ports"));
        }
        let (name, is_below) = match lower.strip_prefix("*.") {
            Some(rest) => (rest, true),
            None => (&*lower, false),
        };
        let is_label = |label: &str| {
            !label.is_empty()
                && label.len() <= 63
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
        };
        if name.len() > 253 || !name.split('.').all(is_label) {
            let hint = match (text.is_ascii(), name.contains('*')) {
                (false, _) => "write it in its ASCII form, such as \"xn--bcher-kva.example\"",
                (_, true) => "a `*` stands for whole labels in front: \"*.example.com\"",
                _ => "write a name such as \"shop.example.com\", or \"*.example.com\"",
            };
            return Err(format!("`{text}` is no host; {hint}"));
        }
        Ok(if is_below { HostPattern::Below(format!(".{name}")) } else { HostPattern::Exact(lower) })
    }

    /// Whether it is this host, which is in lower case and has no port.
    pub fn matches(&self, host: &str) -> bool {
        match self {
            HostPattern::Exact(name) => name == host,
            HostPattern::Below(domain) => host.len() > domain.len() && host.ends_with(&**domain),
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostPattern::Exact(name) => f.write_str(name),
            HostPattern::Below(domain) => write!(f, "*{domain}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_domains() {
        let shop = HostPattern::parse("Shop.example.COM").expect("a host");
        assert!(shop.matches("shop.example.com") && !shop.matches("a.shop.example.com"));
        assert_eq!(shop.to_string(), "shop.example.com");
        let below = HostPattern::parse("*.example.com").expect("a domain");
        for (host, is_below) in [("a.example.com", true), ("a.b.example.com", true), ("example.com", false)] {
            assert_eq!(below.matches(host), is_below, "{host}");
        }
        assert!(!below.matches("badexample.com") && !below.matches(".example.com"));
        assert_eq!(below.to_string(), "*.example.com");
        for text in ["localhost", "127.0.0.1", "[::1]", "a_b"] {
            assert_eq!(HostPattern::parse(text), Ok(HostPattern::Exact(text.to_owned())));
        }
        for text in
            ["", "a..b", "a:80", "https://a", "a/b", "*", "a.*", "*a.b", "[::1]:80", "[x]", "bücher.example", "a b"]
        {
            assert!(HostPattern::parse(text).is_err(), "{text}");
        }
    }
}
