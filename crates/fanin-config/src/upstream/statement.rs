//! `[upstreams.NAME.statements.NAME]`: named SQL statements.

use std::time::Duration;

use http::Method;
use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Serialize;

use crate::reader::Table;
use crate::schema::types;
use crate::upstream::batch::Batch;
use crate::upstream::cache::Cache;
use crate::upstream::call_options::CALL_OPTIONS;
use crate::upstream::operation::Operation;
use crate::upstream::param::{Param, ParamType};
use crate::upstream::rows::{Rows, RowsText};
use crate::upstream::sql_check::check_sql;
use crate::upstream::statement_batch::StatementBatch;
use crate::values::names::is_identifier;
use crate::values::serialize;

/// `[upstreams.NAME.statements.NAME]`: an SQL statement that flows call as `NAME.statement(...)`.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Statement {
    /// One SQL statement. Its parameters are `$1`, `$2`, …; in MySQL `?`.
    #[schemars(with = "types::Text")]
    pub sql: String,
    /// Names of the parameters, in their order. Without names, calls pass them by position.
    #[schemars(with = "Vec<String>")]
    pub params: Vec<String>,
    /// Whether the statement may change data. If false, it runs in a read-only transaction. If true, it starts when
    /// all calls above it in the flow have succeeded, and is never sent twice.
    #[schemars(with = "types::Flag")]
    pub writes: bool,
    /// What a call returns: `"many"`, a list of rows, or `"one"`, the only row or `None`.
    #[schemars(with = "RowsText")]
    pub rows: Rows,
    /// How long the call may take. Default: the upstream's `timeout`.
    #[serde(serialize_with = "serialize::optional_duration", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "types::DurationText")]
    pub timeout: Option<Duration>,
    /// Combines calls with different keys into one statement.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "StatementBatch")]
    pub batch: Option<StatementBatch>,
    /// Caches answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Cache")]
    pub cache: Option<Cache>,
    /// Sends identical concurrent calls as one statement, even from different requests. Default: true with `cache`,
    /// otherwise false, because a shared answer may be older than the call that uses it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "types::Flag")]
    pub single_flight: Option<bool>,
}

impl Statement {
    fn read(mut table: Table<'_, '_>) -> Option<Statement> {
        let sql = table.string("sql");
        if !table.has("sql") {
            table.missing("sql", "write sql = \"select ... where id = $1\"");
        }
        let params = table.list("params", "the name of a parameter", false, |name| match is_identifier(name) {
            true => Ok(name.to_owned()),
            false => Err(format!("`{name}` is not a valid name; use letters, digits and `_`")),
        });
        let params: Vec<String> = params.unwrap_or_default().into_iter().map(|name| name.value).collect();
        if let Some(twice) = params.iter().enumerate().find(|(at, name)| params[..*at].contains(name)) {
            table.error("params", format_args!("`{}` occurs twice; rename or remove one", twice.1));
        }
        let reserved = |name: &&String| CALL_OPTIONS.contains(&name.as_str()) || *name == "linger";
        if let Some(reserved) = params.iter().find(reserved) {
            table.error("params", format_args!("`{reserved}` is already an argument of every call; use another name"));
        }
        let writes = table.boolean("writes").unwrap_or(false);
        if let Some(sql) = &sql
            && let Err((problem, hint)) = check_sql(sql, writes)
        {
            let span = table.span_of("sql").unwrap_or(table.span().clone());
            table.reader().error_hint(&span, format!("{}.sql: {problem}", table.name()), hint);
        }
        let rows = table.choice("rows", &[("many", Rows::Many), ("one", Rows::One)]).unwrap_or_default();
        let timeout = table.duration("timeout");
        let batch = table.table("batch").and_then(StatementBatch::read);
        let cache = table.table("cache").and_then(Cache::read);
        let single_flight = table.boolean("single_flight");
        if writes {
            for key in ["batch", "cache", "single_flight"] {
                if table.has(key) && (key != "single_flight" || single_flight == Some(true)) {
                    table.error(key, "is only for statements that change nothing; this one has writes = true");
                }
            }
        }
        if let Some(batch) = &batch
            && !params.contains(&batch.key)
        {
            table.error("batch", format_args!("key = \"{}\" is not in `params`; add it there", batch.key));
        }
        table.finish();
        Some(Statement { sql: sql?, params, writes, rows, timeout, batch, cache, single_flight })
    }

    /// The statement as an operation, for batches, caches and single-flight.
    pub(super) fn operation(&self, name: &str) -> Operation {
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

/// Functions of every database upstream. No statement may have such a name.
const RESERVED: [&str; 3] = ["query", "query_one", "execute"];

impl Statement {
    /// Reads all statements of an upstream.
    pub(super) fn read_all(table: &mut Table<'_, '_>) -> IndexMap<String, Statement> {
        table
            .named_tables("statements")
            .into_iter()
            .filter_map(|(name, table)| {
                if !is_identifier(&name.value) || RESERVED.contains(&name.value.as_str()) {
                    table.reader().error_hint(
                        &name.span,
                        format!("`{}` is not a valid name for a statement", name.value),
                        "use letters, digits and `_`, but not query, query_one or execute; flows call it by this name",
                    );
                }
                Some((name.value, Statement::read(table)?))
            })
            .collect()
    }
}
