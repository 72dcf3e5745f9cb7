//! `[upstreams.NAME.snapshot]`: a whole table in memory, refreshed in the background.

use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use crate::reader::Table;
use crate::schema::types;
use crate::values::serialize;

/// `[upstreams.NAME.snapshot]`: a whole table in memory, fetched at start and refreshed in the background.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Snapshot {
    /// Path and query that return the whole table: `"/currencies?all=1"`.
    #[schemars(with = "types::PathTemplate")]
    pub path: String,
    /// Interval between fetches. A failed fetch is repeated sooner.
    #[serde(serialize_with = "serialize::duration")]
    #[schemars(with = "types::DurationText")]
    pub every: Duration,
    /// Member of a row that holds its key. Without it, the table is an object with the keys as names.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub key: Option<String>,
    /// Member of the answer that holds the rows. Without it, the answer itself is the table.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub items: Option<String>,
    /// File in which the table is stored, so that a restart works without the upstream.
    #[serde(serialize_with = "serialize::optional_path", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub dump: Option<PathBuf>,
    /// Accepts a table without rows even if the current one has rows. By default such a table is refused as a fault of
    /// the upstream.
    #[schemars(with = "types::Flag")]
    pub allow_empty: bool,
}

/// Extensions of files whose changes cause a reload. A dump with one of them would cause a reload at each refresh.
const WATCHED: [&str; 7] = ["toml", "star", "json", "pem", "crt", "key", "proto"];

impl Snapshot {
    /// A snapshot of this path, with all defaults.
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

    pub(super) fn read(mut table: Table<'_, '_>) -> Option<Snapshot> {
        let path = table.parsed("path", "a path such as \"/masks\"", |text| {
            let bad = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '#' | '{' | '}' | '\\');
            match text.chars().find(|c| bad(*c)) {
                _ if !text.starts_with('/') => Err(format!("`{text}` must begin with /")),
                Some(bad) => Err(format!("`{text}` must not contain {bad:?}")),
                None => Ok(text.to_owned()),
            }
        });
        if !table.has("path") {
            table.missing("path", "write path = \"/...\"");
        }
        let default = Snapshot::new("");
        let dir = table.reader().dir().to_path_buf();
        let dump = table.parsed("dump", "the path of a file", |text| {
            let file = dir.join(text);
            let extension = file.extension().and_then(|extension| extension.to_str()).unwrap_or("");
            match text {
                "" => Err("must not be empty".into()),
                _ if WATCHED.contains(&extension) => Err(format!(
                    "a change of a .{extension} file reloads the configuration; use another extension, such as .dump"
                )),
                _ => Ok(file),
            }
        });
        let snapshot = Snapshot {
            path: String::new(),
            every: table.duration("every").unwrap_or(default.every),
            key: table.string("key"),
            items: table.string("items"),
            dump: dump.map(|dump| dump.value),
            allow_empty: table.boolean("allow_empty").unwrap_or(default.allow_empty),
        };
        table.finish();
        Some(Snapshot { path: path?.value, ..snapshot })
    }
}
