//! `[upstreams.NAME.retry]`: further attempts of failed calls.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use crate::reader::{Table, TableOrWord};
use crate::schema::types;
use crate::values::serialize;

/// `[upstreams.NAME.retry]`: further attempts of calls that change nothing, after failures that may pass.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Retry {
    /// Most retries of one call, the first attempt not counted.
    #[schemars(with = "types::Count<0, 10>")]
    pub max: u32,
    /// Retry budget: retries and hedges allowed for each call of the upstream. `0.2` allows one for five calls. It
    /// bounds the extra load on an upstream that fails.
    #[schemars(with = "types::Share")]
    pub budget: f64,
    /// Retries and hedges allowed for each second even if there are few calls.
    #[schemars(with = "types::Number")]
    pub floor: f64,
    /// Longest pause before the first retry; each further retry doubles it. The pause is random, between zero and
    /// this. A retry on another endpoint starts at once.
    #[serde(serialize_with = "serialize::duration")]
    #[schemars(with = "types::DurationText")]
    pub backoff: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Retry { max: 1, budget: 0.2, floor: 2.0, backoff: Duration::from_millis(20) }
    }
}

impl Retry {
    /// Reads `retry`: a table, or `"off"`.
    pub(super) fn read(upstream: &mut Table<'_, '_>) -> Option<Retry> {
        let default = Retry::default();
        let mut table = match upstream.table_or_word("retry", "a table or \"off\"", "off") {
            TableOrWord::Absent => return Some(default),
            TableOrWord::Word => return None,
            TableOrWord::Table(table) => table,
        };
        let retry = Retry {
            max: table.number("max", 0..=10).map_or(default.max, |max| max as u32),
            budget: table.float("budget", 0.0, 1.0).unwrap_or(default.budget),
            floor: table.float("floor", 0.0, f64::MAX).unwrap_or(default.floor),
            backoff: table.duration("backoff").unwrap_or(default.backoff),
        };
        table.finish();
        Some(retry)
    }

    /// Reads `retry` of an operation; `None` if the upstream's applies.
    pub(super) fn read_override(operation: &mut Table<'_, '_>) -> Option<Option<Retry>> {
        let present = operation.has("retry");
        let retry = Retry::read(operation);
        present.then_some(retry)
    }
}
