//! What XGBoost's JSON and UBJSON have in common: objects, lists, and long lists of numbers.

use fanin_json::{Doc, Kind, Node};

use super::ubjson;
use super::value::{MAX_DEPTH, Value, is_skipped};
use crate::LoadError;

/// Reads either format.
pub(super) fn read(bytes: &[u8]) -> Result<Value, LoadError> {
    match bytes {
        [b'{', b'"' | b' ' | b'\n' | b'\r' | b'\t' | b'}', ..] => {
            let doc = Doc::parse(bytes.to_vec().into(), MAX_DEPTH)
                .map_err(|error| LoadError::broken("model", format!("{error}; the file may be cut off")))?;
            convert(doc.root())
        }
        [b'{', ..] => ubjson::read(bytes),
        _ => Err(LoadError::broken("model", "begins neither as XGBoost's JSON nor as its UBJSON")),
    }
}

/// A number of XGBoost's JSON. Floats are written as the shortest text that gives the same single-precision number, so they
/// must be read as such: by way of a double they could be rounded twice.
fn number(node: Node<'_>) -> Result<f64, LoadError> {
    let text = node.as_number_text().unwrap_or_default();
    let value =
        if text.contains(['.', 'e', 'E']) { text.parse::<f32>().map(f64::from).ok() } else { text.parse::<f64>().ok() };
    value.ok_or_else(|| LoadError::broken("model", format!("`{text}` is not a number")))
}

fn convert(node: Node<'_>) -> Result<Value, LoadError> {
    Ok(match node.kind() {
        Kind::Object => {
            let mut all = Vec::new();
            for (key, value) in node.entries() {
                let key = key.as_str().unwrap_or_default().into_owned();
                if !is_skipped(&key) {
                    all.push((key, convert(value)?));
                }
            }
            Value::Object(all)
        }
        Kind::Array => {
            let mut all = node.elements().peekable();
            if all.peek().is_some_and(|first| first.kind() == Kind::Number) {
                let mut numbers = Vec::new();
                for one in all {
                    if one.kind() != Kind::Number {
                        return Err(LoadError::broken("model", "a list of numbers has something else in it"));
                    }
                    numbers.push(number(one)?);
                }
                Value::Numbers(numbers)
            } else {
                Value::List(all.map(convert).collect::<Result<_, _>>()?)
            }
        }
        Kind::String => Value::Text(node.as_str().unwrap_or_default().into_owned()),
        Kind::Number => Value::Number(number(node)?),
        Kind::Bool => Value::Bool(node.as_bool().unwrap_or_default()),
        Kind::Null => Value::Null,
    })
}

/// A value with its place, for messages.
#[derive(Clone, Debug)]
pub(super) struct At<'a> {
    pub value: &'a Value,
    pub path: String,
}

impl<'a> At<'a> {
    pub fn root(value: &'a Value) -> At<'a> {
        At { value, path: String::new() }
    }

    pub fn broken(&self, what: impl Into<String>) -> LoadError {
        let path = if self.path.is_empty() { "model" } else { &self.path };
        LoadError::broken(path, what)
    }

    pub fn unsupported(&self, what: impl Into<String>) -> LoadError {
        let path = if self.path.is_empty() { "model" } else { &self.path };
        LoadError::unsupported(path, what)
    }

    pub fn find(&self, key: &str) -> Option<At<'a>> {
        let Value::Object(entries) = self.value else { return None };
        let (_, value) = entries.iter().find(|(other, _)| other == key)?;
        let path = if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) };
        Some(At { value, path })
    }

    pub fn get(&self, key: &str) -> Result<At<'a>, LoadError> {
        self.find(key).ok_or_else(|| self.broken(format!("`{key}` is missing")))
    }

    pub fn text(&self) -> Result<&'a str, LoadError> {
        match self.value {
            Value::Text(text) => Ok(text),
            _ => Err(self.broken("is not a string")),
        }
    }

    /// A count, as a number or (XGBoost's parameters) as a string.
    pub fn count(&self) -> Result<usize, LoadError> {
        match self.value {
            Value::Number(number) if *number >= 0.0 && number.fract() == 0.0 => Ok(*number as usize),
            Value::Text(text) => text.parse().map_err(|_| self.broken(format!("`{text}` is no count"))),
            _ => Err(self.broken("is no count")),
        }
    }

    pub fn list(&self) -> Result<impl ExactSizeIterator<Item = At<'a>> + use<'a>, LoadError> {
        let Value::List(all) = self.value else { return Err(self.broken("is not a list")) };
        let path = self.path.clone();
        Ok(all.iter().enumerate().map(move |(at, value)| At { value, path: format!("{path}[{at}]") }))
    }

    pub fn numbers(&self) -> Result<&'a [f64], LoadError> {
        match self.value {
            Value::Numbers(all) => Ok(all),
            Value::List(all) if all.is_empty() => Ok(&[]),
            _ => Err(self.broken("is not a list of numbers")),
        }
    }

    pub fn numbers_of(&self, key: &str, count: usize) -> Result<&'a [f64], LoadError> {
        let at = self.get(key)?;
        let all = at.numbers()?;
        if all.len() != count {
            return Err(at.broken(format!("has {} values, {count} are expected", all.len())));
        }
        Ok(all)
    }
}
