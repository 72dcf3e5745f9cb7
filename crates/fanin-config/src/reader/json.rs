//! A value of the file as JSON.

use serde_json::{Map, Number, Value};
use toml::de::DeValue;

use crate::reader::item::Item;
use crate::reader::table::{Table, in_order};

impl Table<'_, '_> {
    /// Any value, as JSON. A date becomes a string.
    pub fn json(&mut self, key: &'static str) -> Option<Value> {
        let item = self.item(key)?;
        json(&item)
    }
}

/// A value as JSON, with environment variables expanded. Reports numbers that JSON cannot represent.
fn json(item: &Item<'_, '_>) -> Option<Value> {
    Some(match item.get() {
        DeValue::String(_) => Value::String(item.string("a string")?.text),
        DeValue::Boolean(value) => Value::Bool(*value),
        DeValue::Integer(integer) => match i64::from_str_radix(integer.as_str(), integer.radix()) {
            Ok(value) => value.into(),
            Err(_) => {
                item.error("does not fit into 64 bits");
                return None;
            }
        },
        DeValue::Float(float) => match float.as_str().parse().ok().and_then(Number::from_f64) {
            Some(value) => Value::Number(value),
            None => {
                item.error("JSON has no such number; write a finite one");
                return None;
            }
        },
        DeValue::Datetime(date) => Value::String(date.to_string()),
        DeValue::Array(values) => {
            let items = values.iter().enumerate().map(|(index, value)| json(&item.element(index, value)));
            Value::Array(items.collect::<Option<_>>()?)
        }
        DeValue::Table(table) => in_order(table)
            .map(|(key, value)| Some((key.get_ref().to_string(), json(&item.member(key.get_ref(), value))?)))
            .collect::<Option<Map<_, _>>>()?
            .into(),
    })
}
