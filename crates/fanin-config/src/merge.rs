//! What spares an upstream work: batches, caches, snapshots.

use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use crate::statement::Rows;
use crate::table::Table;
use crate::{parse_duration, schema, text};

/// `[upstreams.NAME.operations.NAME.batch]`: calls of a keyed look-up merge into one request, and its answer is split again.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Batch {
    /// The parameter that holds the keys: a list, or a single one. Keys of merged calls are united.
    #[schemars(with = "String")]
    pub key: String,
    /// The parameter that lists the wanted members of each item. They are united, and each call gets only those it asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub fields: Option<String>,
    /// The member of an item that holds its key. Without it the answer is an object that has each item under its key.
    #[serde(rename = "match", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub match_field: Option<String>,
    /// The member of the answer that holds the items. Without it the answer itself does.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub items: Option<String>,
    /// Keys in one request; more are spread over several.
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
    /// Of a statement's batch: whether a key has one row or many. What HTTP gives for a key is one item.
    #[serde(skip)]
    pub rows: Option<Rows>,
}

impl Batch {
    /// A batch by this parameter, with all defaults.
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

    pub(crate) fn read(mut table: Table<'_, '_>) -> Option<Batch> {
        let key = table.text("key");
        if table.at("key").is_none() {
            table.missing("key", "key = \"ids\": the parameter that holds the keys");
        }
        let default = Batch::new("");
        let batch = Batch {
            key: String::new(),
            fields: table.text("fields"),
            match_field: table.text("match"),
            items: table.text("items"),
            max_keys: table.count("max_keys", 1..=u64::MAX).unwrap_or(default.max_keys),
            linger: table
                .parsed("linger", "a duration such as \"2ms\"", parse_duration)
                .map_or(default.linger, |linger| linger.value),
            share: table.flag("share").unwrap_or(default.share),
            rows: None,
        };
        if batch.share && batch.linger.is_zero() {
            table.error("share", "has no time to find calls of other requests: linger is 0");
        }
        if batch.fields.is_some() && batch.fields == key {
            table.error("fields", "is the parameter that holds the keys");
        }
        table.finish();
        Some(Batch { key: key?, ..batch })
    }
}

/// `[upstreams.NAME.operations.NAME.cache]`: answers that are used again; of an operation with a `batch` each item by itself.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Cache {
    /// How long an answer is used again.
    #[serde(serialize_with = "text::duration")]
    #[schemars(with = "schema::DurationText")]
    pub ttl: Duration,
    /// How much longer it is used while a new one is fetched in the background (stale-while-revalidate).
    #[serde(serialize_with = "text::duration")]
    #[schemars(with = "schema::DurationText")]
    pub stale: Duration,
    /// How long after its `ttl` it is used when the upstream fails (stale-if-error).
    #[serde(serialize_with = "text::duration")]
    #[schemars(with = "schema::DurationText")]
    pub stale_if_error: Duration,
    /// How long a 404 or 410 is remembered, and of an operation with a `batch` that there is nothing under a key; not at all by
    /// default.
    #[serde(serialize_with = "text::duration")]
    #[schemars(with = "schema::DurationText")]
    pub negative: Duration,
    /// Bytes that all answers or items together may take, keys and headers included.
    #[serde(serialize_with = "text::size")]
    #[schemars(with = "schema::Size<1>")]
    pub max_size: usize,
    /// Whether an answer's `cache-control` has the last word: `no-store`, `no-cache` and `private` keep it out, `max-age`,
    /// `s-maxage`, `stale-while-revalidate` and `stale-if-error` stand in for the times above.
    #[schemars(with = "schema::Flag")]
    pub cache_control: bool,
}

impl Cache {
    /// A cache that keeps answers so long, with all defaults.
    pub fn new(ttl: Duration) -> Cache {
        Cache {
            ttl,
            stale: Duration::ZERO,
            stale_if_error: Duration::ZERO,
            negative: Duration::ZERO,
            max_size: 16 << 20,
            cache_control: false,
        }
    }

    pub(crate) fn read(mut table: Table<'_, '_>) -> Option<Cache> {
        let ttl = table.duration("ttl");
        if table.at("ttl").is_none() {
            table.missing("ttl", "ttl = \"1m\"");
        }
        let mut longest = |key| {
            table
                .parsed(key, "a duration such as \"1m\"", parse_duration)
                .map_or(Duration::ZERO, |duration| duration.value)
        };
        let (stale, stale_if_error, negative) = (longest("stale"), longest("stale_if_error"), longest("negative"));
        let default = Cache::new(Duration::ZERO);
        let cache = Cache {
            ttl: Duration::ZERO,
            stale,
            stale_if_error,
            negative,
            max_size: table.size("max_size", 1).unwrap_or(default.max_size),
            cache_control: table.flag("cache_control").unwrap_or(default.cache_control),
        };
        table.finish();
        Some(Cache { ttl: ttl?, ..cache })
    }
}

/// `[upstreams.NAME.snapshot]`: a whole table, fetched at the start and again and again in the background, looked up in memory.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Snapshot {
    /// Path and query that give the whole table.
    #[schemars(with = "schema::PathTemplate")]
    pub path: String,
    /// How often it is fetched. A failed fetch is tried again sooner.
    #[serde(serialize_with = "text::duration")]
    #[schemars(with = "schema::DurationText")]
    pub every: Duration,
    /// The member of a row that holds its key. Without it the table is an object that has each row under its key.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub key: Option<String>,
    /// The member of the answer that holds the rows. Without it the answer itself does.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub items: Option<String>,
    /// File in which the table is kept, so that a restart does not need the service.
    #[serde(serialize_with = "text::optional_path", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub dump: Option<PathBuf>,
    /// Whether a table without rows may take the place of one with rows.
    #[schemars(with = "schema::Flag")]
    pub allow_empty: bool,
}

/// Files that are watched because the configuration may be made of them; a dump among them would cause a reload each time.
const WATCHED: [&str; 7] = ["toml", "star", "json", "pem", "crt", "key", "proto"];

impl Snapshot {
    /// A snapshot of what this path gives, with all defaults.
    pub fn new(path: impl Into<String>) -> Snapshot {
        Snapshot {
            path: path.into(),
            every: Duration::from_secs(300),
            key: None,
            items: None,
            dump: None,
            allow_empty: false,
        }
    }

    pub(crate) fn read(mut table: Table<'_, '_>) -> Option<Snapshot> {
        let path = table.parsed("path", "a path such as \"/masks\"", |text| {
            let bad = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '#' | '{' | '}' | '\\');
            match text.chars().find(|c| bad(*c)) {
                _ if !text.starts_with('/') => Err(format!("`{text}` must begin with /")),
                Some(bad) => Err(format!("`{text}` must not hold {bad:?}")),
                None => Ok(text.to_owned()),
            }
        });
        if table.at("path").is_none() {
            table.missing("path", "path = \"/...\"");
        }
        let default = Snapshot::new("");
        let dir = table.reader().dir().to_path_buf();
        let dump = table.parsed("dump", "a file's path", |text| {
            let file = dir.join(text);
            let extension = file.extension().and_then(|extension| extension.to_str()).unwrap_or("");
            match text {
                "" => Err("is empty".into()),
                _ if WATCHED.contains(&extension) => Err(format!(
                    "files that end with .{extension} are watched for changes of the configuration; take another ending"
                )),
                _ => Ok(file),
            }
        });
        let snapshot = Snapshot {
            path: String::new(),
            every: table.duration("every").unwrap_or(default.every),
            key: table.text("key"),
            items: table.text("items"),
            dump: dump.map(|dump| dump.value),
            allow_empty: table.flag("allow_empty").unwrap_or(default.allow_empty),
        };
        table.finish();
        Some(Snapshot { path: path?.value, ..snapshot })
    }
}
