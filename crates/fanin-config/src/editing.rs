//! What an editor has open and has not written yet.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use toml::de::DeTable;

/// Texts that take precedence over the files on disk, and flow files that are checked although no route names them. Empty outside of
/// editors. A clone is one reference count.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Editing(Arc<Open>);

#[derive(Debug, Default, PartialEq)]
struct Open {
    texts: HashMap<PathBuf, String>,
    flows: Vec<String>,
}

impl Editing {
    /// Texts by canonical path, and names of flow files below the configuration's folder.
    #[must_use]
    pub fn new(texts: HashMap<PathBuf, String>, flows: Vec<String>) -> Editing {
        Editing(Arc::new(Open { texts, flows }))
    }

    /// The text of a file that is open. A file that does not exist yet is looked up by its folder's canonical path.
    #[must_use]
    pub fn text(&self, path: &Path) -> Option<&str> {
        if self.0.texts.is_empty() {
            return None;
        }
        self.0.texts.get(&canonical(path)).map(String::as_str)
    }

    /// Flow files that are checked although no route names them.
    #[must_use]
    pub fn flows(&self) -> &[String] {
        &self.0.flows
    }
}

/// A path without links, also of a file that does not exist yet in a folder that does.
#[must_use]
pub fn canonical(path: &Path) -> PathBuf {
    if let Ok(real) = path.canonicalize() {
        return real;
    }
    match (path.parent(), path.file_name()) {
        (Some(folder), Some(name)) => {
            let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
            folder.canonicalize().map_or_else(|_| path.to_path_buf(), |folder| folder.join(name))
        }
        _ => path.to_path_buf(),
    }
}

/// The place of a key in the text of a configuration file: `["upstreams", "catalog"]`.
#[must_use]
pub fn locate(text: &str, path: &[&str]) -> Option<Range<usize>> {
    let (root, _) = DeTable::parse_recoverable(text);
    let mut table = root.get_ref();
    let (last, before) = path.split_last()?;
    for name in before {
        table = table.get(*name)?.get_ref().as_table()?;
    }
    table.keys().find(|key| key.get_ref() == last).map(|key| key.span())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_by_their_path() {
        let text = "[upstreams.a]\nurl = 'x'\n[upstreams.b.operations]\nget_it = { path = '/' }\n";
        let at = |path: &[&str]| locate(text, path).map(|range| &text[range]);
        assert_eq!(at(&["upstreams", "a"]), Some("a"));
        assert_eq!(at(&["upstreams", "b", "operations", "get_it"]), Some("get_it"));
        assert_eq!(at(&["upstreams", "c"]), None);
    }

    #[test]
    fn open_texts_take_precedence() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = canonical(&dir.path().join("new.star"));
        let editing = Editing::new(HashMap::from([(file, "x".to_owned())]), vec!["new.star".to_owned()]);
        assert_eq!(editing.text(&dir.path().join("new.star")), Some("x"));
        assert_eq!(editing.text(&dir.path().join("other.star")), None);
        assert_eq!(Editing::default().text(dir.path()), None);
    }
}
