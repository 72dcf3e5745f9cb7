//! Lists, and tables with free keys.

use std::ops::RangeInclusive;

use toml::de::DeValue;

use crate::reader::item::{Item, Located};
use crate::reader::table::{Table, in_order};
use crate::values::env::Expanded;

impl<'t, 'r> Table<'t, 'r> {
    /// A list of strings; if `one` is allowed, a string stands for a list of one. Invalid elements are reported and left out.
    pub fn list<T>(
        &mut self,
        key: &'static str,
        what: &str,
        one: bool,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<Vec<Located<T>>> {
        let item = self.item(key)?;
        let located = |item: &Item<'_, '_>| {
            let value = item.parsed(what, &parse)?;
            Some(Located { value, span: item.span() })
        };
        match item.get() {
            DeValue::Array(values) => Some(
                values.iter().enumerate().filter_map(|(index, value)| located(&item.element(index, value))).collect(),
            ),
            DeValue::String(_) if one => located(&item).map(|only| vec![only]),
            _ => {
                item.type_error(&format!("a list, each item {what}"), None);
                None
            }
        }
    }

    /// A list of whole numbers.
    pub fn numbers(&mut self, key: &'static str, range: RangeInclusive<u64>) -> Option<Vec<u64>> {
        let item = self.item(key)?;
        let DeValue::Array(values) = item.get() else {
            item.type_error("a list of whole numbers", None);
            return None;
        };
        Some(values.iter().enumerate().filter_map(|(index, value)| item.element(index, value).number(&range)).collect())
    }

    /// A table of strings with free keys, in the file's order.
    pub fn strings(&mut self, key: &'static str) -> Vec<(Located<String>, Expanded)> {
        self.items(key).into_iter().filter_map(|(name, item)| Some((name, item.string("a string")?))).collect()
    }

    /// The entries of a table with free keys, in the file's order.
    pub fn items(&mut self, key: &'static str) -> Vec<(Located<String>, Item<'t, 'r>)> {
        let Some(item) = self.item(key) else { return Vec::new() };
        let DeValue::Table(table) = item.get() else {
            item.type_error("a table", None);
            return Vec::new();
        };
        in_order(table)
            .map(|(key, value)| {
                let name = Located { value: key.get_ref().to_string(), span: key.span() };
                (name, item.member(key.get_ref(), value))
            })
            .collect()
    }
}
