//! `url`, `urls`, `http`, `query_lists` and `escaped_slashes` of an upstream.

use schemars::json_schema;
use serde::{Serialize, Serializer};
use url::Url;

use crate::reader::{Located, Table};
use crate::schema::types::{leaf, variable};

/// HTTP version of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpVersion {
    /// HTTP/1.1: one call at a time on a connection.
    Http1,
    /// HTTP/2: many calls on one connection. With TLS it is chosen by ALPN, without TLS by prior knowledge.
    Http2,
}

impl HttpVersion {
    /// The default of `max_connections`.
    pub const fn default_connections(self) -> usize {
        match self {
            HttpVersion::Http1 => 256,
            HttpVersion::Http2 => 4,
        }
    }

    pub(super) fn read(table: &mut Table<'_, '_>) -> Option<HttpVersion> {
        table.choice("http", &[("1", HttpVersion::Http1), ("2", HttpVersion::Http2)])
    }
}

impl Serialize for HttpVersion {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(match self {
            HttpVersion::Http1 => "1",
            HttpVersion::Http2 => "2",
        })
    }
}

leaf!(
    /// `"1"` or `"2"`.
    HttpVersionText,
    json_schema!({ "anyOf": [{ "enum": ["1", "2"] }, variable()] })
);

/// How a list in a query is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum QueryLists {
    /// The name once for each item: `ids=1&ids=2`.
    #[default]
    Repeat,
    /// The name once, the items separated by commas: `ids=1,2`.
    Comma,
}

impl QueryLists {
    pub(super) fn read(table: &mut Table<'_, '_>) -> Option<QueryLists> {
        table.choice("query_lists", &[("repeat", QueryLists::Repeat), ("comma", QueryLists::Comma)])
    }
}

leaf!(
    /// `"repeat"` or `"comma"`.
    QueryListsText,
    json_schema!({ "anyOf": [{ "enum": ["repeat", "comma"] }, variable()] })
);

/// What becomes of slashes within a segment of a call's path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum EscapedSlashes {
    /// The call is refused: a backend that decodes first would see another path.
    #[default]
    Refuse,
    /// They are sent as `%2F` and `%5C`.
    Encode,
}

impl EscapedSlashes {
    pub(super) fn read(table: &mut Table<'_, '_>) -> Option<EscapedSlashes> {
        table.choice("escaped_slashes", &[("refuse", EscapedSlashes::Refuse), ("encode", EscapedSlashes::Encode)])
    }
}

leaf!(
    /// `"refuse"` or `"encode"`.
    EscapedSlashesText,
    json_schema!({ "anyOf": [{ "enum": ["refuse", "encode"] }, variable()] })
);

/// Reads `url` or `urls`.
pub(super) fn read_urls(table: &mut Table<'_, '_>) -> Vec<Url> {
    let one = table.parsed("url", "a URL such as \"http://host:8080\"", parse_url);
    read_endpoints(table, "urls", one)
}

/// Reads the URLs of `key`, one or a list. `first` comes before them.
pub(super) fn read_endpoints(table: &mut Table<'_, '_>, key: &'static str, first: Option<Located<Url>>) -> Vec<Url> {
    let many = table.list(key, "a URL such as \"http://host:8080\"", true, parse_url);
    if many.as_ref().is_some_and(Vec::is_empty) && table.is_empty_list(key) {
        table.error(key, "must not be empty; an upstream needs at least one endpoint");
    }
    unique(table, first.into_iter().chain(many.into_iter().flatten()))
}

/// Reports endpoints that occur twice.
pub(super) fn unique(table: &Table<'_, '_>, urls: impl Iterator<Item = Located<Url>>) -> Vec<Url> {
    let mut unique: Vec<Url> = Vec::new();
    for url in urls {
        if unique.contains(&url.value) {
            // Only the host: the URL of a database may hold a password.
            let host = url.value.host_str().unwrap_or_default();
            let message = format!("{}: the endpoint on {host} occurs twice; remove one", table.name());
            table.reader().error(&url.span, message);
        } else {
            unique.push(url.value);
        }
    }
    unique
}

/// Parses the URL of an endpoint. No message contains the URL: it may hold a password or a token by mistake.
pub(crate) fn parse_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| format!("is not a URL: {error}"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err("the scheme is not supported; use http or https".into());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("a URL must not contain a user or password; set headers.authorization instead".into());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("has a query or fragment; a base URL ends with its path".into());
    }
    Ok(url)
}
