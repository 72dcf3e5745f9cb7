//! `[upstreams.NAME.statements.NAME]`: what a database is asked by name, and what is refused at first sight.

use std::time::Duration;

use http::Method;
use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Serialize;

use crate::backend::CALL_OPTIONS;
use crate::merge::{Batch, Cache};
use crate::table::Table;
use crate::upstream::is_identifier;
use crate::{Operation, Param, ParamType, parse_duration, schema, text};

/// `[upstreams.NAME.statements.NAME]`: a statement that flows call by its name, as `NAME.statement(...)`.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Statement {
    /// The statement, one, in the database's own words: parameters are `$1`, `$2`; of MySQL `?`.
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
    /// Calls that look up different keys merge into one statement.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "StatementBatch")]
    pub batch: Option<StatementBatch>,
    /// Answers are used again.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Cache")]
    pub cache: Option<Cache>,
    /// Whether identical calls, of whatever requests, that are in flight at the same time share one. Default: true with
    /// `cache`, otherwise false: such an answer may have been made before the second call.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "schema::Flag")]
    pub single_flight: Option<bool>,
}

/// `[upstreams.NAME.statements.NAME.batch]`: calls that look up rows by key merge into one statement, and its rows are split again.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StatementBatch {
    /// The parameter that holds the keys, one of `params`: the statement takes a list there, as in `where id = any($1)`. A
    /// call gives a list, or a single key. Keys of merged calls are united.
    #[schemars(with = "String")]
    pub key: String,
    /// The column of a row that holds its key, just as it was asked for.
    #[serde(rename = "match")]
    #[schemars(with = "String")]
    pub match_column: String,
    /// Keys in one statement; more are spread over several.
    #[schemars(with = "schema::Count<1>")]
    pub max_keys: usize,
    /// How long a call waits at most for others to merge with that are on the way, but never for longer than a tenth of what
    /// its deadline leaves. A call may say otherwise: `linger = 0`.
    #[serde(serialize_with = "text::duration")]
    #[schemars(with = "schema::DurationText")]
    pub linger: Duration,
    /// Whether calls of different requests on a worker merge too. Each then waits for `linger`.
    #[schemars(with = "schema::Flag")]
    pub share: bool,
}

impl StatementBatch {
    /// A batch by this parameter and column, with all defaults.
    pub fn new(key: impl Into<String>, match_column: impl Into<String>) -> StatementBatch {
        let Batch { key, max_keys, linger, share, .. } = Batch::new(key);
        StatementBatch { key, match_column: match_column.into(), max_keys, linger, share }
    }

    fn read(mut table: Table<'_, '_>) -> Option<StatementBatch> {
        let (key, match_column) = (table.text("key"), table.text("match"));
        if table.at("key").is_none() {
            table.missing("key", "key = \"ids\": the parameter that holds the keys");
        }
        if table.at("match").is_none() {
            table.missing("match", "match = \"id\": the column that holds a row's key");
        }
        let default = StatementBatch::new("", "");
        let batch = StatementBatch {
            max_keys: table.count("max_keys", 1..=u64::MAX).unwrap_or(default.max_keys),
            linger: table
                .parsed("linger", "a duration such as \"2ms\"", parse_duration)
                .map_or(default.linger, |linger| linger.value),
            share: table.flag("share").unwrap_or(default.share),
            ..default
        };
        if batch.share && batch.linger.is_zero() {
            table.error("share", "has no time to find calls of other requests: linger is 0");
        }
        table.finish();
        Some(StatementBatch { key: key?, match_column: match_column?, ..batch })
    }
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
const WRITING: [&str; 15] = [
    "insert", "update", "delete", "merge", "replace", "truncate", "create", "alter", "drop", "rename", "call", "do",
    "grant", "revoke", "load",
];
/// Words that a pool of connections must not see: what they begin would outlive the call.
const SESSION: [&str; 15] = [
    "begin",
    "start",
    "commit",
    "rollback",
    "savepoint",
    "release",
    "set",
    "reset",
    "listen",
    "lock",
    "unlock",
    "use",
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
        let reserved = |name: &&String| CALL_OPTIONS.contains(&name.as_str()) || *name == "linger";
        if let Some(reserved) = params.iter().find(reserved) {
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
        let batch = table.table("batch").and_then(StatementBatch::read);
        let cache = table.table("cache").and_then(Cache::read);
        let single_flight = table.flag("single_flight");
        if writes {
            for key in ["batch", "cache", "single_flight"] {
                if table.at(key).is_some() && (key != "single_flight" || single_flight == Some(true)) {
                    table.error(key, "is for statements that read; this one has writes = true");
                }
            }
        }
        if let Some(batch) = &batch
            && !params.contains(&batch.key)
        {
            table.error("batch", format_args!("key = \"{}\" is not among params", batch.key));
        }
        table.finish();
        Some(Statement { sql: sql?, params, writes, rows, timeout, batch, cache, single_flight })
    }

    /// The operation that a call of the statement is, for everything that calls share.
    pub(crate) fn operation(&self, name: &str) -> Operation {
        let batch = self.batch.as_ref().map(|batch| Batch {
            match_field: Some(batch.match_column.clone()),
            max_keys: batch.max_keys,
            linger: batch.linger,
            share: batch.share,
            rows: Some(self.rows),
            ..Batch::new(batch.key.clone())
        });
        let params = self.params.iter().map(|name| (name.clone(), Param::new(ParamType::Any)));
        Operation {
            method: if self.writes { Method::POST } else { Method::GET },
            params: (!self.params.is_empty()).then(|| params.collect()),
            safe: Some(!self.writes),
            timeout: self.timeout,
            batch,
            cache: self.cache.clone(),
            single_flight: self.single_flight,
            ..Operation::new(format!("/{name}"))
        }
    }
}

/// What a database upstream offers besides its statements.
const SQL_METHODS: [&str; 3] = ["query", "query_one", "execute"];

/// Reads `[upstreams.NAME.statements]`.
pub(crate) fn read_all(table: &mut Table<'_, '_>) -> IndexMap<String, Statement> {
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
}
