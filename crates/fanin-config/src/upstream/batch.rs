//! `[upstreams.NAME.operations.NAME.batch]`: calls with different keys share one request.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use crate::reader::Table;
use crate::schema::types;
use crate::upstream::rows::Rows;
use crate::values::duration::parse_duration;
use crate::values::serialize;

/// `[upstreams.NAME.operations.NAME.batch]`: calls that look up different keys share one request, and its answer is
/// split again.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Batch {
    /// Parameter that holds the keys. A call passes a list or a single key. The request has the keys of all its calls.
    #[schemars(with = "String")]
    pub key: String,
    /// Parameter that lists the members a call needs of each item. The request has the fields of all its calls. Each
    /// call receives only its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub fields: Option<String>,
    /// Member of an item that holds its key. Without it, the answer is an object with the keys as names.
    #[serde(rename = "match", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub match_field: Option<String>,
    /// Member of the answer that holds the items. Without it, the answer itself is the list or object of items.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub items: Option<String>,
    /// Most keys in one request. More keys are split into several requests.
    #[schemars(with = "types::Count<1>")]
    pub max_keys: usize,
    /// How long a call may wait for others to share its request. It never waits longer than a tenth of the time to its
    /// deadline. A call can set its own: `linger = 0`.
    #[serde(serialize_with = "serialize::duration")]
    #[schemars(with = "types::DurationText")]
    pub linger: Duration,
    /// Combines calls of different requests on a worker, too. Each call then waits for `linger`.
    #[schemars(with = "types::Flag")]
    pub share: bool,
    /// Set for a statement: whether a key has one row or many. In HTTP answers, a key has one item.
    #[serde(skip)]
    pub rows: Option<Rows>,
}

impl Batch {
    /// A batch keyed by this parameter, with all defaults.
    pub fn new(key: impl Into<String>) -> Batch {
        Batch {
            key: key.into(),
            fields: None,
            match_field: None,
            items: None,
            max_keys: 100,
            linger: Duration::from_millis(2),
            share: false,
            rows: None,
        }
    }

    pub(super) fn read(mut table: Table<'_, '_>) -> Option<Batch> {
        let key = table.string("key");
        if !table.has("key") {
            table.missing("key", "write key = \"ids\", the parameter that holds the keys");
        }
        let default = Batch::new("");
        let batch = Batch {
            key: String::new(),
            fields: table.string("fields"),
            match_field: table.string("match"),
            items: table.string("items"),
            max_keys: table.count("max_keys", 1..=u64::MAX).unwrap_or(default.max_keys),
            linger: table
                .parsed("linger", "a duration such as \"2ms\"", parse_duration)
                .map_or(default.linger, |linger| linger.value),
            share: table.boolean("share").unwrap_or(default.share),
            rows: None,
        };
        if batch.share && batch.linger.is_zero() {
            table.error(
                "share",
                "needs time to collect calls of other requests, but `linger` is 0; raise it or remove this key",
            );
        }
        if batch.fields.is_some() && batch.fields == key {
            table.error("fields", "must not be the parameter that holds the keys");
        }
        table.finish();
        Some(Batch { key: key?, ..batch })
    }
}
