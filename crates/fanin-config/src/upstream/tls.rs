//! `[upstreams.NAME.tls]`, `[push.broker_tls]`: TLS towards upstreams and the broker.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Serialize;

use crate::reader::Table;
use crate::server_tls::{TlsVersion, TlsVersionText};
use crate::values::serialize;

/// `[upstreams.NAME.tls]`: TLS to an upstream. `[push.broker_tls]`: TLS to the broker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClientTls {
    /// PEM file with the root certificates to trust. Default: the system's.
    #[serde(serialize_with = "serialize::optional_path", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub ca: Option<PathBuf>,
    /// PEM file with the certificate chain that Fanin presents to the backend. Needs `key`.
    #[serde(serialize_with = "serialize::optional_path", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub cert: Option<PathBuf>,
    /// PEM file with the private key of `cert`.
    #[serde(serialize_with = "serialize::optional_path", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub key: Option<PathBuf>,
    /// Name that the backend's certificate must have. Default: the host of the URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub server_name: Option<String>,
    /// The lowest version of TLS that is used: `"1.2"` or `"1.3"`. Not for MySQL, and not for a collector over gRPC.
    #[schemars(with = "TlsVersionText")]
    pub min_version: TlsVersion,
}

impl ClientTls {
    pub(crate) fn read(mut table: Table<'_, '_>) -> ClientTls {
        let tls = ClientTls {
            ca: table.file("ca"),
            cert: table.file("cert"),
            key: table.file("key"),
            server_name: table.string("server_name"),
            min_version: table.choice("min_version", TlsVersion::CHOICES).unwrap_or_default(),
        };
        if table.has("cert") != table.has("key") {
            let message = format!("{}: `cert` and `key` need each other; set both or none", table.name());
            table.reader().error(table.span(), message);
        }
        table.finish();
        tls
    }
}
