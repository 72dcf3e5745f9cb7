//! Uniform access to values of one kind in all representations: a list of the flow, a frozen list, a JSON array.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use fanin_json::{Cursor, Doc};

use super::{Dict, Frozen, FrozenValue, List, Range, Set, Tuple, Value, compare};
use crate::error::{Kind as Error, Stop};
use crate::host::HostRef;

/// What a value is to a program, whatever holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum Kind {
    /// `None`
    None,
    /// `bool`
    Bool,
    /// `int`
    Int,
    /// `float`
    Float,
    /// `string`
    Str,
    /// `bytes`
    Bytes,
    /// `list`, also a JSON array
    List,
    /// `dict`, also a JSON object
    Dict,
    /// `set`
    Set,
    /// `tuple`
    Tuple,
    /// `range`
    Range,
    /// `struct`
    Struct,
    /// `function`
    Function,
    /// An object of the host's.
    Object,
}

impl Kind {
    /// Number of kinds.
    pub const COUNT: usize = 14;

    /// The name that `type()` gives; objects of the host's have their own.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "NoneType",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Float => "float",
            Self::Str => "string",
            Self::Bytes => "bytes",
            Self::List => "list",
            Self::Dict => "dict",
            Self::Set => "set",
            Self::Tuple => "tuple",
            Self::Range => "range",
            Self::Struct => "struct",
            Self::Function => "function",
            Self::Object => "object",
        }
    }
}

/// The kind of a decided value. Pending ones count as `Object`: decide first.
#[inline]
#[must_use]
pub fn kind(value: &Value) -> Kind {
    // What has to be looked into is apart, so that all others are one look into a table.
    if let Value::Json { .. } | Value::Frozen(_) = value {
        return kind_inside(value);
    }
    match value {
        Value::None | Value::Absent(_) => Kind::None,
        Value::Bool(_) => Kind::Bool,
        Value::Int(_) | Value::BigInt(_) => Kind::Int,
        Value::Float(_) => Kind::Float,
        Value::Str(_) => Kind::Str,
        Value::Bytes(_) => Kind::Bytes,
        Value::Range(_) => Kind::Range,
        Value::List(_) => Kind::List,
        Value::Dict(_) => Kind::Dict,
        Value::Set(_) => Kind::Set,
        Value::Tuple(_) => Kind::Tuple,
        Value::Struct(_) => Kind::Struct,
        Value::Function(_) | Value::Native(_) | Value::Bound(_) => Kind::Function,
        Value::Json { .. }
        | Value::Frozen(_)
        | Value::Host(_)
        | Value::Object(_)
        | Value::Pending(_)
        | Value::Unbound
        | Value::Iter(_)
        | Value::Cell(_)
        | Value::Accumulator(_) => Kind::Object,
    }
}

fn kind_inside(value: &Value) -> Kind {
    match value {
        Value::Json { at, doc } => match doc.node(*at).kind() {
            fanin_json::Kind::Null => Kind::None,
            fanin_json::Kind::Bool => Kind::Bool,
            fanin_json::Kind::Number => match doc.node(*at).as_number() {
                Some(fanin_json::Number::Float(_)) => Kind::Float,
                _ => Kind::Int,
            },
            fanin_json::Kind::String => Kind::Str,
            fanin_json::Kind::Array => Kind::List,
            fanin_json::Kind::Object => Kind::Dict,
        },
        Value::Frozen(frozen) => match &**frozen {
            Frozen::List(_) => Kind::List,
            Frozen::Tuple(_) => Kind::Tuple,
            Frozen::Dict(_) => Kind::Dict,
            Frozen::Set(_) => Kind::Set,
            Frozen::Struct(_) => Kind::Struct,
            Frozen::Function(_) => Kind::Function,
        },
        _ => Kind::Object,
    }
}

/// A field of a struct.
#[must_use]
pub fn field(value: &Value, name: &str) -> Option<Value> {
    super::part::field(value, name)
}

/// The object and the method's name of a method of a host object that is a value: `catalog.get`.
#[must_use]
pub fn host_method(value: &Value) -> Option<(&HostRef, &str)> {
    match value {
        Value::Bound(bound) => match (&bound.this, &bound.method) {
            (Value::Host(object), super::object::BoundMethod::Host(name)) => Some((object, name)),
            _ => None,
        },
        _ => None,
    }
}

/// The name that `type()` gives for a decided value.
#[must_use]
pub fn type_name(value: &Value) -> String {
    match value {
        Value::Host(host) => host.type_name().to_owned(),
        Value::Object(object) => object.type_name().to_owned(),
        Value::Native(_) | Value::Bound(_) => "builtin_function_or_method".to_owned(),
        other => kind(other).name().to_owned(),
    }
}

/// Number of elements, entries or characters; `None` for values without any.
#[must_use]
pub fn len(value: &Value) -> Option<usize> {
    Some(match value {
        Value::Str(text) => text.chars().count(),
        Value::Bytes(bytes) => bytes.len(),
        Value::Json { at, doc } => return doc.node(*at).len(),
        Value::Range(range) => range.len(),
        Value::List(list) => list.items().len(),
        Value::Dict(dict) => dict.map().len(),
        Value::Set(set) => set.items().len(),
        Value::Tuple(tuple) => tuple.len(),
        Value::Frozen(frozen) => match &**frozen {
            Frozen::List(items) | Frozen::Tuple(items) => items.len(),
            Frozen::Dict(map) | Frozen::Set(map) => map.entries().len(),
            Frozen::Struct(_) | Frozen::Function(_) => return None,
        },
        _ => return None,
    })
}

/// Element of a list, tuple or range, counted from 0.
#[must_use]
pub fn at(value: &Value, index: usize) -> Option<Value> {
    match value {
        Value::List(list) => list.items().get(index).cloned(),
        Value::Tuple(tuple) => tuple.get(index).cloned(),
        Value::Json { at, doc } => {
            doc.node(*at).index(index).map(|node| Value::Json { at: node.at(), doc: doc.clone() })
        }
        Value::Range(range) => (index < range.len()).then(|| Value::Int(range.at(index))),
        Value::Frozen(frozen) => match &**frozen {
            Frozen::List(items) | Frozen::Tuple(items) => items.get(index).map(FrozenValue::to_value),
            _ => None,
        },
        _ => None,
    }
}

/// All elements of something that can be looped over; a dict's are its keys.
///
/// # Errors
/// If it cannot be looped over.
pub fn elements(value: &Value) -> Result<Vec<Value>, Stop> {
    if let Value::List(list) = value {
        return Ok(list.items().clone());
    }
    let iter = Iter::of(value)?;
    Ok(std::iter::from_fn(|| iter.next()).collect())
}

/// The entries of a dict; `None` for other kinds.
#[must_use]
pub fn entries(value: &Value) -> Option<Vec<(Value, Value)>> {
    Some(match value {
        Value::Dict(dict) => dict.map().iter().map(|(key, value)| (key.clone(), value.clone())).collect(),
        Value::Frozen(frozen) => match &**frozen {
            Frozen::Dict(map) => map.entries().iter().map(|(key, value)| (key.to_value(), value.to_value())).collect(),
            _ => return None,
        },
        Value::Json { at, doc } if doc.node(*at).kind() == fanin_json::Kind::Object => doc
            .node(*at)
            .entries()
            .map(|(key, value)| {
                let text = key.as_str().unwrap_or_default();
                (Value::str(&text), Value::Json { at: value.at(), doc: doc.clone() })
            })
            .collect(),
        _ => return None,
    })
}

/// The value of a decided key of a dict, or whether a set has it; `None` if it has no such key.
///
/// # Errors
/// If the key is not hashable or `value` is no dict or set.
pub fn get(value: &Value, key: &Value) -> Result<Option<Value>, Stop> {
    Ok(match value {
        Value::Dict(dict) => dict.map().get(key)?.cloned(),
        Value::Set(set) => set.items().get(key)?.cloned(),
        Value::Json { at, doc } if doc.node(*at).kind() == fanin_json::Kind::Object => match key {
            Value::Str(text) => doc.node(*at).get(text).map(|node| Value::Json { at: node.at(), doc: doc.clone() }),
            other => {
                compare::hash(other)?;
                None
            }
        },
        Value::Frozen(frozen) => match (&**frozen, key) {
            (Frozen::Dict(map) | Frozen::Set(map), Value::Str(text)) => map.get_str(text).map(FrozenValue::to_value),
            (Frozen::Dict(map) | Frozen::Set(map), other) => {
                compare::hash(other)?;
                let mut found = None;
                for (key, value) in map.entries() {
                    if compare::equal(&key.to_value(), other)? {
                        found = Some(value.to_value());
                        break;
                    }
                }
                found
            }
            _ => return Err(not_a_dict(value)),
        },
        _ => return Err(not_a_dict(value)),
    })
}

#[cold]
fn not_a_dict(value: &Value) -> Stop {
    Stop::fail(Error::Type, format!("expected a dict, got {}", type_name(value)))
}

/// An iterator. While it lives the container cannot be changed.
#[derive(Debug)]
pub struct Iter {
    source: Source,
    next: Cell<usize>,
}

#[derive(Debug)]
enum Source {
    List(Rc<List>),
    Dict(Rc<Dict>),
    Set(Rc<Set>),
    Tuple(Rc<Tuple>),
    Range(Range, usize),
    Frozen(Arc<Frozen>),
    Array(Doc, Cell<Cursor>),
    Object(Doc, Cell<Cursor>),
}

impl Iter {
    /// The start of a decided value.
    ///
    /// # Errors
    /// If it cannot be looped over.
    pub fn of(value: &Value) -> Result<Self, Stop> {
        let source = match value {
            Value::List(list) => {
                list.guard.iterating.set(list.guard.iterating.get() + 1);
                Source::List(list.clone())
            }
            Value::Dict(dict) => {
                dict.guard.iterating.set(dict.guard.iterating.get() + 1);
                Source::Dict(dict.clone())
            }
            Value::Set(set) => {
                set.guard.iterating.set(set.guard.iterating.get() + 1);
                Source::Set(set.clone())
            }
            Value::Tuple(tuple) => Source::Tuple(tuple.clone()),
            Value::Range(range) => Source::Range(**range, range.len()),
            Value::Json { at, doc } => {
                let node = doc.node(*at);
                match node.kind() {
                    fanin_json::Kind::Array => Source::Array(doc.clone(), Cell::new(node.cursor())),
                    fanin_json::Kind::Object => Source::Object(doc.clone(), Cell::new(node.cursor())),
                    _ => return Err(not_iterable(value)),
                }
            }
            Value::Frozen(frozen) => match &**frozen {
                Frozen::List(_) | Frozen::Tuple(_) | Frozen::Dict(_) | Frozen::Set(_) => Source::Frozen(frozen.clone()),
                _ => return Err(not_iterable(value)),
            },
            _ => return Err(not_iterable(value)),
        };
        Ok(Self { source, next: Cell::new(0) })
    }

    /// The next element of a range; `None` if there is none, or this is no range.
    #[inline(always)]
    pub(crate) fn next_of_range(&self) -> Option<i64> {
        match &self.source {
            Source::Range(range, len) if self.next.get() < *len => {
                let at = self.next.get();
                self.next.set(at + 1);
                Some(range.at(at))
            }
            _ => None,
        }
    }

    /// The next element.
    #[inline]
    pub fn next(&self) -> Option<Value> {
        let at = self.next.get();
        let value = match &self.source {
            Source::Range(range, len) => (at < *len).then(|| Value::Int(range.at(at))),
            Source::List(list) => list.items().get(at).cloned(),
            Source::Tuple(tuple) => tuple.get(at).cloned(),
            Source::Dict(dict) => dict.map().at(at).map(|(key, _)| key.clone()),
            Source::Set(set) => set.items().at(at).map(|(key, _)| key.clone()),
            Source::Frozen(frozen) => match &**frozen {
                Frozen::List(items) | Frozen::Tuple(items) => items.get(at).map(FrozenValue::to_value),
                Frozen::Dict(map) | Frozen::Set(map) => map.entries().get(at).map(|(key, _)| key.to_value()),
                _ => None,
            },
            Source::Array(doc, cursor) => {
                let mut place = cursor.get();
                let element = place.next_element(doc);
                cursor.set(place);
                element.map(|at| Value::Json { at, doc: doc.clone() })
            }
            Source::Object(doc, cursor) => {
                let mut place = cursor.get();
                let entry = place.next_entry(doc);
                cursor.set(place);
                entry.map(|(key, _)| Value::str(&doc.node(key).as_str().unwrap_or_default()))
            }
        };
        self.next.set(at + 1);
        value
    }

    /// Number of elements, if it is known without counting.
    #[must_use]
    pub fn len_hint(&self) -> usize {
        match &self.source {
            Source::Range(_, len) => *len,
            Source::List(list) => list.items().len(),
            Source::Tuple(tuple) => tuple.len(),
            Source::Dict(dict) => dict.map().len(),
            _ => 0,
        }
    }

    /// What is looped over, if a flow could change it.
    pub(crate) fn container(&self) -> Option<Value> {
        match &self.source {
            Source::List(list) => Some(Value::List(list.clone())),
            Source::Dict(dict) => Some(Value::Dict(dict.clone())),
            Source::Set(set) => Some(Value::Set(set.clone())),
            Source::Tuple(tuple) => Some(Value::Tuple(tuple.clone())),
            _ => None,
        }
    }
}

impl Drop for Iter {
    fn drop(&mut self) {
        let guard = match &self.source {
            Source::List(list) => &list.guard,
            Source::Dict(dict) => &dict.guard,
            Source::Set(set) => &set.guard,
            _ => return,
        };
        guard.iterating.set(guard.iterating.get().saturating_sub(1));
    }
}

#[cold]
fn not_iterable(value: &Value) -> Stop {
    Stop::fail(Error::Type, format!("{} cannot be looped over", type_name(value)))
}
