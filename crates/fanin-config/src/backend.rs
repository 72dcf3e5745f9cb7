//! What an upstream is: HTTP, gRPC, a database, files, a model. What only some of them have stands here.

use std::fmt;

use url::Url;

use crate::Models;
use crate::table::Table;

/// What speaks at the other end of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
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

impl Kind {
    /// Whether it is asked in SQL.
    pub const fn is_sql(self) -> bool {
        matches!(self, Kind::Postgres | Kind::Mysql)
    }

    /// Calls in flight where the file does not say. A database works on as many statements at once as it has cores and disks,
    /// and a folder is read by a few threads; more would only wait there instead of here, where the oldest request goes first.
    pub const fn default_limit(self) -> usize {
        match self {
            // A model's own queue knows what fits into a deadline; this only bounds what is asked at once.
            Kind::Http | Kind::Grpc | Kind::Model => 256,
            Kind::Postgres | Kind::Mysql => 8,
            Kind::Files => 4,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Http => "HTTP",
            Kind::Grpc => "gRPC",
            Kind::Postgres => "PostgreSQL",
            Kind::Mysql => "MySQL",
            Kind::Files => "a folder",
            Kind::Model => "a model",
        })
    }
}

/// Everything that has a network behind it.
const NETWORK: &[Kind] = &[Kind::Http, Kind::Grpc, Kind::Postgres, Kind::Mysql];
/// What travels by HTTP.
const ANY_HTTP: &[Kind] = &[Kind::Http, Kind::Grpc];
/// Databases.
const SQL: &[Kind] = &[Kind::Postgres, Kind::Mysql];

/// Keys that not every upstream has.
const ONLY_FOR: &[(&str, &[Kind])] = &[
    ("snapshot", &[Kind::Http]),
    ("http", &[Kind::Http]),
    ("timeout_header", &[Kind::Http]),
    ("query_lists", &[Kind::Http]),
    ("operations", &[Kind::Http]),
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
    ("proto", &[Kind::Grpc]),
    ("proto_path", &[Kind::Grpc]),
    ("descriptors", &[Kind::Grpc]),
    ("reflection", &[Kind::Grpc]),
    ("safe_methods", &[Kind::Grpc]),
    ("max_messages", &[Kind::Grpc]),
    ("int64", &[Kind::Grpc]),
    ("field_names", &[Kind::Grpc]),
];

/// Whether an upstream of that kind can have this key.
pub(crate) fn has(kind: Kind, key: &str) -> bool {
    ONLY_FOR.iter().find(|(name, _)| *name == key).is_none_or(|(_, kinds)| kinds.contains(&kind))
}

/// Refuses keys that mean nothing to an upstream of that kind.
pub(crate) fn refuse_foreign(table: &Table<'_, '_>, kind: Kind) {
    for &(key, kinds) in ONLY_FOR {
        if table.at(key).is_some() && !kinds.contains(&kind) {
            let kinds: Vec<String> = kinds.iter().map(Kind::to_string).collect();
            table.error(key, format_args!("is for {}; this upstream is {kind}", kinds.join(", ")));
        }
    }
}

/// Finds out by its keys what an upstream is. The keys' values are read elsewhere.
pub(crate) fn kind(table: &Table<'_, '_>) -> Kind {
    let keys = [
        ("url", Kind::Http),
        ("urls", Kind::Http),
        ("grpc", Kind::Grpc),
        ("postgres", Kind::Postgres),
        ("mysql", Kind::Mysql),
        ("files", Kind::Files),
        ("model", Kind::Model),
    ];
    let mut found = keys.into_iter().filter(|(key, _)| table.at(key).is_some());
    match (found.next(), found.next()) {
        (None, _) => {
            table.missing(
                "url",
                "url = \"http://host:port\", or urls = [...] for several endpoints; or grpc, postgres, mysql, files or model",
            );
            Kind::Http
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
pub(crate) fn read_urls(table: &mut Table<'_, '_>, kind: Kind) -> Vec<Url> {
    let (key, what): (_, _) = match kind {
        Kind::Mysql => ("mysql", "a URL such as \"mysql://user@host:3306/database\""),
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
fn sql_url(text: &str, kind: Kind) -> Result<Url, String> {
    let (schemes, shown) = match kind {
        Kind::Mysql => (["mysql", "mariadb"], "mysql"),
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
            "application_name" if kind == Kind::Postgres => {}
            other if kind == Kind::Postgres => {
                return Err(format!("`{other}` is no parameter; known are sslmode and application_name"));
            }
            other => return Err(format!("`{other}` is no parameter; known is sslmode")),
        }
    }
    Ok(url)
}

/// Arguments that every call has; nothing of a call's own can have their names.
pub const OPTIONS: [&str; 6] = ["timeout", "ok", "optional", "default", "safe", "unordered"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_databases() {
        assert!(sql_url("postgres://u:p@h/db?sslmode=require&application_name=a", Kind::Postgres).is_ok());
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
            let error = sql_url(url, Kind::Postgres).unwrap_err();
            assert!(error.contains(why), "{url}: {error}");
        }
        assert!(sql_url("mysql://u:p@h/db?sslmode=require", Kind::Mysql).is_ok());
        assert!(sql_url("mariadb://u@h:3307/db", Kind::Mysql).is_ok());
        for (url, why) in [
            ("postgres://u@h/db", "not the scheme of MySQL; use mysql"),
            ("mysql://h/db", "mysql://user@host/database"),
            ("mysql://u@h/a?application_name=x", "no parameter"),
        ] {
            let error = sql_url(url, Kind::Mysql).unwrap_err();
            assert!(error.contains(why), "{url}: {error}");
        }
    }
}
