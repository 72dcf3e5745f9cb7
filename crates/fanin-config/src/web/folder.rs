//! `folder` of a route: files of a folder, without a flow.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Serialize;

use crate::reader::{Table, TableOrText};
use crate::schema::types;
use crate::values::serialize;

/// `folder` of a route: a folder whose files are served. A path alone is a table with all defaults.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Folder {
    /// The folder, relative to the folder of `fanin.toml`.
    #[serde(serialize_with = "serialize::path")]
    #[schemars(with = "String")]
    pub path: PathBuf,
    /// The file that stands for a folder. `"off"`: none does.
    #[serde(serialize_with = "serialize::or_off")]
    #[schemars(with = "types::Text")]
    pub index: Option<String>,
    /// The file that is sent where there is none, with status 200: the page of an application that routes in the browser. Paths whose last
    /// part has a dot are still answered with 404.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "types::Text")]
    pub fallback: Option<String>,
    /// Sends `FILE.br` or `FILE.gz` in place of `FILE`, if it is there and the client accepts it.
    #[schemars(with = "types::Flag")]
    pub precompressed: bool,
}

impl Folder {
    /// A folder with all defaults.
    pub fn new(path: impl Into<PathBuf>) -> Folder {
        Folder { path: path.into(), index: Some("index.html".to_owned()), fallback: None, precompressed: true }
    }

    /// Reads `folder` of a route.
    pub(crate) fn of_route(table: &mut Table<'_, '_>) -> Option<Folder> {
        let mut table = match table.table_or_text("folder", "a folder's path, or a table")? {
            TableOrText::Text => return table.folder("folder").map(Folder::new),
            TableOrText::Table(table) => table,
        };
        let path = table.folder("path");
        if !table.has("path") {
            table.missing("path", "write path = \"public\"");
        }
        let mut folder = Folder::new(path.clone().unwrap_or_default());
        let index = table.parsed("index", "a file's name, or \"off\"", |text| match text {
            "off" => Ok(None),
            text if is_name(text) && !text.contains('/') => Ok(Some(text.to_owned())),
            text => Err(format!("`{text}` is no file's name; write one such as \"index.html\", or \"off\"")),
        });
        if let Some(index) = index {
            folder.index = index.value;
        }
        let fallback = table.parsed("fallback", "a file of the folder", |text| match is_name(text) {
            true => Ok(text.to_owned()),
            false => Err(format!("`{text}` is no file of the folder; write a name such as \"index.html\"")),
        });
        folder.fallback = fallback.map(|at| at.value);
        if let (Some(root), Some(file)) = (&path, &folder.fallback)
            && root.is_dir()
            && !root.join(file).is_file()
        {
            table.error("fallback", format_args!("there is no file {}", root.join(file).display()));
        }
        folder.precompressed = table.boolean("precompressed").unwrap_or(true);
        table.finish();
        path.map(|_| folder)
    }
}

/// Whether it is the name of a file below the folder that is no hidden one.
fn is_name(text: &str) -> bool {
    !text.is_empty() && text.split('/').all(|part| !part.is_empty() && !part.starts_with('.')) && !text.contains('\\')
}
