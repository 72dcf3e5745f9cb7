//! `[server.tls]`, `[models.tls]`: TLS of listeners.

use std::path::PathBuf;

use schemars::{JsonSchema, json_schema};
use serde::Serialize;

use crate::reader::Table;
use crate::schema::types::{self, leaf};
use crate::values::serialize;

leaf!(
    /// A version of TLS.
    TlsVersionText,
    json_schema!({ "anyOf": [{ "enum": ["1.2", "1.3"] }, types::variable()] })
);
leaf!(
    /// A protocol of ALPN.
    AlpnText,
    json_schema!({ "anyOf": [{ "enum": ["h2", "http/1.1"] }, types::variable()] })
);
leaf!(
    /// Whether clients present certificates.
    ClientCertificatesText,
    json_schema!({ "anyOf": [{ "enum": ["off", "optional", "required"] }, types::variable()] })
);

/// `[server.tls]`: TLS on `listen` of `[server]`. `[models.tls]`: TLS on `listen` of `[models]`.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServerTls {
    /// PEM file with the certificate chain, the server's own certificate first. Clients get this one if they name no host, or one that no
    /// certificate has.
    #[serde(serialize_with = "serialize::path")]
    #[schemars(with = "String")]
    pub cert: PathBuf,
    /// PEM file with the private key.
    #[serde(serialize_with = "serialize::path")]
    #[schemars(with = "String")]
    pub key: PathBuf,
    /// Further certificates: `[{ cert = "shop.pem", key = "shop-key.pem" }]`. Each is for the DNS names that it has, such as
    /// `shop.example` or `*.shop.example`, and chosen by the host that the client names. An exact name goes before a wildcard.
    pub certificates: Vec<Certificate>,
    /// The lowest version of TLS that clients may use: `"1.2"` or `"1.3"`.
    #[schemars(with = "TlsVersionText")]
    pub min_version: TlsVersion,
    /// Protocols offered by ALPN, the preferred one first.
    #[schemars(with = "types::OneOrMore<AlpnText>")]
    pub alpn: Vec<Alpn>,
    /// Whether clients present certificates. `"required"`: a client without one gets no connection. `"optional"`: it may present one, and
    /// routes decide. `"off"`: they cannot. A certificate that is presented must be valid.
    #[schemars(with = "ClientCertificatesText")]
    pub client_certificates: ClientCertificates,
    /// PEM file with the certificates of the authorities that sign client certificates. Needed unless `client_certificates` is `"off"`.
    #[serde(serialize_with = "serialize::optional_path", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub client_ca: Option<PathBuf>,
    /// PEM file with certificate revocation lists (CRL). There must be one of each authority in a client's chain. Client certificates on
    /// them are refused.
    #[serde(serialize_with = "serialize::optional_path", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub client_crl: Option<PathBuf>,
    /// Lets clients resume sessions, which spares both sides the costly part of a handshake.
    #[schemars(with = "types::Flag")]
    pub resumption: bool,
}

/// A certificate beside the default one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "ServerCertificate")]
#[serde(deny_unknown_fields)]
pub struct Certificate {
    /// PEM file with the certificate chain, the server's own certificate first.
    #[serde(serialize_with = "serialize::path")]
    #[schemars(with = "String")]
    pub cert: PathBuf,
    /// PEM file with the private key.
    #[serde(serialize_with = "serialize::path")]
    #[schemars(with = "String")]
    pub key: PathBuf,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum TlsVersion {
    /// TLS 1.2.
    #[default]
    #[serde(rename = "1.2")]
    V1_2,
    /// TLS 1.3.
    #[serde(rename = "1.3")]
    V1_3,
}

impl TlsVersion {
    pub(crate) const CHOICES: &[(&str, TlsVersion)] = &[("1.2", TlsVersion::V1_2), ("1.3", TlsVersion::V1_3)];
}

/// A protocol of ALPN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Alpn {
    /// HTTP/2.
    #[serde(rename = "h2")]
    H2,
    /// HTTP/1.1.
    #[serde(rename = "http/1.1")]
    Http1,
}

impl Alpn {
    /// Its name in the handshake.
    pub const fn name(self) -> &'static str {
        match self {
            Alpn::H2 => "h2",
            Alpn::Http1 => "http/1.1",
        }
    }
}

/// Whether clients present certificates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ClientCertificates {
    /// They cannot.
    #[default]
    Off,
    /// They may.
    Optional,
    /// They must.
    Required,
}

impl ServerTls {
    /// One certificate, and all defaults.
    pub fn new(cert: impl Into<PathBuf>, key: impl Into<PathBuf>) -> ServerTls {
        ServerTls {
            cert: cert.into(),
            key: key.into(),
            certificates: Vec::new(),
            min_version: TlsVersion::V1_2,
            alpn: vec![Alpn::H2, Alpn::Http1],
            client_certificates: ClientCertificates::Off,
            client_ca: None,
            client_crl: None,
            resumption: true,
        }
    }

    /// All files that it names.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        let more = self.certificates.iter().flat_map(|more| [&more.cert, &more.key]);
        [&self.cert, &self.key].into_iter().chain(more).chain(&self.client_ca).chain(&self.client_crl)
    }

    pub(crate) fn read(mut table: Table<'_, '_>) -> Option<ServerTls> {
        let own = pair(&mut table);
        let tables = table.tables("certificates");
        let certificates: Vec<Certificate> = tables
            .into_iter()
            .filter_map(|mut table| {
                let own = pair(&mut table);
                table.finish();
                own
            })
            .collect();
        let Certificate { cert, key } = own.clone().unwrap_or_default();
        let mut tls = ServerTls { certificates, ..ServerTls::new(cert, key) };
        tls.min_version = table.choice("min_version", TlsVersion::CHOICES).unwrap_or_default();
        let alpn = table.list("alpn", "\"h2\" or \"http/1.1\"", true, |text| match text {
            "h2" => Ok(Alpn::H2),
            "http/1.1" => Ok(Alpn::Http1),
            other => Err(format!("`{other}` is not one of h2, http/1.1")),
        });
        if let Some(found) = alpn {
            let mut alpn: Vec<Alpn> = Vec::new();
            for at in found {
                if alpn.contains(&at.value) {
                    table.reader().error(&at.span, format!("{}.alpn: {} occurs twice", table.name(), at.value.name()));
                } else {
                    alpn.push(at.value);
                }
            }
            if table.is_empty_list("alpn") {
                table.error("alpn", "is empty; name at least one protocol");
            }
            tls.alpn = alpn;
        }
        let choices = [
            ("off", ClientCertificates::Off),
            ("optional", ClientCertificates::Optional),
            ("required", ClientCertificates::Required),
        ];
        tls.client_certificates = table.choice("client_certificates", &choices).unwrap_or_default();
        tls.client_ca = table.file("client_ca");
        tls.client_crl = table.file("client_crl");
        let is_off = tls.client_certificates == ClientCertificates::Off;
        for key in ["client_ca", "client_crl"] {
            if is_off && table.has(key) && !table.has("client_certificates") {
                table.error(key, "needs `client_certificates = \"required\"` or \"optional\"");
            }
        }
        if !is_off && !table.has("client_ca") {
            table.missing("client_ca", "a PEM file with the authorities that sign client certificates");
        }
        tls.resumption = table.boolean("resumption").unwrap_or(true);
        table.finish();
        own.map(|_| tls)
    }
}

/// A certificate and its key.
fn pair(table: &mut Table<'_, '_>) -> Option<Certificate> {
    let (cert, key) = (table.file("cert"), table.file("key"));
    for name in ["cert", "key"] {
        if !table.has(name) {
            table.missing(name, "a PEM file's path");
        }
    }
    Some(Certificate { cert: cert?, key: key? })
}
