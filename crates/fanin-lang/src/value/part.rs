//! Parts of answers. A missing part fails where it is decided on, not where it is taken. So it makes no difference
//! whether the answer was ready when the part was taken.

use std::rc::Rc;
use std::sync::Arc;

use arcstr::ArcStr;
use fanin_json::{Doc, Kind, Node};

use super::{Frozen, FrozenValue, Value};
use crate::error::{Failure, Kind as Error, Position};
use crate::pending::{Outcome, PendingValue};

/// One step into an answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Key {
    /// A key of an object.
    Str(ArcStr),
    /// An index of an array; negative ones count from the end.
    Int(i64),
}

impl Key {
    /// The step that a decided value denotes, if it is a string or an integer.
    pub(crate) fn of(value: &Value) -> Option<Self> {
        match value {
            Value::Str(text) => Some(Self::Str(text.clone())),
            Value::Int(index) => Some(Self::Int(*index)),
            _ => None,
        }
    }

    pub(crate) fn value(&self) -> Value {
        match self {
            Self::Str(text) => Value::Str(text.clone()),
            Self::Int(index) => Value::Int(*index),
        }
    }
}

/// What a document lacks: payload of the failure, so that the origin of the document can be named
/// when it is raised.
#[derive(Debug)]
pub struct Missing {
    /// The document.
    pub doc: Doc,
    rest: String,
}

/// What a failure carries once it has been named: where the call was made whose answer lacks something.
#[derive(Debug)]
pub(crate) struct Made(pub(crate) Position);

/// Names the answer that `failure` is about, if it is about a missing part of one. `origin` finds
/// the words for it, `answer of catalog`, and the place of the call.
pub fn name_origin(failure: &mut Failure, origin: impl FnOnce(&Doc) -> Option<(String, Option<Position>)>) {
    let Some(missing) = failure.payload.as_ref().and_then(|payload| payload.downcast_ref::<Missing>()) else { return };
    if let Some((origin, made)) = origin(&missing.doc) {
        failure.message = format!("{origin} {}", missing.rest);
        failure.payload = made.map(|position| Arc::new(Made(position)) as Arc<_>);
    }
}

/// The part of a JSON value, or why there is none.
pub(crate) fn of_json(doc: &Doc, at: u32, key: &Key) -> Result<Value, Failure> {
    let node = doc.node(at);
    let found = match (key, node.kind()) {
        (Key::Str(name), Kind::Object) => node.get(name),
        (Key::Int(index), Kind::Array) => {
            let index = if *index < 0 { *index + node.len().unwrap_or(0) as i64 } else { *index };
            usize::try_from(index).ok().and_then(|index| node.index(index))
        }
        _ => None,
    };
    match found {
        Some(found) => Ok(Value::Json { at: found.at(), doc: doc.clone() }),
        None => Err(missing(doc, node, key)),
    }
}

#[cold]
fn missing(doc: &Doc, node: Node<'_>, key: &Key) -> Failure {
    let path = path(doc, node.at());
    let place = if path.is_empty() { String::new() } else { format!(" in {path}") };
    let (kind, rest) = match (key, node.kind()) {
        (Key::Str(name), Kind::Object) => (Error::Key, format!("has no key {:?}{place}", name.as_str())),
        (Key::Int(index), Kind::Array) => {
            (Error::Index, format!("has no element {index}{place}: the list has {}", node.len().unwrap_or(0)))
        }
        (Key::Str(name), kind) => {
            (Error::Type, format!("has {} where key {:?} is expected{place}", word(kind), name.as_str()))
        }
        (Key::Int(index), kind) => {
            (Error::Type, format!("has {} where element {index} is expected{place}", word(kind)))
        }
    };
    let hint = match (key, node.kind()) {
        (Key::Str(name), Kind::Object) => {
            let names: Vec<_> = node.entries().take(100).filter_map(|(key, _)| key.as_str()).collect();
            crate::suggest::nearest(name, names.iter().map(|name| &**name))
                .map(|near| format!("did you mean {near:?}?"))
        }
        _ => None,
    };
    let mut failure =
        Failure::new(kind, format!("the answer {rest}")).with_payload(Arc::new(Missing { doc: doc.clone(), rest }));
    failure.hint = hint;
    failure
}

fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Null => "null",
        Kind::Bool => "a boolean",
        Kind::Number => "a number",
        Kind::String => "a string",
        Kind::Array => "a list",
        Kind::Object => "an object",
    }
}

/// The way to a value from the outermost one: `.items[3].price`.
fn path(doc: &Doc, target: u32) -> String {
    use std::fmt::Write as _;
    let mut path = String::new();
    let mut node = doc.root();
    while node.at() < target {
        // Positions count in the order of the text: the last child not after the target holds it.
        match node.kind() {
            Kind::Object => {
                let Some((key, value)) = node.entries().filter(|(_, value)| value.at() <= target).last() else { break };
                let _ = write!(path, ".{}", key.as_str().unwrap_or_default());
                node = value;
            }
            Kind::Array => {
                let Some((index, value)) = node.elements().enumerate().take_while(|(_, v)| v.at() <= target).last()
                else {
                    break;
                };
                let _ = write!(path, "[{index}]");
                node = value;
            }
            _ => break,
        }
    }
    path
}

/// One soft step into the value that a call settled with. Defaults may be other things than JSON.
fn step(value: &Value, key: &Key) -> Outcome {
    match value {
        Value::Json { at, doc } => of_json(doc, *at, key).map_err(Rc::new),
        Value::Absent(failure) => Ok(Value::Absent(failure.clone())),
        other => super::index::index_hard(other, &key.value()).map_err(|stop| match stop {
            crate::error::Stop::Fail(failure) => Rc::new(*failure),
            _ => Rc::new(Failure::new(Error::Type, "a default cannot hold something pending")),
        }),
    }
}

/// Follows a path from the value that `of` settled with.
pub(crate) fn walk(whole: &Value, path: &[Key]) -> Outcome {
    let mut value = whole.clone();
    for key in path {
        value = step(&value, key)?;
    }
    Ok(value)
}

/// A part of an answer as a value: a JSON value if it is there, a pending value that has failed if not.
#[inline]
pub(crate) fn soft(doc: &Doc, at: u32, key: &Key) -> Value {
    match of_json(doc, at, key) {
        Ok(value) => value,
        Err(failure) => Value::Pending(PendingValue::failed(failure)),
    }
}

/// Fast path of [`soft`] for a constant string key.
#[inline]
pub(crate) fn soft_str(doc: &Doc, at: u32, key: &ArcStr) -> Value {
    match doc.node(at).get(key) {
        Some(node) => Value::Json { at: node.at(), doc: doc.clone() },
        None => soft(doc, at, &Key::Str(key.clone())),
    }
}

/// The field of a struct, frozen or not.
pub(crate) fn field(value: &Value, name: &str) -> Option<Value> {
    match value {
        Value::Struct(fields) => fields.get(name).cloned(),
        Value::Frozen(frozen) => match &**frozen {
            Frozen::Struct(fields) => {
                fields.iter().find(|(field, _)| field.as_str() == name).map(|(_, value)| FrozenValue::to_value(value))
            }
            _ => None,
        },
        _ => None,
    }
}
