//! Indexing of values that are ready.

use super::Value;
use super::view::{self, Kind, type_name};
use crate::error::{Failure, Kind as Error, Stop};
use crate::suggest;

/// `of[key]` of something that is there and no answer, by a decided key.
pub(crate) fn index_hard(of: &Value, key: &Value) -> Result<Value, Stop> {
    match view::kind(of) {
        Kind::List | Kind::Tuple | Kind::Range => {
            let len = view::len(of).unwrap_or(0);
            let at = position(key, len, of)?;
            view::at(of, at).ok_or_else(|| Stop::fail(Error::Index, "the index is out of range"))
        }
        Kind::Dict => match view::get(of, key)? {
            Some(value) => Ok(value),
            None => Err(no_key(of, key)),
        },
        Kind::Str => match of {
            Value::Str(text) if text.is_ascii() => {
                let at = position(key, text.len(), of)?;
                Ok(Value::str(&text[at..=at]))
            }
            Value::Str(text) => {
                let at = position(key, text.chars().count(), of)?;
                Ok(text.chars().nth(at).map_or(Value::None, |c| Value::str(c.encode_utf8(&mut [0; 4]))))
            }
            _ => Err(not_indexed(of)),
        },
        Kind::Bytes => match of {
            Value::Bytes(bytes) => {
                let at = position(key, bytes.len(), of)?;
                Ok(Value::Int(i64::from(bytes[at])))
            }
            _ => Err(not_indexed(of)),
        },
        _ => Err(not_indexed(of)),
    }
}

#[cold]
pub(crate) fn not_indexed(of: &Value) -> Stop {
    let mut failure = Failure::new(Error::Type, format!("{} has no elements to index", type_name(of)));
    if matches!(of, Value::None) {
        failure.hint = Some("the value is None: a function without return, or a key that .get did not find".to_owned());
    }
    failure.into()
}

#[cold]
fn no_key(of: &Value, key: &Value) -> Stop {
    let shown = match key {
        Value::Str(text) => format!("{:?}", text.as_str()),
        other => format!("{other:?}"),
    };
    let mut failure = Failure::new(Error::Key, format!("the dict has no key {shown}"));
    if let Value::Str(text) = key {
        let keys: Vec<Value> = view::elements(of).unwrap_or_default();
        failure.hint = suggest::nearest(text, keys.iter().take(1000).filter_map(Value::as_str))
            .map(|near| format!("did you mean {near:?}?"));
    }
    failure.into()
}

/// The index that a key denotes in a sequence of `len` elements.
pub(crate) fn position(key: &Value, len: usize, of: &Value) -> Result<usize, Stop> {
    let Value::Int(index) = key else {
        return Err(Stop::fail(Error::Type, format!("{} is indexed with int, not {}", type_name(of), type_name(key))));
    };
    let from_start = if *index < 0 { index.saturating_add(len as i64) } else { *index };
    match usize::try_from(from_start) {
        Ok(at) if at < len => Ok(at),
        _ => Err(Stop::fail(Error::Index, format!("index {index} is out of range: the {} has {len}", type_name(of)))),
    }
}
