//! The keys and fields that a call of a batched operation requests.

use fanin_config::{Batch, Rows};
use fanin_lang::value::view;
use fanin_lang::{Failure, Value, ValueKind};
use fanin_upstream::shared::{KeyParts, RequestKey};

use crate::call::{Arguments, argument_error, text};

/// A key as text. In a URL, `7` and `"7"` are the same key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) text: Box<str>,
    /// Whether it was a string, which matters in JSON.
    pub(crate) quoted: bool,
}

/// The keys and fields of a call.
#[derive(Debug)]
pub(crate) struct RequestedKeys {
    /// Distinct, in the order of the call.
    pub(crate) keys: Vec<Key>,
    /// A single key was given, so the answer is the item, not a list.
    pub(crate) single: bool,
    /// The requested fields of each item; `None` for all.
    pub(crate) fields: Option<Vec<Box<str>>>,
}

impl RequestedKeys {
    /// Reads them from a call's arguments, which must not be pending.
    ///
    /// # Errors
    /// Keys or fields that are neither strings nor numbers.
    pub(crate) fn read(name: &str, batch: &Batch, arguments: &Arguments) -> Result<RequestedKeys, Failure> {
        let invalid = || {
            argument_error(format!("{} of a call of {name} must be a string, a number or a list of these", batch.key))
        };
        let given = arguments
            .named(&batch.key)
            .ok_or_else(|| argument_error(format!("a call of {name} needs the parameter {}", batch.key)))?;
        let given = given.decide().map_err(|_| invalid())?;
        let mut keys: Vec<Key> = Vec::new();
        let single = !is_list(&given);
        match single {
            true => keys.push(key(&given).ok_or_else(invalid)?),
            false => {
                let elements = view::elements(&given).map_err(|_| invalid())?;
                keys.reserve(elements.len());
                // Comparing a few is faster than hashing.
                let mut seen = std::collections::HashSet::new();
                for element in &elements {
                    let key = key(element).ok_or_else(invalid)?;
                    let new = match elements.len() {
                        0..=16 => !keys.iter().any(|other| other.text == key.text),
                        _ => seen.insert(key.text.clone()),
                    };
                    if new {
                        keys.push(key);
                    }
                }
            }
        }
        let fields = match batch.fields.as_ref().and_then(|fields| arguments.named(fields)) {
            None => None,
            Some(value) => fields(value)
                .ok_or_else(|| argument_error(format!("the fields of a call of {name} must be a list of names")))?,
        };
        // With many rows per key, the answer is always a list.
        Ok(RequestedKeys { keys, single: single && batch.rows != Some(Rows::Many), fields })
    }

    /// Appends keys and fields to the key that identifies a call.
    pub(crate) fn append_to_key(&self, key: &mut Vec<u8>) {
        key.push(u8::from(self.single));
        key.extend_from_slice(&(self.keys.len() as u64).to_le_bytes());
        for one in &self.keys {
            RequestKey::piece(key, one.text.as_bytes());
            key.push(u8::from(one.quoted));
        }
        key.push(u8::from(self.fields.is_some()));
        for field in self.fields.iter().flatten() {
            RequestKey::piece(key, field.as_bytes());
        }
    }

    /// The keys in what [`append_to_key`](Self::append_to_key) has appended, and whether a single one was given.
    pub(crate) fn keys_of(mut appended: &[u8]) -> Option<(bool, Vec<&[u8]>)> {
        let (single, rest) = appended.split_first()?;
        appended = rest;
        let count = KeyParts::number(&mut appended)?;
        let mut keys = Vec::new();
        for _ in 0..count {
            keys.push(KeyParts::piece(&mut appended)?);
            (_, appended) = appended.split_first()?;
        }
        Some((*single == 1, keys))
    }

    /// Whether a field of this name is requested. A requested field may be a path: `price.amount` requests `price`.
    pub(crate) fn wants(&self, name: &str) -> bool {
        let Some(fields) = &self.fields else { return true };
        fields.iter().any(|field| match field.strip_prefix(name) {
            Some(rest) => rest.is_empty() || rest.starts_with('.'),
            None => false,
        })
    }
}

fn is_list(value: &Value) -> bool {
    matches!(view::kind(value), ValueKind::List | ValueKind::Tuple | ValueKind::Set | ValueKind::Range)
}

fn key(value: &Value) -> Option<Key> {
    let quoted = match value {
        Value::Str(_) => true,
        Value::Json { at, doc } => doc.node(*at).kind() == fanin_json::Kind::String,
        other => matches!(other.decide().ok()?, Value::Str(_)),
    };
    Some(Key { text: text(value)?.into(), quoted })
}

fn fields(value: &Value) -> Option<Option<Vec<Box<str>>>> {
    let value = value.decide().ok()?;
    if matches!(value, Value::None) {
        return Some(None);
    }
    if !is_list(&value) {
        let text = value.as_str()?.split(',').map(|field| field.trim().into()).collect();
        return Some(Some(text));
    }
    let elements = view::elements(&value).ok()?;
    elements.iter().map(|field| text(field).map(Into::into)).collect::<Option<Vec<_>>>().map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_requests_its_first_field() {
        let requested = |fields: Option<&[&str]>| RequestedKeys {
            keys: Vec::new(),
            single: false,
            fields: fields.map(|fields| fields.iter().map(|field| (*field).into()).collect()),
        };
        let some = requested(Some(&["name", "price.amount"]));
        assert!(some.wants("name") && some.wants("price") && !some.wants("nam") && !some.wants("amount"));
        assert!(requested(None).wants("x") && !requested(Some(&[])).wants("x"));
    }
}
