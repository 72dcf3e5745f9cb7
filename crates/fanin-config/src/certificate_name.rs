//! Names of client certificates, as routes allow them.

use std::fmt;
use std::net::IpAddr;

/// A name that a client certificate may have: `"uri:spiffe://example.org/shop/*"`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateName {
    /// `subject:CN=orders,O=Shop`: the whole subject.
    Subject(String),
    /// `dns:orders.internal`. `dns:*.internal` has one more label.
    Dns(String),
    /// `uri:spiffe://example.org/shop`. With `/*` at the end: everything below.
    Uri(String),
    /// `email:orders@example.org`. `email:*@example.org`: any of this domain.
    Email(String),
    /// `ip:10.0.0.7`.
    Ip(IpAddr),
    /// `fingerprint:` and the SHA-256 of the certificate, 64 hexadecimal digits.
    Fingerprint(String),
}

impl CertificateName {
    /// Parses the form of the file.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<CertificateName, String> {
        let forms = "subject:, dns:, uri:, email:, ip:, fingerprint:";
        let (kind, name) =
            text.split_once(':').ok_or_else(|| format!("`{text}` does not begin with one of {forms}"))?;
        if name.is_empty() {
            return Err(format!("`{text}` names nothing"));
        }
        let stars = name.matches('*').count();
        let no_star = |allowed: bool, form: &str| match stars {
            0 => Ok(()),
            1 if allowed => Ok(()),
            _ => Err(format!("`{text}`: a star may only stand {form}")),
        };
        Ok(match kind {
            "subject" => CertificateName::Subject(name.to_owned()),
            "dns" => {
                no_star(name.starts_with("*."), "for the first label, as in dns:*.example.org")?;
                CertificateName::Dns(name.to_ascii_lowercase())
            }
            "uri" => {
                no_star(name.ends_with("/*"), "behind the last slash, as in uri:spiffe://example.org/*")?;
                CertificateName::Uri(name.to_owned())
            }
            "email" => {
                no_star(name.starts_with("*@"), "before the @, as in email:*@example.org")?;
                CertificateName::Email(name.to_owned())
            }
            "ip" => CertificateName::Ip(name.parse().map_err(|_| format!("`{name}` is no IP address"))?),
            "fingerprint" => {
                let digits = name.replace(':', "").to_ascii_lowercase();
                if digits.len() != 64 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                    return Err(format!("`{name}` is no SHA-256 in hexadecimal digits"));
                }
                CertificateName::Fingerprint(digits)
            }
            _ => return Err(format!("`{kind}` is not one of {forms}")),
        })
    }

    /// Whether a DNS name of a certificate is this one.
    pub fn is_dns(&self, of: &str) -> bool {
        let CertificateName::Dns(wanted) = self else { return false };
        let of = of.to_ascii_lowercase();
        match wanted.strip_prefix("*.") {
            // A wildcard of the certificate names no client.
            _ if of.contains('*') => false,
            None => *wanted == of,
            Some(domain) => of.split_once('.').is_some_and(|(label, rest)| !label.is_empty() && rest == domain),
        }
    }

    /// Whether a URI of a certificate is this one, or below it. A URI with a dot segment is below nothing.
    pub fn is_uri(&self, of: &str) -> bool {
        let CertificateName::Uri(wanted) = self else { return false };
        match wanted.strip_suffix('*') {
            None => wanted == of,
            Some(folder) => of.strip_prefix(folder).is_some_and(|rest| {
                !rest.is_empty() && rest.split('/').all(|segment| !matches!(segment, "" | "." | ".."))
            }),
        }
    }

    /// Whether an email address of a certificate is this one.
    pub fn is_email(&self, of: &str) -> bool {
        let CertificateName::Email(wanted) = self else { return false };
        // The domain is a DNS name, the part before it is not (RFC 5280, 7.5).
        let same = |(local, domain): (&str, &str), (wanted, at): (&str, &str)| {
            (wanted == "*" || wanted == local) && domain.eq_ignore_ascii_case(at)
        };
        of.rsplit_once('@').zip(wanted.rsplit_once('@')).is_some_and(|(of, wanted)| same(of, wanted))
    }
}

impl fmt::Display for CertificateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CertificateName::Subject(name) => write!(f, "subject:{name}"),
            CertificateName::Dns(name) => write!(f, "dns:{name}"),
            CertificateName::Uri(name) => write!(f, "uri:{name}"),
            CertificateName::Email(name) => write!(f, "email:{name}"),
            CertificateName::Ip(address) => write!(f, "ip:{address}"),
            CertificateName::Fingerprint(digits) => write!(f, "fingerprint:{digits}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> CertificateName {
        CertificateName::parse(text).expect(text)
    }

    #[test]
    fn names_match_what_they_say_and_no_more() {
        let uri = name("uri:spiffe://example.org/shop/*");
        assert!(uri.is_uri("spiffe://example.org/shop/orders") && uri.is_uri("spiffe://example.org/shop/a/b"));
        for other in ["spiffe://example.org/shop", "spiffe://example.org/shop/", "spiffe://example.org/shops/a"] {
            assert!(!uri.is_uri(other), "{other}");
        }
        for other in
            ["spiffe://example.org/shop/../admin", "spiffe://example.org/shop//a", "https://example.org/shop/a"]
        {
            assert!(!uri.is_uri(other), "{other}");
        }
        assert!(name("uri:spiffe://a/b").is_uri("spiffe://a/b") && !name("uri:spiffe://a/b").is_uri("spiffe://a/b/c"));
        let dns = name("dns:*.Internal");
        assert!(dns.is_dns("orders.internal") && dns.is_dns("ORDERS.INTERNAL"));
        for other in ["internal", ".internal", "a.b.internal", "*.internal", "a.internal.evil"] {
            assert!(!dns.is_dns(other), "{other}");
        }
        assert!(name("email:*@Example.org").is_email("a@example.org"));
        assert!(!name("email:*@example.org").is_email("a@b@example.com"));
        assert!(name("email:Ann@example.org").is_email("Ann@EXAMPLE.org"));
        assert!(!name("email:Ann@example.org").is_email("ann@example.org"));
        assert!(!uri.is_dns("orders.internal") && !dns.is_uri("orders.internal"));
    }

    #[test]
    fn bad_names_are_refused() {
        for text in
            ["orders", "cn:orders", "dns:", "dns:a.*", "dns:*a.b", "uri:spiffe://a*", "uri:*", "email:*", "ip:a"]
        {
            assert!(CertificateName::parse(text).is_err(), "{text}");
        }
        assert!(CertificateName::parse("fingerprint:12").is_err());
        let text = format!("fingerprint:{}", "AB:".repeat(31) + "AB");
        assert_eq!(name(&text).to_string(), format!("fingerprint:{}", "ab".repeat(32)));
    }
}
