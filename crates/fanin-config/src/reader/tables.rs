//! Tables inside a table.

use toml::de::DeValue;

use crate::reader::item::Located;
use crate::reader::table::{Table, in_order};

/// The value of a key that holds a table, or a text that stands for one.
pub(crate) enum TableOrText<'t, 'r> {
    /// A text, which is not read yet.
    Text,
    /// A table.
    Table(Table<'t, 'r>),
}

/// The value of a key that holds a table or a fixed word, such as `"off"`.
pub(crate) enum TableOrWord<'t, 'r> {
    /// The key is absent or invalid. An invalid value is reported.
    Absent,
    /// The word.
    Word,
    /// A table.
    Table(Table<'t, 'r>),
}

impl<'t, 'r> Table<'t, 'r> {
    /// A table or one word. `what` names both in messages.
    pub fn table_or_word(&mut self, key: &'static str, what: &str, word: &str) -> TableOrWord<'t, 'r> {
        let Some(item) = self.item(key) else { return TableOrWord::Absent };
        match item.get() {
            DeValue::Table(_) => Table::from_item(&item).map_or(TableOrWord::Absent, TableOrWord::Table),
            DeValue::String(_) => {
                let is_word = item.parsed(what, |text| match text == word {
                    true => Ok(()),
                    false => Err(format!("`{text}` is not {what}")),
                });
                is_word.map_or(TableOrWord::Absent, |()| TableOrWord::Word)
            }
            _ => {
                item.type_error(what, None);
                TableOrWord::Absent
            }
        }
    }

    /// A table or a text. `None` if the key is absent or invalid. An invalid value is reported.
    pub fn table_or_text(&mut self, key: &'static str, what: &str) -> Option<TableOrText<'t, 'r>> {
        let item = self.item(key)?;
        match item.get() {
            DeValue::Table(_) => Table::from_item(&item).map(TableOrText::Table),
            DeValue::String(_) => Some(TableOrText::Text),
            _ => {
                item.type_error(what, None);
                None
            }
        }
    }

    /// A table of tables with free keys, in the file's order.
    pub fn named_tables(&mut self, key: &'static str) -> Vec<(Located<String>, Table<'t, 'r>)> {
        let Some(item) = self.item(key) else { return Vec::new() };
        let DeValue::Table(table) = item.get() else {
            item.type_error("a table of tables", Some(format!("write [{}.NAME]", item.name)));
            return Vec::new();
        };
        in_order(table)
            .filter_map(|(key, value)| {
                let table = Table::from_item(&item.member(key.get_ref(), value))?;
                Some((Located { value: key.get_ref().to_string(), span: key.span() }, table))
            })
            .collect()
    }

    /// A list of tables.
    pub fn tables(&mut self, key: &'static str) -> Vec<Table<'t, 'r>> {
        let Some(item) = self.item(key) else { return Vec::new() };
        let DeValue::Array(values) = item.get() else {
            item.type_error("a list of tables", Some(format!("write [[{}]] with two pairs of brackets", item.name)));
            return Vec::new();
        };
        values.iter().enumerate().filter_map(|(index, value)| Table::from_item(&item.element(index, value))).collect()
    }
}
