//! What is known of a client that has presented a certificate.

use std::fmt::Write;
use std::net::IpAddr;

use fanin_config::CertificateName;
use ring::digest::{SHA256, digest};
use x509_parser::extensions::GeneralName;
use x509_parser::objects::{oid_registry, oid2abbrev};
use x509_parser::prelude::{AttributeTypeAndValue, FromDer, X509Certificate};
use x509_parser::x509::X509Name;

/// A client certificate that was verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    /// Its subject as in RFC 4514, the most specific part first: `CN=orders,O=Shop`.
    pub subject: String,
    /// Its issuer.
    pub issuer: String,
    /// Its serial number, hexadecimal.
    pub serial: String,
    /// The SHA-256 of it, hexadecimal.
    pub fingerprint: String,
    /// Seconds since 1970 until which it is valid.
    pub not_after: i64,
    /// Its DNS names.
    pub dns: Vec<String>,
    /// Its URIs, such as SPIFFE ids.
    pub uri: Vec<String>,
    /// Its email addresses.
    pub email: Vec<String>,
    /// Its IP addresses.
    pub ip: Vec<IpAddr>,
}

impl ClientCertificate {
    /// Reads a certificate. `None` if it is not one.
    pub fn parse(der: &[u8]) -> Option<ClientCertificate> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let mut found = ClientCertificate {
            subject: rfc4514(certificate.subject()),
            issuer: rfc4514(certificate.issuer()),
            serial: hex(number(certificate.raw_serial())),
            fingerprint: hex(digest(&SHA256, der).as_ref()),
            not_after: certificate.validity().not_after.timestamp(),
            dns: Vec::new(),
            uri: Vec::new(),
            email: Vec::new(),
            ip: Vec::new(),
        };
        let names = certificate.subject_alternative_name().ok()?;
        for name in names.iter().flat_map(|names| &names.value.general_names) {
            match name {
                GeneralName::DNSName(name) => found.dns.push((*name).to_owned()),
                GeneralName::URI(name) => found.uri.push((*name).to_owned()),
                GeneralName::RFC822Name(name) => found.email.push((*name).to_owned()),
                GeneralName::IPAddress(bytes) => found.ip.extend(address(bytes)),
                _ => {}
            }
        }
        Some(found)
    }

    /// Whether it has a name.
    pub fn has(&self, name: &CertificateName) -> bool {
        match name {
            CertificateName::Subject(subject) => *subject == self.subject,
            CertificateName::Dns(_) => self.dns.iter().any(|of| name.is_dns(of)),
            CertificateName::Uri(_) => self.uri.iter().any(|of| name.is_uri(of)),
            CertificateName::Email(_) => self.email.iter().any(|of| name.is_email(of)),
            CertificateName::Ip(address) => self.ip.contains(address),
            CertificateName::Fingerprint(digits) => self.fingerprint == *digits,
        }
    }

    /// What flows see of it, as JSON. `not_after` is in milliseconds, as all times of flows.
    pub fn to_json(&self) -> String {
        let ClientCertificate { subject, issuer, serial, fingerprint, not_after, dns, uri, email, ip } = self;
        serde_json::json!({
            "subject": subject,
            "issuer": issuer,
            "serial": serial,
            "fingerprint": fingerprint,
            "not_after": not_after.saturating_mul(1000),
            "dns": dns,
            "uri": uri,
            "email": email,
            "ip": ip,
        })
        .to_string()
    }
}

/// A name as text. What separates its parts is escaped in values, so that no value looks like two.
pub(crate) fn rfc4514(name: &X509Name<'_>) -> String {
    let parts: Vec<_> = name.iter_rdn().collect();
    let mut text = String::new();
    for (at, part) in parts.iter().rev().enumerate() {
        for (of, attribute) in part.iter().enumerate() {
            if of > 0 {
                text.push('+');
            } else if at > 0 {
                text.push(',');
            }
            write_attribute(&mut text, attribute);
        }
    }
    text
}

fn write_attribute(text: &mut String, attribute: &AttributeTypeAndValue<'_>) {
    match oid2abbrev(attribute.attr_type(), oid_registry()) {
        Ok(name) => text.push_str(name),
        Err(_) => text.push_str(&attribute.attr_type().to_id_string()),
    }
    text.push('=');
    let Ok(value) = attribute.as_str() else {
        text.push('#');
        text.push_str(&hex(attribute.attr_value().data));
        return;
    };
    let last = value.chars().count().saturating_sub(1);
    for (at, char) in value.chars().enumerate() {
        match char {
            '"' | '+' | ',' | ';' | '<' | '>' | '\\' => text.extend(['\\', char]),
            '#' if at == 0 => text.push_str("\\#"),
            ' ' if at == 0 || at == last => text.push_str("\\ "),
            char if char.is_control() => {
                let mut bytes = [0; 4];
                for byte in char.encode_utf8(&mut bytes).bytes() {
                    // Writing to a string cannot fail.
                    let _ = write!(text, "\\{byte:02X}");
                }
            }
            char => text.push(char),
        }
    }
}

/// A whole number without the zero in front that keeps it positive.
fn number(bytes: &[u8]) -> &[u8] {
    match bytes {
        [0, rest @ ..] if !rest.is_empty() => rest,
        bytes => bytes,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = || <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from);
    let v6 = || <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from);
    v4().or_else(v6)
}
