//! `postgres` and `mysql` of an upstream: URLs of databases.

use schemars::json_schema;
use serde::Serialize;
use url::Url;

use crate::reader::Table;
use crate::schema::types::{leaf, variable};
use crate::upstream::http::unique;
use crate::upstream::kind::UpstreamKind;

leaf!(
    /// `"postgres://user@host/database"`.
    PostgresText,
    json_schema!({ "type": "string", "pattern": r"^postgres(ql)?://|\$\{", "x-type": "url" })
);
leaf!(
    /// `"mysql://user@host/database"`.
    MysqlText,
    json_schema!({ "type": "string", "pattern": r"^(mysql|mariadb)://|\$\{", "x-type": "url" })
);

/// When a session is reset before another call uses it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SessionReset {
    /// After statements that can change it, as far as their text shows.
    #[default]
    Auto,
    /// After every statement.
    Always,
}

impl SessionReset {
    pub(super) fn read(table: &mut Table<'_, '_>) -> Option<SessionReset> {
        table.choice("reset", &[("auto", SessionReset::Auto), ("always", SessionReset::Always)])
    }
}

leaf!(
    /// `"auto"` or `"always"`.
    SessionResetText,
    json_schema!({ "anyOf": [{ "enum": ["auto", "always"] }, variable()] })
);

/// How the password is proven to PostgreSQL, the weakest method first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PostgresAuth {
    /// The password itself.
    Cleartext,
    /// An MD5 hash, which is as good as the password to whoever reads it.
    Md5,
    /// SCRAM-SHA-256: proves the password without showing it, and the server proves that it knows it too.
    Scram,
}

impl PostgresAuth {
    pub(super) fn read(table: &mut Table<'_, '_>) -> Option<PostgresAuth> {
        let methods =
            [("scram", PostgresAuth::Scram), ("md5", PostgresAuth::Md5), ("cleartext", PostgresAuth::Cleartext)];
        table.choice("auth", &methods)
    }
}

leaf!(
    /// `"scram"`, `"md5"` or `"cleartext"`.
    PostgresAuthText,
    json_schema!({ "anyOf": [{ "enum": ["scram", "md5", "cleartext"] }, variable()] })
);

/// Reads the URLs of a database, one or a list of endpoints.
pub(super) fn read_urls(table: &mut Table<'_, '_>, kind: UpstreamKind) -> Vec<Url> {
    let (key, what): (_, _) = match kind {
        UpstreamKind::Mysql => ("mysql", "a URL such as \"mysql://user@host:3306/database\""),
        _ => ("postgres", "a URL such as \"postgres://user@host:5432/database\""),
    };
    let urls = table.list(key, what, true, |text| sql_url(text, kind)).unwrap_or_default();
    if table.is_empty_list(key) {
        table.error(key, "must not be empty; an upstream needs at least one endpoint");
    }
    unique(table, urls.into_iter())
}

/// Parses the URL of a database. No message contains the URL: it may hold a password.
fn sql_url(text: &str, kind: UpstreamKind) -> Result<Url, String> {
    let (schemes, shown) = match kind {
        UpstreamKind::Mysql => (["mysql", "mariadb"], "mysql"),
        _ => (["postgres", "postgresql"], "postgres"),
    };
    let url = Url::parse(text).map_err(|error| {
        format!("is not a URL: {error} (percent-encode special characters of the password, or put it into `password`)")
    })?;
    if !schemes.contains(&url.scheme()) {
        return Err(format!("has not the scheme of {kind}; use {shown}://"));
    }
    if url.host_str().is_none_or(str::is_empty) {
        return Err("has no host; write the host behind `@`".into());
    }
    if url.username().is_empty() {
        return Err(format!("has no user; write {shown}://user@host/database"));
    }
    let database = url.path().trim_start_matches('/');
    if database.is_empty() || database.contains('/') {
        return Err(format!("has no database; write {shown}://user@host/database"));
    }
    if url.fragment().is_some() {
        return Err("has a fragment; remove `#` and what follows".into());
    }
    for (key, value) in url.query_pairs() {
        match &*key {
            "sslmode" if matches!(&*value, "disable" | "require" | "verify-ca" | "verify-full") => {}
            "sslmode" => {
                return Err(
                    "has an sslmode that is not supported; use disable, require, verify-ca or verify-full".into()
                );
            }
            "application_name" if kind == UpstreamKind::Postgres => {}
            _ if kind == UpstreamKind::Postgres => {
                return Err("has a parameter that is not supported; use sslmode or application_name".into());
            }
            _ => return Err("has a parameter that is not supported; use sslmode".into()),
        }
    }
    Ok(url)
}

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
            ("postgres://u@h/a?sslmode=prefer", "is not supported; use disable"),
            ("postgres://u@h/a?password=x", "a parameter that is not supported"),
            ("nonsense", "not a URL"),
        ] {
            let error = sql_url(url, UpstreamKind::Postgres).unwrap_err();
            assert!(error.contains(why), "{url}: {error}");
        }
        assert!(sql_url("mysql://u:p@h/db?sslmode=require", UpstreamKind::Mysql).is_ok());
        assert!(sql_url("mariadb://u@h:3307/db", UpstreamKind::Mysql).is_ok());
        for (url, why) in [
            ("postgres://u@h/db", "has not the scheme of MySQL; use mysql://"),
            ("mysql://h/db", "mysql://user@host/database"),
            ("mysql://u@h/a?application_name=x", "a parameter"),
        ] {
            let error = sql_url(url, UpstreamKind::Mysql).unwrap_err();
            assert!(error.contains(why), "{url}: {error}");
        }
    }
}
