//! `[upstreams.NAME.statements.NAME.batch]`: calls with different keys share one statement.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use crate::reader::Table;
use crate::schema::types;
use crate::upstream::batch::Batch;
use crate::values::duration::parse_duration;
use crate::values::serialize;

/// `[upstreams.NAME.statements.NAME.batch]`: calls that look up rows by key share one statement, and its rows are
/// split again.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StatementBatch {
    /// Parameter that holds the keys, one of `params`. The statement takes a list there, as in `where id = any($1)`. A
    /// call passes a list or a single key.
    #[schemars(with = "String")]
    pub key: String,
    /// Column of a row that holds its key, with the same value and type as the key in the call.
    #[serde(rename = "match")]
    #[schemars(with = "String")]
    pub match_column: String,
    /// Most keys in one statement. More keys are split into several statements.
    #[schemars(with = "types::Count<1>")]
    pub max_keys: usize,
    /// How long a call may wait for others to share its statement. It never waits longer than a tenth of the time to
    /// its deadline. A call can set its own: `linger = 0`.
    #[serde(serialize_with = "serialize::duration")]
    #[schemars(with = "types::DurationText")]
    pub linger: Duration,
    /// Combines calls of different requests on a worker, too. Each call then waits for `linger`.
    #[schemars(with = "types::Flag")]
    pub share: bool,
}

impl StatementBatch {
    /// A batch keyed by this parameter and column, with all defaults.
    pub fn new(key: impl Into<String>, match_column: impl Into<String>) -> StatementBatch {
        let Batch { key, max_keys, linger, share, .. } = Batch::new(key);
        StatementBatch { key, match_column: match_column.into(), max_keys, linger, share }
    }

    pub(super) fn read(mut table: Table<'_, '_>) -> Option<StatementBatch> {
        let (key, match_column) = (table.string("key"), table.string("match"));
        if !table.has("key") {
            table.missing("key", "write key = \"ids\", the parameter that holds the keys");
        }
        if !table.has("match") {
            table.missing("match", "write match = \"id\", the column that holds the key of a row");
        }
        let default = StatementBatch::new("", "");
        let batch = StatementBatch {
            max_keys: table.count("max_keys", 1..=u64::MAX).unwrap_or(default.max_keys),
            linger: table
                .parsed("linger", "a duration such as \"2ms\"", parse_duration)
                .map_or(default.linger, |linger| linger.value),
            share: table.boolean("share").unwrap_or(default.share),
            ..default
        };
        if batch.share && batch.linger.is_zero() {
            table.error(
                "share",
                "needs time to collect calls of other requests, but `linger` is 0; raise it or remove this key",
            );
        }
        table.finish();
        Some(StatementBatch { key: key?, match_column: match_column?, ..batch })
    }
}
