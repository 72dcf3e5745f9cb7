//! Values that cannot change and are shared by workers: what modules define.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use arcstr::ArcStr;
use fanin_json::Doc;
use num_bigint::BigInt;

use super::object::FrozenFunction;
use super::{Map, Range, Value};
use crate::error::{Failure, Kind};
use crate::host::HostRef;
use crate::native::NativeFn;

/// A value that can be shared between threads.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub enum FrozenValue {
    /// `None`
    #[default]
    None,
    /// A truth value.
    Bool(bool),
    /// An integer of 64 bits.
    Int(i64),
    /// A float.
    Float(f64),
    /// A larger integer.
    BigInt(Arc<BigInt>),
    /// A string.
    Str(ArcStr),
    /// Bytes.
    Bytes(Arc<Vec<u8>>),
    /// A value of a document.
    Json {
        /// Position in the document.
        at: u32,
        /// The document.
        doc: Doc,
    },
    /// A range.
    Range(Range),
    /// A builtin function.
    Native(&'static NativeFn),
    /// An object of the host's.
    Host(HostRef),
    /// Everything with something inside.
    Frozen(Arc<Frozen>),
}

/// A frozen container, struct or function.
#[derive(Debug)]
#[non_exhaustive]
pub enum Frozen {
    /// A list.
    List(Box<[FrozenValue]>),
    /// A tuple.
    Tuple(Box<[FrozenValue]>),
    /// A dict.
    Dict(FrozenMap),
    /// A set: the keys count.
    Set(FrozenMap),
    /// A struct.
    Struct(Box<[(ArcStr, FrozenValue)]>),
    /// A function.
    #[doc(hidden)]
    Function(FrozenFunction),
}

/// The entries of a frozen dict.
#[derive(Debug, Default)]
pub struct FrozenMap {
    entries: Box<[(FrozenValue, FrozenValue)]>,
    /// Positions of the entries with string keys, if there are more than a few.
    strings: HashMap<ArcStr, u32>,
}

impl FrozenMap {
    /// A map of entries whose keys all differ.
    #[must_use]
    pub fn new(entries: Vec<(FrozenValue, FrozenValue)>) -> Self {
        let mut strings = HashMap::new();
        if entries.len() > 8 {
            for (at, (key, _)) in entries.iter().enumerate() {
                if let FrozenValue::Str(text) = key {
                    strings.insert(text.clone(), at as u32);
                }
            }
        }
        Self { entries: entries.into_boxed_slice(), strings }
    }

    /// The entries in order of insertion.
    #[must_use]
    pub fn entries(&self) -> &[(FrozenValue, FrozenValue)] {
        &self.entries
    }

    /// The value of a string key.
    #[must_use]
    pub fn get_str(&self, key: &str) -> Option<&FrozenValue> {
        if !self.strings.is_empty() {
            return self.strings.get(key).map(|at| &self.entries[*at as usize].1);
        }
        self.entries
            .iter()
            .find(|(k, _)| matches!(k, FrozenValue::Str(text) if text.as_str() == key))
            .map(|(_, value)| value)
    }
}

impl FrozenValue {
    /// The value as a flow sees it.
    #[must_use]
    pub fn to_value(&self) -> Value {
        match self {
            Self::None => Value::None,
            Self::Bool(value) => Value::Bool(*value),
            Self::Int(value) => Value::Int(*value),
            Self::Float(value) => Value::Float(*value),
            Self::BigInt(value) => Value::BigInt(value.clone()),
            Self::Str(value) => Value::Str(value.clone()),
            Self::Bytes(value) => Value::Bytes(value.clone()),
            Self::Json { at, doc } => Value::Json { at: *at, doc: doc.clone() },
            Self::Range(range) => Value::Range(Rc::new(*range)),
            Self::Native(native) => Value::Native(native),
            Self::Host(host) => Value::Host(host.clone()),
            Self::Frozen(frozen) => Value::Frozen(frozen.clone()),
        }
    }
}

/// A frozen copy of a value and everything inside it.
///
/// # Errors
/// If it holds something that only a running flow can have, or is nested too deep (or within itself).
pub fn freeze(value: &Value) -> Result<FrozenValue, Failure> {
    Freezer::default().freeze(value, 0)
}

#[derive(Default)]
struct Freezer {
    /// What is reachable on several ways is frozen once. Keyed by address; the values are alive.
    seen: HashMap<usize, Arc<Frozen>>,
}

impl Freezer {
    fn all(&mut self, values: &[Value], depth: usize) -> Result<Box<[FrozenValue]>, Failure> {
        values.iter().map(|value| self.freeze(value, depth)).collect()
    }

    fn map(&mut self, map: &Map, depth: usize) -> Result<FrozenMap, Failure> {
        let mut entries = Vec::with_capacity(map.len());
        for (key, value) in map.iter() {
            entries.push((self.freeze(key, depth)?, self.freeze(value, depth)?));
        }
        Ok(FrozenMap::new(entries))
    }

    fn freeze(&mut self, value: &Value, depth: usize) -> Result<FrozenValue, Failure> {
        if depth > super::compare::MAX_NESTING {
            return Err(super::compare::too_deep());
        }
        let address = match value {
            Value::List(list) => Rc::as_ptr(list).addr(),
            Value::Dict(dict) => Rc::as_ptr(dict).addr(),
            Value::Set(set) => Rc::as_ptr(set).addr(),
            Value::Tuple(tuple) => Rc::as_ptr(tuple).addr(),
            Value::Struct(fields) => Rc::as_ptr(fields).addr(),
            Value::Function(function) => Rc::as_ptr(function).addr(),
            _ => 0,
        };
        if let Some(frozen) = self.seen.get(&address) {
            return Ok(FrozenValue::Frozen(frozen.clone()));
        }
        let frozen = match value {
            Value::None => return Ok(FrozenValue::None),
            Value::Bool(value) => return Ok(FrozenValue::Bool(*value)),
            Value::Int(value) => return Ok(FrozenValue::Int(*value)),
            Value::Float(value) => return Ok(FrozenValue::Float(*value)),
            Value::BigInt(value) => return Ok(FrozenValue::BigInt(value.clone())),
            Value::Str(value) => return Ok(FrozenValue::Str(value.clone())),
            Value::Bytes(value) => return Ok(FrozenValue::Bytes(value.clone())),
            Value::Json { at, doc } => return Ok(FrozenValue::Json { at: *at, doc: doc.clone() }),
            Value::Range(range) => return Ok(FrozenValue::Range(**range)),
            Value::Native(native) => return Ok(FrozenValue::Native(native)),
            Value::Host(host) => return Ok(FrozenValue::Host(host.clone())),
            Value::Frozen(frozen) => return Ok(FrozenValue::Frozen(frozen.clone())),
            Value::List(list) => Frozen::List(self.all(&list.items(), depth + 1)?),
            Value::Tuple(tuple) => Frozen::Tuple(self.all(tuple, depth + 1)?),
            Value::Dict(dict) => Frozen::Dict(self.map(&dict.map(), depth + 1)?),
            Value::Set(set) => Frozen::Set(self.map(&set.items(), depth + 1)?),
            Value::Struct(fields) => {
                let mut frozen = Vec::with_capacity(fields.fields().len());
                for (name, value) in fields.fields() {
                    frozen.push((name.clone(), self.freeze(value, depth + 1)?));
                }
                Frozen::Struct(frozen.into_boxed_slice())
            }
            Value::Function(function) => Frozen::Function(FrozenFunction {
                code: function.code,
                defaults: self.all(&function.defaults, depth + 1)?,
                captured: self.all(&function.captured, depth + 1)?,
            }),
            Value::Bound(_) => return Err(Failure::new(Kind::Type, "a bound method cannot be a module's value")),
            Value::Cell(cell) => {
                let inner = cell.borrow().clone();
                return self.freeze(&inner, depth + 1);
            }
            Value::Unbound | Value::Iter(_) | Value::Accumulator(_) => return Ok(FrozenValue::None),
            Value::Pending(_) | Value::Absent(_) | Value::Object(_) => {
                return Err(Failure::new(Kind::Type, "a value of a running flow cannot be a module's value"));
            }
        };
        let frozen = Arc::new(frozen);
        self.seen.insert(address, frozen.clone());
        Ok(FrozenValue::Frozen(frozen))
    }
}
