//! A table of the file, read key by key.

use std::fmt;
use std::ops::{Range, RangeInclusive};
use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderName, Method};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::env::Expanded;
use crate::read::{At, Item, METHODS, Reader, header_name, nearest, saturated};
use crate::{parse_duration, parse_size};

/// What a key holds that is a table or a certain word.
pub(crate) enum Choice<'t, 'r> {
    /// Nothing, or something else, which has been noted.
    Absent,
    /// The word.
    Word,
    /// A table.
    Table(Table<'t, 'r>),
}

/// A table of the file. Every key that is asked for is known; [`Table::finish`] refuses the others.
pub(crate) struct Table<'t, 'r> {
    reader: &'r Reader<'r>,
    /// Dotted name; empty for the file itself.
    name: String,
    entries: &'t DeTable<'t>,
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

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn span(&self) -> &Range<usize> {
        &self.span
    }

    fn child(&self, key: &str) -> String {
        if self.name.is_empty() { key.to_owned() } else { format!("{}.{key}", self.name) }
    }

    fn item(&mut self, key: &'static str) -> Option<Item<'t, 'r>> {
        self.known.push(key);
        self.entries.get(key).map(|value| Item { reader: self.reader, name: self.child(key), value })
    }

    /// Where a key's value stands, if the key is there.
    pub fn at(&self, key: &str) -> Option<Range<usize>> {
        self.entries.get(key).map(Spanned::span)
    }

    /// Whether a key holds a list with nothing in it.
    pub fn is_empty_list(&self, key: &str) -> bool {
        self.entries.get(key).and_then(|value| value.get_ref().as_array()).is_some_and(|list| list.is_empty())
    }

    /// Says that a key is needed and absent.
    pub fn missing(&self, key: &str, hint: &str) {
        let message = format!("{} needs `{key}`", if self.name.is_empty() { "the file" } else { &self.name });
        self.reader.error_hint(&self.span, message, hint);
    }

    /// Says that a key's value can't be used; at the table if the key is absent.
    pub fn error(&self, key: &str, message: impl fmt::Display) {
        let span = self.at(key).unwrap_or(self.span.clone());
        self.reader.error(&span, format!("{}: {message}", self.child(key)));
    }

    /// Says that a key's value is hardly meant so.
    pub fn warning(&self, key: &str, message: &str, hint: &str) {
        let span = self.at(key).unwrap_or(self.span.clone());
        self.reader.warning(&span, format!("{}: {message}", self.child(key)), hint);
    }

    pub fn parsed<T>(
        &mut self,
        key: &'static str,
        what: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<At<T>> {
        let item = self.item(key)?;
        item.parsed(what, parse).map(|value| At { value, span: item.span() })
    }

    pub fn text(&mut self, key: &'static str) -> Option<String> {
        Some(self.item(key)?.text("a string")?.text)
    }

    pub fn path(&mut self, key: &'static str) -> Option<PathBuf> {
        let dir = self.reader.dir();
        let file = self.parsed(key, "a file's path", |text| match text {
            "" => Err("is empty".into()),
            text => Ok(dir.join(text)),
        })?;
        if !file.value.is_file() {
            self.error(key, format_args!("there is no file {}", file.value.display()));
            return None;
        }
        Some(file.value)
    }

    /// A folder.
    pub fn folder(&mut self, key: &'static str) -> Option<PathBuf> {
        let dir = self.reader.dir();
        let folder = self.parsed(key, "a folder's path", |text| match text {
            "" => Err("is empty".into()),
            text => Ok(dir.join(text)),
        })?;
        if !folder.value.is_dir() {
            self.error(key, format_args!("there is no folder {}", folder.value.display()));
        }
        Some(folder.value)
    }

    /// A duration above zero.
    pub fn duration(&mut self, key: &'static str) -> Option<Duration> {
        let item = self.item(key)?;
        let what = "a duration such as \"100ms\"";
        if let DeValue::Integer(integer) = item.get() {
            item.wrong(what, Some(format!("did you mean \"{0}ms\" or \"{0}s\"?", integer.as_str())));
            return None;
        }
        let duration = item.parsed(what, parse_duration)?;
        if duration.is_zero() {
            item.error("must be longer than zero");
            return None;
        }
        Some(duration)
    }

    /// A size in bytes, at least `least`.
    pub fn size(&mut self, key: &'static str, least: u64) -> Option<usize> {
        let item = self.item(key)?;
        let bytes = match item.get() {
            DeValue::Integer(_) => item.number(&(0..=i64::MAX as u64))?,
            _ => item.parsed("a size such as \"16MB\"", parse_size)?,
        };
        if bytes < least {
            item.error(format_args!("{bytes} bytes is below the least, {least}"));
            return None;
        }
        Some(saturated(bytes))
    }

    /// A whole number in a range.
    pub fn count(&mut self, key: &'static str, range: RangeInclusive<u64>) -> Option<usize> {
        self.number(key, range).map(saturated)
    }

    pub fn number(&mut self, key: &'static str, range: RangeInclusive<u64>) -> Option<u64> {
        self.item(key)?.number(&range)
    }

    /// A number with or without a fraction, in a range.
    pub fn float(&mut self, key: &'static str, least: f64, most: f64) -> Option<f64> {
        let item = self.item(key)?;
        let number = match item.get() {
            DeValue::Float(float) => float.as_str().parse().ok(),
            DeValue::Integer(integer) => i64::from_str_radix(integer.as_str(), integer.radix()).ok().map(|n| n as f64),
            // A variable can stand for a number; a plain string can't.
            DeValue::String(raw) if raw.contains("${") => Some(
                item.parsed("a number", |text| text.trim().parse().map_err(|_| format!("`{text}` is not a number")))?,
            ),
            _ => None,
        };
        let Some(number) = number else {
            item.wrong("a number", None);
            return None;
        };
        if (least..=most).contains(&number) {
            return Some(number);
        }
        match most {
            f64::MAX => item.error(format_args!("{number} is below the least, {least}")),
            most => item.error(format_args!("{number} is not between {least} and {most}")),
        }
        None
    }

    pub fn flag(&mut self, key: &'static str) -> Option<bool> {
        let item = self.item(key)?;
        match item.get() {
            DeValue::Boolean(value) => Some(*value),
            DeValue::String(raw) if raw.contains("${") => item.parsed("true or false", |text| match text {
                "true" => Ok(true),
                "false" => Ok(false),
                _ => Err(format!("`{text}` is neither true nor false")),
            }),
            _ => {
                item.wrong("true or false", None);
                None
            }
        }
    }

    /// One of some words.
    pub fn choice<T: Copy>(&mut self, key: &'static str, choices: &[(&str, T)]) -> Option<T> {
        let words = choices.iter().map(|(word, _)| format!("\"{word}\"")).collect::<Vec<_>>().join(" or ");
        let chosen = self.parsed(key, &words, |text| {
            choices
                .iter()
                .find(|(word, _)| *word == text)
                .map(|(_, value)| *value)
                .ok_or_else(|| format!("`{text}` is not {words}"))
        });
        chosen.map(|at| at.value)
    }

    /// Names of headers.
    pub fn header(&mut self, key: &'static str) -> Option<Option<HeaderName>> {
        let name = self.parsed(key, "a header's name or \"off\"", |text| match text {
            "off" => Ok(None),
            text => header_name(text).map(Some),
        });
        name.map(|at| at.value)
    }

    pub fn method(&mut self, key: &'static str) -> Option<Method> {
        let method = self.parsed(key, "an HTTP method", |text| {
            if METHODS.contains(&text) {
                return Method::from_bytes(text.as_bytes()).map_err(|error| error.to_string());
            }
            Err(format!("`{text}` is not one of {}", METHODS.join(", ")))
        });
        method.map(|at| at.value)
    }

    /// A list of strings; if `one` is allowed, a string alone is a list of it. Items that can't be read are left out.
    pub fn list<T>(
        &mut self,
        key: &'static str,
        what: &str,
        one: bool,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<Vec<At<T>>> {
        let item = self.item(key)?;
        match item.get() {
            DeValue::Array(values) => Some(
                values
                    .iter()
                    .enumerate()
                    .map(|(index, value)| Item { reader: self.reader, name: format!("{}[{index}]", item.name), value })
                    .filter_map(|item| item.parsed(what, &parse).map(|value| At { value, span: item.span() }))
                    .collect(),
            ),
            DeValue::String(_) if one => item.parsed(what, &parse).map(|value| vec![At { value, span: item.span() }]),
            _ => {
                item.wrong(&format!("a list, each item {what}"), None);
                None
            }
        }
    }

    /// A list of whole numbers.
    pub fn numbers(&mut self, key: &'static str, range: RangeInclusive<u64>) -> Option<Vec<u64>> {
        let item = self.item(key)?;
        let DeValue::Array(values) = item.get() else {
            item.wrong("a list of whole numbers", None);
            return None;
        };
        Some(
            values
                .iter()
                .enumerate()
                .map(|(index, value)| Item { reader: self.reader, name: format!("{}[{index}]", item.name), value })
                .filter_map(|item| item.number(&range))
                .collect(),
        )
    }

    /// A table of strings with free keys: key, value, where.
    pub fn strings(&mut self, key: &'static str) -> Vec<(At<String>, Expanded)> {
        let Some(item) = self.item(key) else {
            return Vec::new();
        };
        let DeValue::Table(table) = item.get() else {
            item.wrong("a table", None);
            return Vec::new();
        };
        in_order(table)
            .filter_map(|(key, value)| {
                let name = format!("{}.{}", item.name, key.get_ref());
                let text = Item { reader: self.reader, name, value }.text("a string")?;
                Some((At { value: key.get_ref().to_string(), span: key.span() }, text))
            })
            .collect()
    }

    /// A table of the file below this one.
    pub fn table(&mut self, key: &'static str) -> Option<Table<'t, 'r>> {
        let item = self.item(key)?;
        self.inner(&item)
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

    /// A table of the file below this one, or one word in its place. `what` names both for messages.
    pub fn table_or(&mut self, key: &'static str, what: &str, word: &str) -> Choice<'t, 'r> {
        let Some(item) = self.item(key) else { return Choice::Absent };
        match item.get() {
            DeValue::Table(_) => self.inner(&item).map_or(Choice::Absent, Choice::Table),
            DeValue::String(_) => {
                let is_word = item.parsed(what, |text| match text == word {
                    true => Ok(()),
                    false => Err(format!("`{text}` is not {what}")),
                });
                is_word.map_or(Choice::Absent, |()| Choice::Word)
            }
            _ => {
                item.wrong(what, None);
                Choice::Absent
            }
        }
    }

    /// Any value, as JSON; a date as its text.
    pub fn value(&mut self, key: &'static str) -> Option<serde_json::Value> {
        let item = self.item(key)?;
        json(&item)
    }

    /// The entries of a table with free keys, in the file's order.
    pub fn items(&mut self, key: &'static str) -> Vec<(At<String>, Item<'t, 'r>)> {
        let Some(item) = self.item(key) else {
            return Vec::new();
        };
        let DeValue::Table(table) = item.get() else {
            item.wrong("a table", None);
            return Vec::new();
        };
        in_order(table)
            .map(|(key, value)| {
                let name = format!("{}.{}", item.name, key.get_ref());
                let at = At { value: key.get_ref().to_string(), span: key.span() };
                (at, Item { reader: self.reader, name, value })
            })
            .collect()
    }

    /// The table that a value is.
    pub fn of(item: &Item<'t, 'r>) -> Option<Table<'t, 'r>> {
        inner(item)
    }

    /// A table of tables with free keys, in the file's order.
    pub fn named_tables(&mut self, key: &'static str) -> Vec<(At<String>, Table<'t, 'r>)> {
        let Some(item) = self.item(key) else {
            return Vec::new();
        };
        let DeValue::Table(table) = item.get() else {
            item.wrong("a table of tables", Some(format!("write [{}.NAME]", item.name)));
            return Vec::new();
        };
        in_order(table)
            .filter_map(|(key, value)| {
                let name = format!("{}.{}", item.name, key.get_ref());
                let table = self.inner(&Item { reader: self.reader, name, value })?;
                Some((At { value: key.get_ref().to_string(), span: key.span() }, table))
            })
            .collect()
    }

    /// A list of tables.
    pub fn tables(&mut self, key: &'static str) -> Vec<Table<'t, 'r>> {
        let Some(item) = self.item(key) else {
            return Vec::new();
        };
        let DeValue::Array(values) = item.get() else {
            item.wrong("a list of tables", Some(format!("write [[{}]] with two pairs of brackets", item.name)));
            return Vec::new();
        };
        values
            .iter()
            .enumerate()
            .filter_map(|(index, value)| {
                self.inner(&Item { reader: self.reader, name: format!("{}[{index}]", item.name), value })
            })
            .collect()
    }

    fn inner(&self, item: &Item<'t, 'r>) -> Option<Table<'t, 'r>> {
        inner(item)
    }

    /// Refuses all keys that nobody asked for.
    pub fn finish(self) {
        for (key, _) in in_order(self.entries) {
            let name: &str = key.get_ref();
            if self.known.contains(&name) {
                continue;
            }
            let place = if self.name.is_empty() { String::new() } else { format!(" in {}", self.name) };
            let hint = match nearest(name, &self.known) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("known are {}", self.known.join(", ")),
            };
            self.reader.error_hint(&key.span(), format!("unknown key `{name}`{place}"), hint);
        }
    }
}

fn inner<'t, 'r>(item: &Item<'t, 'r>) -> Option<Table<'t, 'r>> {
    match item.get() {
        DeValue::Table(entries) => {
            Some(Table { reader: item.reader, name: item.name.clone(), entries, span: item.span(), known: Vec::new() })
        }
        _ => {
            item.wrong("a table", None);
            None
        }
    }
}

/// A value as JSON, with its variables put in. Numbers that JSON does not have are noted.
fn json(item: &Item<'_, '_>) -> Option<serde_json::Value> {
    use serde_json::Value;
    Some(match item.get() {
        DeValue::String(_) => Value::String(item.text("a string")?.text),
        DeValue::Boolean(value) => Value::Bool(*value),
        DeValue::Integer(integer) => match i64::from_str_radix(integer.as_str(), integer.radix()) {
            Ok(value) => value.into(),
            Err(_) => {
                item.error("is too large a number");
                return None;
            }
        },
        DeValue::Float(float) => match float.as_str().parse().ok().and_then(serde_json::Number::from_f64) {
            Some(value) => Value::Number(value),
            None => {
                item.error("is no number that can be sent");
                return None;
            }
        },
        DeValue::Datetime(date) => Value::String(date.to_string()),
        DeValue::Array(values) => {
            let items = values.iter().enumerate().map(|(index, value)| Item {
                reader: item.reader,
                name: format!("{}[{index}]", item.name),
                value,
            });
            Value::Array(items.map(|item| json(&item)).collect::<Option<_>>()?)
        }
        DeValue::Table(table) => in_order(table)
            .map(|(key, value)| {
                let name = format!("{}.{}", item.name, key.get_ref());
                Some((key.get_ref().to_string(), json(&Item { reader: item.reader, name, value })?))
            })
            .collect::<Option<serde_json::Map<_, _>>>()?
            .into(),
    })
}

/// Entries of a table in the file's order.
fn in_order<'t>(
    table: &'t DeTable<'t>,
) -> impl Iterator<Item = (&'t Spanned<toml::de::DeString<'t>>, &'t Spanned<DeValue<'t>>)> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries.into_iter()
}
