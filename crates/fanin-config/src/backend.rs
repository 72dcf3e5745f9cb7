//! What an upstream is: HTTP, gRPC, a database, files, a model. What only some of them have stands here.

use std::fmt;

use url::Url;

use crate::Models;
use crate::table::Table;

/// What speaks at the other end of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UpstreamKind {
    /// HTTP: `url` or `urls`.
    Http,
    /// gRPC: `grpc`.
    Grpc,
    /// PostgreSQL: `postgres`.
    Postgres,
    /// MySQL or MariaDB: `mysql`.
    Mysql,
    /// A folder of this machine: `files`.
    Files,
    /// A model in this process: `model`.
    Model,
}

impl UpstreamKind {
    /// Whether it is asked in SQL.
    pub const fn is_sql(self) -> bool {
        matches!(self, UpstreamKind::Postgres | UpstreamKind::Mysql)
    }

    /// Calls in flight where the file does not say. A database works on as many statements at once as it has cores and disks,
    /// and a folder is read by a few threads; more would only wait there instead of here, where the oldest request goes first.
    pub const fn default_limit(self) -> usize {
        match self {
            // A model's own queue knows what fits into a deadline; this only bounds what is asked at once.
            UpstreamKind::Http | UpstreamKind::Grpc | UpstreamKind::Model => 256,
            UpstreamKind::Postgres | UpstreamKind::Mysql => 8,
            UpstreamKind::Files => 4,
        }
    }
}

impl fmt::Display for UpstreamKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            UpstreamKind::Http => "HTTP",
            UpstreamKind::Grpc => "gRPC",
            UpstreamKind::Postgres => "PostgreSQL",
            UpstreamKind::Mysql => "MySQL",
            UpstreamKind::Files => "a folder",
            UpstreamKind::Model => "a model",
        })
    }
}

/// Everything that has a network behind it.
const NETWORK: &[UpstreamKind] = &[UpstreamKind::Http, UpstreamKind::Grpc, UpstreamKind::Postgres, UpstreamKind::Mysql];
/// What travels by HTTP.
const ANY_HTTP: &[UpstreamKind] = &[UpstreamKind::Http, UpstreamKind::Grpc];
/// Databases.
const SQL: &[UpstreamKind] = &[UpstreamKind::Postgres, UpstreamKind::Mysql];

/// Keys that not every upstream has.
const ONLY_FOR: &[(&str, &[UpstreamKind])] = &[
    ("snapshot", &[UpstreamKind::Http]),
    ("http", &[UpstreamKind::Http]),
    ("timeout_header", &[UpstreamKind::Http]),
    ("query_lists", &[UpstreamKind::Http]),
    ("operations", &[UpstreamKind::Http]),
    ("headers", ANY_HTTP),
    ("forward_headers", ANY_HTTP),
    ("keepalive", ANY_HTTP),
    ("keepalive_timeout", ANY_HTTP),
    ("keepalive_idle", ANY_HTTP),
    ("chunk_timeout", ANY_HTTP),
    ("max_connecting", ANY_HTTP),
    ("tls", NETWORK),
    ("connect_timeout", NETWORK),
    ("max_connections", NETWORK),
    ("idle_timeout", NETWORK),
    ("ejection", NETWORK),
    ("password", SQL),
    ("statements", SQL),
    ("proto", &[UpstreamKind::Grpc]),
    ("proto_path", &[UpstreamKind::Grpc]),
    ("descriptors", &[UpstreamKind::Grpc]),
    ("reflection", &[UpstreamKind::Grpc]),
    ("safe_methods", &[UpstreamKind::Grpc]),
    ("max_messages", &[UpstreamKind::Grpc]),
    ("int64", &[UpstreamKind::Grpc]),
    ("field_names", &[UpstreamKind::Grpc]),
];

/// Whether an upstream of that kind can have this key.
pub(crate) fn has(kind: UpstreamKind, key: &str) -> bool {
    ONLY_FOR.iter().find(|(name, _)| *name == key).is_none_or(|(_, kinds)| kinds.contains(&kind))
}

/// Refuses keys that mean nothing to an upstream of that kind.
pub(crate) fn refuse_foreign(table: &Table<'_, '_>, kind: UpstreamKind) {
    for &(key, kinds) in ONLY_FOR {
        if table.at(key).is_some() && !kinds.contains(&kind) {
            let kinds: Vec<String> = kinds.iter().map(UpstreamKind::to_string).collect();
            table.error(key, format_args!("is for {}; this upstream is {kind}", kinds.join(", ")));
        }
    }
}

/// Finds out by its keys what an upstream is. The keys' values are read elsewhere.
pub(crate) fn kind(table: &Table<'_, '_>) -> UpstreamKind {
    let keys = [
        ("url", UpstreamKind::Http),
        ("urls", UpstreamKind::Http),
        ("grpc", UpstreamKind::Grpc),
        ("postgres", UpstreamKind::Postgres),
        ("mysql", UpstreamKind::Mysql),
        ("files", UpstreamKind::Files),
        ("model", UpstreamKind::Model),
    ];
    let mut found = keys.into_iter().filter(|(key, _)| table.at(key).is_some());
    match (found.next(), found.next()) {
        (None, _) => {
            table.missing(
                "url",
                "url = \"http://host:port\", or urls = [...] for several endpoints; or grpc, postgres, mysql, files or model",
            );
            UpstreamKind::Http
        }
        (Some((_, kind)), None) => kind,
        (Some((first, kind)), Some((second, _))) => {
            table.error(second, format_args!("stands beside `{first}`; keep one of them"));
            kind
        }
    }
}

/// The model that an upstream is: one that the repository has, whether or not a version of it can be loaded.
pub(crate) fn read_model(table: &mut Table<'_, '_>, models: Option<&Models>) -> Option<String> {
    let name = table.parsed("model", "a model's name", |name| match name {
        name if name.is_empty() || name.starts_with('.') || name.contains('/') => {
            Err(format!("`{name}` is not a model's name"))
        }
        name => Ok(name.to_owned()),
    })?;
    match models {
        None => table.error("model", "is a model of this process, and there is no [models] that says where they are"),
        // A repository that is not there is told where it is named.
        Some(models) if !models.repository.is_dir() || models.repository.join(&name.value).is_dir() => {}
        Some(models) => {
            let known = models.names();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            let place = models.repository.display();
            table.error("model", format_args!("there is no model `{}` in {place}; there are: {known}", name.value));
        }
    }
    Some(name.value)
}

/// The URLs of a database: one, or a list for several endpoints.
pub(crate) fn read_urls(table: &mut Table<'_, '_>, kind: UpstreamKind) -> Vec<Url> {
    let (key, what): (_, _) = match kind {
        UpstreamKind::Mysql => ("mysql", "a URL such as \"mysql://user@host:3306/database\""),
        _ => ("postgres", "a URL such as \"postgres://user@host:5432/database\""),
    };
    let urls = table.list(key, what, true, |text| sql_url(text, kind)).unwrap_or_default();
    if table.is_empty_list(key) {
        table.error(key, "is empty; an upstream needs at least one endpoint");
    }
    let mut unique: Vec<Url> = Vec::new();
    for url in urls {
        if unique.contains(&url.value) {
            table.reader().error(&url.span, format!("{}: the endpoint {} is there twice", table.name(), url.value));
        } else {
            unique.push(url.value);
        }
    }
    unique
}

/// Text of errors never holds the URL: it may hold a password.
fn sql_url(text: &str, kind: UpstreamKind) -> Result<Url, String> {
    let (schemes, shown) = match kind {
        UpstreamKind::Mysql => (["mysql", "mariadb"], "mysql"),
        _ => (["postgres", "postgresql"], "postgres"),
    };
    let url = Url::parse(text).map_err(|error| {
        format!("is not a URL: {error} (a password with signs of its own belongs percent-encoded or into `password`)")
    })?;
    if !schemes.contains(&url.scheme()) {
        return Err(format!("`{}` is not the scheme of {kind}; use {shown}", url.scheme()));
    }
    if url.host_str().is_none_or(str::is_empty) {
        return Err("names no host".into());
    }
    if url.username().is_empty() {
        return Err(format!("names no user; write {shown}://user@host/database"));
    }
    let database = url.path().trim_start_matches('/');
    if database.is_empty() || database.contains('/') {
        return Err(format!("names no database; write {shown}://user@host/database"));
    }
    if url.fragment().is_some() {
        return Err("has a fragment".into());
    }
    for (key, value) in url.query_pairs() {
        match &*key {
            "sslmode" if matches!(&*value, "disable" | "require" | "verify-ca" | "verify-full") => {}
            "sslmode" => {
                return Err(format!("`{value}` is not an sslmode: disable, require, verify-ca or verify-full"));
            }
            "application_name" if kind == UpstreamKind::Postgres => {}
            other if kind == UpstreamKind::Postgres => {
                return Err(format!("`{other}` is no parameter; known are sslmode and application_name"));
            }
            other => return Err(format!("`{other}` is no parameter; known is sslmode")),
        }
    }
    Ok(url)
}

/// Arguments that every call has; nothing of a call's own can have their names.
pub const CALL_OPTIONS: [&str; 6] = ["timeout", "ok", "optional", "default", "safe", "unordered"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_databases() {
        assert!(sql_url("postgres://u:p@h/db?sslmode=require&application_name=a", UpstreamKind::Postgres).is_ok());
        for (url, why) in [
            ("http://u@h/db", "scheme"),
            ("postgres:///db", "host"),
            ("postgres://h/db", "user"),
            ("postgres://u@h", "database"),
            ("postgres://u@h/a/b", "database"),
            ("postgres://u@h/a?sslmode=prefer", "not an sslmode"),
            ("postgres://u@h/a?password=x", "no parameter"),
            ("nonsense", "not a URL"),
        ] {
            let error = sql_url(url, UpstreamKind::Postgres).unwrap_err();
            assert!(error.contains(why), "{url}: {error}");
        }
        assert!(sql_url("mysql://u:p@h/db?sslmode=require", UpstreamKind::Mysql).is_ok());
        assert!(sql_url("mariadb://u@h:3307/db", UpstreamKind::Mysql).is_ok());
        for (url, why) in [
            ("postgres://u@h/db", "not the scheme of MySQL; use mysql"),
            ("mysql://h/db", "mysql://user@host/database"),
            ("mysql://u@h/a?application_name=x", "no parameter"),
        ] {
            let error = sql_url(url, UpstreamKind::Mysql).unwrap_err();
            assert!(error.contains(why), "{url}: {error}");
        }
    }
}
