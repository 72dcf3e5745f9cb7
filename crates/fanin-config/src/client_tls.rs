//! `[upstreams.NAME.tls]`: TLS towards upstreams.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Serialize;

use crate::table::Table;
use crate::text;

/// `[upstreams.NAME.tls]`: whom to trust, who to be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClientTls {
    /// PEM file with the root certificates to trust, instead of the system's.
    #[serde(serialize_with = "text::optional_path", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub ca: Option<PathBuf>,
    /// PEM file with the certificate chain to show to the backend. Needs `key`.
    #[serde(serialize_with = "text::optional_path", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub cert: Option<PathBuf>,
    /// PEM file with the private key of `cert`.
    #[serde(serialize_with = "text::optional_path", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub key: Option<PathBuf>,
    /// Name that the backend's certificate must carry, where it is not the URL's host.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub server_name: Option<String>,
}

impl ClientTls {
    pub(crate) fn read(mut table: Table<'_, '_>) -> ClientTls {
        let tls = ClientTls {
            ca: table.path("ca"),
            cert: table.path("cert"),
            key: table.path("key"),
            server_name: table.text("server_name"),
        };
        if table.at("cert").is_some() != table.at("key").is_some() {
            let message = format!("{}: `cert` and `key` go together", table.name());
            table.reader().error(table.span(), message);
        }
        table.finish();
        tls
    }
}
