//! A table of the file: known keys, errors at keys, unknown keys.

use std::fmt;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::reader::item::{Item, Located};
use crate::reader::session::Reader;
use crate::reader::suggest::most_similar;

/// A table of the file. Each getter marks its key as known; [`Table::finish`] reports the keys that are left.
pub(crate) struct Table<'t, 'r> {
    pub(super) reader: &'r Reader<'r>,
    /// Dotted name; empty for the root table.
    name: String,
    pub(super) entries: &'t DeTable<'t>,
    span: Range<usize>,
    known: Vec<&'static str>,
}

impl<'t, 'r> Table<'t, 'r> {
    pub fn root(reader: &'r Reader<'r>, entries: &'t DeTable<'t>) -> Table<'t, 'r> {
        Table { reader, name: String::new(), entries, span: 0..0, known: Vec::new() }
    }

    pub fn reader(&self) -> &'r Reader<'r> {
        self.reader
    }

    /// An environment variable that is set and not empty.
    pub fn variable(&self, name: &str) -> Option<String> {
        (self.reader.env)(name).filter(|value| !value.is_empty())
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn span(&self) -> &Range<usize> {
        &self.span
    }

    pub(super) fn child(&self, key: &str) -> String {
        if self.name.is_empty() { key.to_owned() } else { format!("{}.{key}", self.name) }
    }

    pub(super) fn item(&mut self, key: &'static str) -> Option<Item<'t, 'r>> {
        self.known.push(key);
        self.entries.get(key).map(|value| Item { reader: self.reader, name: self.child(key), value })
    }

    /// The position of a key's value; `None` if the key is absent.
    pub fn span_of(&self, key: &str) -> Option<Range<usize>> {
        self.entries.get(key).map(Spanned::span)
    }

    /// Whether a key is present.
    pub fn has(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    /// Whether a key holds an empty list.
    pub fn is_empty_list(&self, key: &str) -> bool {
        self.entries.get(key).and_then(|value| value.get_ref().as_array()).is_some_and(|list| list.is_empty())
    }

    /// Records that a required key is absent. `hint` is what to write.
    pub fn missing(&self, key: &str, hint: &str) {
        let message = format!("{} needs `{key}`", if self.name.is_empty() { "the file" } else { &self.name });
        self.reader.error_hint(&self.span, message, hint);
    }

    /// Records an error at a key's value, or at the table if the key is absent.
    pub fn error(&self, key: &str, message: impl fmt::Display) {
        let span = self.span_of(key).unwrap_or(self.span.clone());
        self.reader.error(&span, format!("{}: {message}", self.child(key)));
    }

    /// Records a warning at a key's value, or at the table if the key is absent.
    pub fn warning(&self, key: &str, message: &str, hint: &str) {
        let span = self.span_of(key).unwrap_or(self.span.clone());
        self.reader.warning(&span, format!("{}: {message}", self.child(key)), hint);
    }

    /// A string, parsed. `what` names the expected type in messages.
    pub fn parsed<T>(
        &mut self,
        key: &'static str,
        what: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<Located<T>> {
        let item = self.item(key)?;
        item.parsed(what, parse).map(|value| Located { value, span: item.span() })
    }

    /// A string.
    pub fn string(&mut self, key: &'static str) -> Option<String> {
        Some(self.item(key)?.string("a string")?.text)
    }

    /// A table of the file below this one.
    pub fn table(&mut self, key: &'static str) -> Option<Table<'t, 'r>> {
        Table::from_item(&self.item(key)?)
    }

    /// Whether a key holds a number, or a variable that must stand for one.
    pub fn is_number(&self, key: &str) -> bool {
        self.entries.get(key).is_some_and(|value| match value.get_ref() {
            DeValue::Integer(_) => true,
            DeValue::String(raw) => raw.contains("${"),
            _ => false,
        })
    }

    /// Whether a key holds a whole number, written as one.
    pub fn is_integer(&self, key: &str) -> bool {
        self.entries.get(key).is_some_and(|value| matches!(value.get_ref(), DeValue::Integer(_)))
    }

    /// Whether a key holds a list.
    pub fn is_list(&self, key: &str) -> bool {
        self.entries.get(key).is_some_and(|value| value.get_ref().is_array())
    }

    /// A value that must be a table.
    pub fn from_item(item: &Item<'t, 'r>) -> Option<Table<'t, 'r>> {
        match item.get() {
            DeValue::Table(entries) => Some(Table {
                reader: item.reader,
                name: item.name.clone(),
                entries,
                span: item.span(),
                known: Vec::new(),
            }),
            _ => {
                item.type_error("a table", None);
                None
            }
        }
    }

    /// Reports every key that no getter has read.
    pub fn finish(self) {
        for (key, _) in in_order(self.entries) {
            let name: &str = key.get_ref();
            if self.known.contains(&name) {
                continue;
            }
            let location = if self.name.is_empty() { String::new() } else { format!(" in {}", self.name) };
            let hint = match most_similar(name, &self.known) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("known keys: {}", self.known.join(", ")),
            };
            self.reader.error_hint(&key.span(), format!("unknown key `{name}`{location}"), hint);
        }
    }
}

/// Entries of a table in the file's order.
pub(super) fn in_order<'t>(
    table: &'t DeTable<'t>,
) -> impl Iterator<Item = (&'t Spanned<toml::de::DeString<'t>>, &'t Spanned<DeValue<'t>>)> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries.into_iter()
}

/// Replaces a default if the file has a value.
pub(crate) fn replace<T>(default: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *default = value;
    }
}
