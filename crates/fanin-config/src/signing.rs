//! `[signing]`: keys by which flows sign what clients keep.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Serialize;

use crate::reader::Table;
use crate::schema::types;
use crate::values::serialize;

/// `[signing]`: keys of `sign()` and `unsign()` in flows, by which values in cookies and links come back unchanged.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Signing {
    /// Files with a key each, of at least 32 bytes: `["signing.key"]`. The first one signs, all of them verify. To replace a key, put the new
    /// one in front, and remove the old one when nothing that it signed is in use.
    #[serde(serialize_with = "serialize::paths")]
    #[schemars(with = "types::OneOrMore<types::Text>")]
    pub key_files: Vec<PathBuf>,
}

impl Signing {
    pub(crate) fn read(mut table: Table<'_, '_>) -> Option<Signing> {
        let dir = table.reader().dir().to_path_buf();
        if table.is_empty_list("key_files") {
            table.error("key_files", "needs at least one file");
        }
        if !table.has("key_files") {
            table.missing("key_files", "write key_files = [\"signing.key\"]");
        }
        let found = table.list("key_files", "a file's path", true, |text| {
            let file = dir.join(text);
            match file.is_file() {
                true => Ok(file),
                false => Err(format!("there is no file {}", file.display())),
            }
        });
        table.finish();
        let key_files: Vec<PathBuf> = found?.into_iter().map(|at| at.value).collect();
        (!key_files.is_empty()).then_some(Signing { key_files })
    }
}
