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

/// The text of a configuration file with another value of a key: `upstreams.catalog.limit`, `routes.0.timeout`, or
/// `routes."GET /products/{id}".timeout` by method and path. Comments and layout are lost.
///
/// # Errors
/// The text, the key or the value cannot be read, or there is no such list element.
pub fn set_key(text: &str, key: &str, value: &str) -> Result<String, String> {
    let mut root: toml::Table = toml::from_str(text).map_err(|error| error.message().to_owned())?;
    // Numbers, booleans, lists and quoted texts are TOML; anything else is a text, such as 80ms.
    let parsed: Option<toml::Table> = toml::from_str(&format!("value = {value}")).ok();
    let value =
        parsed.and_then(|mut table| table.remove("value")).unwrap_or_else(|| toml::Value::String(value.to_owned()));
    let steps = steps(key)?;
    let (last, before) = steps.split_last().ok_or("the key is empty")?;
    let mut at = toml::Value::Table(std::mem::take(&mut root));
    let mut here = &mut at;
    for step in before {
        here = below(here, step)?;
    }
    match here {
        toml::Value::Table(table) => drop(table.insert(last.clone(), value)),
        _ => return Err(format!("{key} is not below a table")),
    }
    match at {
        toml::Value::Table(table) => toml::to_string(&table).map_err(|error| error.to_string()),
        _ => Err("the file is no table".to_owned()),
    }
}

/// The parts of a key with dots; a part with dots is quoted.
fn steps(key: &str) -> Result<Vec<String>, String> {
    let mut steps = Vec::new();
    let mut rest = key;
    loop {
        let (step, after) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').ok_or_else(|| format!("{key}: a quote has no end"))?,
            None => rest.split_at(rest.find('.').unwrap_or(rest.len())),
        };
        if step.is_empty() {
            return Err(format!("{key:?} is no key"));
        }
        steps.push(step.to_owned());
        match after.strip_prefix('.') {
            Some(next) => rest = next,
            None if after.is_empty() => return Ok(steps),
            None => return Err(format!("{key:?} is no key")),
        }
    }
}

/// The table or the element with this name; a new table if there is none.
fn below<'a>(value: &'a mut toml::Value, step: &str) -> Result<&'a mut toml::Value, String> {
    match value {
        toml::Value::Table(table) => Ok(table.entry(step).or_insert_with(|| toml::Value::Table(toml::Table::new()))),
        toml::Value::Array(all) => {
            let label = |one: &toml::Value| {
                let part = |name: &str| one.get(name).and_then(toml::Value::as_str);
                format!("{} {}", part("method").unwrap_or("GET"), part("path").unwrap_or_default())
            };
            let found = step.parse::<usize>().ok().or_else(|| all.iter().position(|one| label(one) == step));
            let number = all.len();
            found.and_then(|at| all.get_mut(at)).ok_or_else(|| format!("there is no {step:?} among {number} elements"))
        }
        _ => Err(format!("{step:?} is not below a table")),
    }
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
    fn keys_are_set() {
        let text = "[upstreams.a]\nlimit = 8\n[[routes]]\npath = '/x.y'\n";
        let set = |key: &str, value: &str| set_key(text, key, value);
        let read = |text: Result<String, String>| toml::from_str::<toml::Table>(&text.unwrap()).unwrap();
        assert_eq!(read(set("upstreams.a.limit", "32"))["upstreams"]["a"]["limit"].as_integer(), Some(32));
        assert_eq!(read(set("upstreams.a.timeout", "80ms"))["upstreams"]["a"]["timeout"].as_str(), Some("80ms"));
        assert_eq!(read(set("upstreams.a.retry.max", "1"))["upstreams"]["a"]["retry"]["max"].as_integer(), Some(1));
        for key in ["routes.0.timeout", "routes.\"GET /x.y\".timeout"] {
            assert_eq!(read(set(key, "\"1s\""))["routes"][0]["timeout"].as_str(), Some("1s"), "{key}");
        }
        for wrong in ["", ".", "a..b", "routes.7.timeout", "upstreams.a.limit.x", "\"a"] {
            assert!(set(wrong, "1").is_err(), "{wrong}");
        }
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
