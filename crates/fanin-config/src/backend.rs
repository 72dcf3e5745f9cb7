//! What an upstream is: HTTP, a database, files. What only some of them have stands here.

use std::fmt;
use std::time::Duration;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Serialize;
use url::Url;

use crate::table::Table;
use crate::upstream::is_identifier;
use crate::{schema, text};

/// What speaks at the other end of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// HTTP: `url` or `urls`.
    Http,
    /// PostgreSQL: `postgres`.
    Postgres,
    /// A folder of this machine: `files`.
    Files,
}

impl Kind {
    /// Whether it is asked in SQL.
    pub const fn is_sql(self) -> bool {
        matches!(self, Kind::Postgres)
    }

    /// Calls in flight where the file does not say. A database works on as many statements at once as it has cores and disks,
    /// and a folder is read by a few threads; more would only wait there instead of here, where the oldest request goes first.
    pub const fn default_limit(self) -> usize {
        match self {
            Kind::Http => 256,
            Kind::Postgres => 8,
            Kind::Files => 4,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Http => "HTTP",
            Kind::Postgres => "PostgreSQL",
            Kind::Files => "a folder",
        })
    }
}

/// Everything that has a network behind it.
const NETWORK: &[Kind] = &[Kind::Http, Kind::Postgres];

/// Keys that not every upstream has.
const ONLY_FOR: [(&str, &[Kind]); 18] = [
    ("snapshot", &[Kind::Http]),
    ("http", &[Kind::Http]),
    ("timeout_header", &[Kind::Http]),
    ("query_lists", &[Kind::Http]),
    ("operations", &[Kind::Http]),
    ("headers", &[Kind::Http]),
    ("forward_headers", &[Kind::Http]),
    ("keepalive", &[Kind::Http]),
    ("keepalive_timeout", &[Kind::Http]),
    ("chunk_timeout", &[Kind::Http]),
    ("max_connecting", &[Kind::Http]),
    ("tls", NETWORK),
    ("connect_timeout", NETWORK),
    ("max_connections", NETWORK),
    ("idle_timeout", NETWORK),
    ("ejection", NETWORK),
    ("password", &[Kind::Postgres]),
    ("statements", &[Kind::Postgres]),
];

/// Whether an upstream of that kind can have this key.
pub(crate) fn has(kind: Kind, key: &str) -> bool {
    ONLY_FOR.iter().find(|(name, _)| *name == key).is_none_or(|(_, kinds)| kinds.contains(&kind))
}

/// Refuses keys that mean nothing to an upstream of that kind.
pub(crate) fn refuse_foreign(table: &Table<'_, '_>, kind: Kind) {
    for (key, kinds) in ONLY_FOR {
        if table.at(key).is_some() && !kinds.contains(&kind) {
            let kinds: Vec<String> = kinds.iter().map(Kind::to_string).collect();
            table.error(key, format_args!("is for {}; this upstream is {kind}", kinds.join(", ")));
        }
    }
}

/// Finds out by its keys what an upstream is. The keys' values are read elsewhere.
pub(crate) fn kind(table: &Table<'_, '_>) -> Kind {
    let keys = [("url", Kind::Http), ("urls", Kind::Http), ("postgres", Kind::Postgres), ("files", Kind::Files)];
    let mut found = keys.into_iter().filter(|(key, _)| table.at(key).is_some());
    match (found.next(), found.next()) {
        (None, _) => {
            table.missing(
                "url",
                "url = \"http://host:port\", or urls = [...] for several endpoints; or postgres, or files",
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

/// The URLs of a database: one, or a list for several endpoints.
pub(crate) fn read_urls(table: &mut Table<'_, '_>) -> Vec<Url> {
    let key = "postgres";
    let what = "a URL such as \"postgres://user@host:5432/database\"";
    let urls = table.list(key, what, true, sql_url).unwrap_or_default();
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
fn sql_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| {
        format!("is not a URL: {error} (a password with signs of its own belongs percent-encoded or into `password`)")
    })?;
    if !matches!(url.scheme(), "postgres" | "postgresql") {
        return Err(format!("`{}` is not the scheme of PostgreSQL; use postgres", url.scheme()));
    }
    if url.host_str().is_none_or(str::is_empty) {
        return Err("names no host".into());
    }
    if url.username().is_empty() {
        return Err("names no user; write postgres://user@host/database".into());
    }
    let database = url.path().trim_start_matches('/');
    if database.is_empty() || database.contains('/') {
        return Err("names no database; write postgres://user@host/database".into());
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
            "application_name" => {}
            other => {
                return Err(format!("`{other}` is no parameter; known are sslmode and application_name"));
            }
        }
    }
    Ok(url)
}

/// `[upstreams.NAME.statements.NAME]`: a statement that flows call by its name, as `NAME.statement(...)`.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Statement {
    /// The statement, one, in the database's own words: parameters are `$1`, `$2`.
    #[schemars(with = "schema::Text")]
    pub sql: String,
    /// Names of the parameters in their order, so that a call can name them. Without them they are given by position.
    #[schemars(with = "Vec<String>")]
    pub params: Vec<String>,
    /// Whether the statement may change something. One that does not runs in a read-only transaction; one that does starts
    /// when everything above it has succeeded, and is never sent twice.
    #[schemars(with = "schema::Flag")]
    pub writes: bool,
    /// What the answer is: `"many"`, a list of rows, or `"one"`, the only row or None.
    #[schemars(with = "schema::RowsText")]
    pub rows: Rows,
    /// How long the call may take. Default: the upstream's `timeout`.
    #[serde(serialize_with = "text::optional_duration", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "schema::DurationText")]
    pub timeout: Option<Duration>,
}

/// What becomes of a statement's rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Rows {
    /// A list of them.
    #[default]
    Many,
    /// The only one, or nothing; more are an error.
    One,
}

/// Words that begin statements which change something.
const WRITING: [&str; 14] = [
    "insert", "update", "delete", "merge", "replace", "truncate", "create", "alter", "drop", "call", "do", "grant",
    "revoke", "lock",
];
/// Words that a pool of connections must not see: what they begin would outlive the call.
const SESSION: [&str; 12] = [
    "begin",
    "start",
    "commit",
    "rollback",
    "savepoint",
    "release",
    "set",
    "reset",
    "listen",
    "declare",
    "prepare",
    "copy",
];

/// The first word of a statement, comments and brackets left out.
fn first_word(sql: &str) -> String {
    let mut rest = sql.trim_start_matches(|c: char| c.is_whitespace() || c == '(');
    loop {
        if let Some(comment) = rest.strip_prefix("--") {
            rest = comment.split_once('\n').map_or("", |(_, rest)| rest);
        } else if let Some(comment) = rest.strip_prefix("/*") {
            rest = comment.split_once("*/").map_or("", |(_, rest)| rest);
        } else {
            break;
        }
        rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == '(');
    }
    rest.chars().take_while(char::is_ascii_alphabetic).collect::<String>().to_ascii_lowercase()
}

/// What is wrong with a statement at first sight, whether it stands in `fanin.toml` or in a flow. What only the database can
/// tell is left to it: the transaction of a statement that is not said to write is read-only there.
///
/// # Errors
/// The problem and what to do.
pub fn check_sql(sql: &str, writes: bool) -> Result<(), (String, &'static str)> {
    let word = first_word(sql);
    if word.is_empty() {
        return Err(("is no statement".to_owned(), "write one statement, such as \"select 1\""));
    }
    if SESSION.contains(&word.as_str()) {
        let what = format!("`{word}` would change the connection that the next call gets");
        return Err((what, "each call is a transaction of its own; put what belongs together into one statement"));
    }
    if !writes && WRITING.contains(&word.as_str()) {
        return Err((
            format!("`{word}` changes something, and the statement is not said to"),
            "set writes = true on the statement; in a flow call execute()",
        ));
    }
    Ok(())
}

impl Statement {
    fn read(mut table: Table<'_, '_>) -> Option<Statement> {
        let sql = table.text("sql");
        if table.at("sql").is_none() {
            table.missing("sql", "sql = \"select ... where id = $1\"");
        }
        let params = table.list("params", "a parameter's name", false, |name| match is_identifier(name) {
            true => Ok(name.to_owned()),
            false => Err(format!("`{name}` is not a name; use letters, digits and _")),
        });
        let params: Vec<String> = params.unwrap_or_default().into_iter().map(|name| name.value).collect();
        if let Some(twice) = params.iter().enumerate().find(|(at, name)| params[..*at].contains(name)) {
            table.error("params", format_args!("`{}` is there twice", twice.1));
        }
        if let Some(reserved) = params.iter().find(|name| OPTIONS.contains(&name.as_str())) {
            table.error("params", format_args!("`{reserved}` is an option of every call; take another name"));
        }
        let writes = table.flag("writes").unwrap_or(false);
        if let Some(sql) = &sql
            && let Err((problem, hint)) = check_sql(sql, writes)
        {
            let span = table.at("sql").unwrap_or(table.span().clone());
            table.reader().error_hint(&span, format!("{}.sql: {problem}", table.name()), hint);
        }
        let rows = table.choice("rows", &[("many", Rows::Many), ("one", Rows::One)]).unwrap_or_default();
        let timeout = table.duration("timeout");
        table.finish();
        Some(Statement { sql: sql?, params, writes, rows, timeout })
    }
}

/// Arguments that every call has; nothing of a call's own can have their names.
pub const OPTIONS: [&str; 6] = ["timeout", "ok", "optional", "default", "safe", "unordered"];
/// What a database upstream offers besides its statements.
const SQL_METHODS: [&str; 3] = ["query", "query_one", "execute"];

/// Reads `[upstreams.NAME.statements]`.
pub(crate) fn read_statements(table: &mut Table<'_, '_>) -> IndexMap<String, Statement> {
    table
        .named_tables("statements")
        .into_iter()
        .filter_map(|(name, table)| {
            if !is_identifier(&name.value) || SQL_METHODS.contains(&name.value.as_str()) {
                table.reader().error_hint(
                    &name.span,
                    format!("`{}` is not a name for a statement", name.value),
                    "flows call it by this name: use letters, digits and _, and none of query, query_one, execute",
                );
            }
            Some((name.value, Statement::read(table)?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_word_says_what_a_statement_does() {
        for (sql, word) in [
            ("select 1", "select"),
            ("  -- a comment\n (SELECT 1)", "select"),
            ("/* a */ /* b */insert into x", "insert"),
            ("-- nothing", ""),
            ("", ""),
        ] {
            assert_eq!(first_word(sql), word, "{sql}");
        }
        assert!(check_sql("select 1", false).is_ok());
        assert!(check_sql("with a as (select 1) select * from a", false).is_ok());
        assert!(check_sql("update a set b = 1", true).is_ok());
        assert!(check_sql("update a set b = 1", false).unwrap_err().0.contains("not said to"));
        assert!(check_sql("begin", true).unwrap_err().0.contains("the next call"));
        assert!(check_sql(" ", false).is_err());
    }

    #[test]
    fn urls_of_databases() {
        assert!(sql_url("postgres://u:p@h/db?sslmode=require&application_name=a").is_ok());
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
            let error = sql_url(url).unwrap_err();
            assert!(error.contains(why), "{url}: {error}");
        }
    }
}
