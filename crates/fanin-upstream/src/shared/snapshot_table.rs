//! The table of a snapshot: its document, and where each row is.

use std::collections::HashMap;
use std::time::SystemTime;

use bytes::Bytes;
use fanin_config::Snapshot;
use fanin_json::{Doc, Kind, Node};

/// Deepest nesting of a table.
const MAX_DEPTH: usize = 128;

/// A table as it was at one moment.
#[derive(Debug)]
pub struct SnapshotTable {
    doc: Doc,
    /// Position of the value that contains the rows.
    rows: u32,
    /// Positions of rows by key, for lists. Objects are looked up directly.
    by_key: Option<HashMap<Box<str>, u32>>,
    len: usize,
    fetched: SystemTime,
}

impl SnapshotTable {
    /// Parses a table.
    ///
    /// # Errors
    /// What is wrong with it. A table with a row that has no key is refused as a whole, because that row could never be
    /// found.
    pub fn read(body: Bytes, config: &Snapshot, fetched: SystemTime) -> Result<SnapshotTable, String> {
        let doc = Doc::parse(body, MAX_DEPTH).map_err(|error| format!("it is not JSON: {error}"))?;
        let whole = doc.root();
        let rows = match &config.items {
            None => whole,
            Some(items) => whole.get(items).ok_or_else(|| format!("it has no {items:?}"))?,
        };
        let by_key = match (&config.key, rows.kind()) {
            (None, Kind::Object) => None,
            (None, _) => return Err("it is not an object, so `key` must name the member that identifies a row".into()),
            (Some(_), kind) if kind != Kind::Array => {
                return Err("its rows are not a list, which `key` requires".into());
            }
            (Some(key), _) => {
                let mut by_key = HashMap::with_capacity(rows.len().unwrap_or_default());
                for (at, row) in rows.elements().enumerate() {
                    let text = row.get(key).and_then(text).ok_or_else(|| format!("row {at} has no {key:?}"))?;
                    if by_key.insert(text.into(), row.at()).is_some() {
                        return Err(format!("row {at} has the same {key:?} as another"));
                    }
                }
                Some(by_key)
            }
        };
        let (rows, len) = (rows.at(), rows.len().unwrap_or_default());
        Ok(SnapshotTable { doc, rows, by_key, len, fetched })
    }

    /// The row of a key.
    pub fn get(&self, key: &str) -> Option<Node<'_>> {
        match &self.by_key {
            Some(by_key) => by_key.get(key).map(|at| self.doc.node(*at)),
            None => self.doc.node(self.rows).get(key),
        }
    }

    /// The value that contains all rows.
    pub fn rows(&self) -> Node<'_> {
        self.doc.node(self.rows)
    }

    /// The document.
    pub fn doc(&self) -> &Doc {
        &self.doc
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// When it was fetched.
    pub fn fetched(&self) -> SystemTime {
        self.fetched
    }

    /// Bytes that it takes.
    pub fn memory(&self) -> usize {
        let keys = self.by_key.as_ref().map_or(0, |map| map.keys().map(|key| key.len() + 32).sum());
        self.doc.memory() + keys
    }
}

/// A scalar as text. Keys are compared by it: `7` and `"7"` are the same key, as in a URL.
pub(crate) fn text(node: Node<'_>) -> Option<std::borrow::Cow<'_, str>> {
    node.as_number_text().map(Into::into).or_else(|| node.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &'static str, key: Option<&str>, items: Option<&str>) -> Result<SnapshotTable, String> {
        let config = Snapshot { key: key.map(Into::into), items: items.map(Into::into), ..Snapshot::new("/") };
        SnapshotTable::read(text.into(), &config, SystemTime::UNIX_EPOCH)
    }

    #[test]
    fn rows_are_found_in_lists_and_objects() {
        let list = read(r#"{"rows": [{"id": 7, "a": 1}, {"id": "x"}]}"#, Some("id"), Some("rows")).unwrap();
        assert_eq!((list.len(), list.get("7").unwrap().raw()), (2, &br#"{"id": 7, "a": 1}"#[..]));
        assert!(list.get("8").is_none());
        let object = read(r#"{"a": [1], "b": null}"#, None, None).unwrap();
        assert_eq!((object.len(), object.get("a").unwrap().raw()), (2, &b"[1]"[..]));
        assert!(object.memory() > 10 && !object.is_empty());
    }

    #[test]
    fn a_half_broken_table_is_refused_as_a_whole() {
        for (text, key, items, problem) in [
            ("{", None, None, "is not JSON"),
            ("[]", None, None, "`key` must name"),
            ("{}", Some("id"), None, "not a list"),
            ("{}", Some("id"), Some("rows"), "has no \"rows\""),
            (r#"[{"id": 1}, {"ID": 2}]"#, Some("id"), None, "row 1 has no \"id\""),
            (r#"[{"id": 1}, 2]"#, Some("id"), None, "row 1 has no \"id\""),
            (r#"[{"id": 1}, {"id": {}}]"#, Some("id"), None, "row 1 has no \"id\""),
            (r#"[{"id": 1}, {"id": "1"}]"#, Some("id"), None, "the same \"id\""),
        ] {
            let error = read(text, key, items).unwrap_err();
            assert!(error.contains(problem), "{text}: {error}");
        }
    }
}
