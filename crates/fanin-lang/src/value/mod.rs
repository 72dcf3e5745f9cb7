//! Values: 16 bytes each.
//!
//! Containers that a flow builds are its own (`Rc`); everything that comes from outside a flow is
//! shared and cannot change (`Arc`): strings, answers, what modules define.

mod accumulator;
pub mod capture;
pub mod compare;
pub mod dict;
pub mod display;
pub(crate) mod drop;
pub mod frozen;
pub(crate) mod index;
pub mod list;
pub mod number;
pub mod object;
pub mod part;
pub mod view;

use std::rc::Rc;
use std::sync::Arc;

use arcstr::ArcStr;
use fanin_json::Doc;
use num_bigint::BigInt;

use crate::error::{Failure, Stop};
use crate::host::HostRef;
use crate::native::NativeFn;
use crate::pending::PendingValue;

pub use accumulator::Accumulator;
pub use dict::{Dict, Map};
pub(crate) use drop::drop_row;
pub use frozen::{Frozen, FrozenValue};
pub use list::{List, MutationGuard, Set, Tuple};
pub use object::{Bound, Function, Object, ObjectRef, Struct};
pub use part::Key;
pub use view::{Iter, Kind as ValueKind};

/// A range of integers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Range {
    /// First.
    pub start: i64,
    /// Not included.
    pub stop: i64,
    /// Never 0.
    pub step: i64,
}

impl Range {
    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        let (start, stop, step) = (i128::from(self.start), i128::from(self.stop), i128::from(self.step));
        let span = if step > 0 { stop - start } else { start - stop };
        if span <= 0 {
            return 0;
        }
        usize::try_from((span + step.abs() - 1) / step.abs()).unwrap_or(usize::MAX)
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a number is among the elements.
    #[must_use]
    pub fn has(&self, wanted: i64) -> bool {
        if self.is_empty() {
            return false;
        }
        let offset = i128::from(wanted) - i128::from(self.start);
        let step = i128::from(self.step);
        offset % step == 0 && offset / step >= 0 && offset / step < self.len() as i128
    }

    /// Element `index`, which must be below [`len`](Self::len).
    #[must_use]
    pub fn at(&self, index: usize) -> i64 {
        // An element lies between start and stop, so the true result fits.
        self.start.wrapping_add((index as i64).wrapping_mul(self.step))
    }
}

/// A value of a running flow.
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum Value {
    /// `None`
    #[default]
    None,
    /// `True` and `False`
    Bool(bool),
    /// An integer of 64 bits.
    Int(i64),
    /// A float.
    Float(f64),
    /// An integer that needs more than 64 bits; never a smaller one.
    BigInt(Arc<BigInt>),
    /// A string.
    Str(ArcStr),
    /// Bytes.
    Bytes(Arc<Vec<u8>>),
    /// A value within an answer. Scalars stay in place too until they are decided on.
    Json {
        /// Position in the document.
        at: u32,
        /// The document.
        doc: Doc,
    },
    /// `range(...)`
    Range(Rc<Range>),
    /// A list of the flow's.
    List(Rc<List>),
    /// A dict of the flow's.
    Dict(Rc<Dict>),
    /// A set of the flow's.
    Set(Rc<Set>),
    /// A tuple.
    Tuple(Rc<Tuple>),
    /// `struct(...)`
    Struct(Rc<Struct>),
    /// A function with what it captured.
    Function(Rc<Function>),
    /// A builtin function.
    Native(&'static NativeFn),
    /// A method with its object.
    Bound(Rc<Bound>),
    /// A container, function or struct that a module defined, or a snapshot.
    Frozen(Arc<Frozen>),
    /// An object of the host's, shared by flows.
    Host(HostRef),
    /// An object of the host's that belongs to this flow, such as the request.
    Object(ObjectRef),
    /// Not there yet, or a call's answer with its link to the call.
    Pending(PendingValue),
    /// What an optional call that failed left: `None` in every decision.
    Absent(Rc<Failure>),
    /// Only in registers, as the three below it; no operation or native ever sees one: a variable
    /// before its first assignment.
    #[doc(hidden)]
    Unbound,
    /// An iterator of a loop.
    #[doc(hidden)]
    Iter(Rc<Iter>),
    /// A variable shared with nested functions.
    #[doc(hidden)]
    Cell(Rc<std::cell::RefCell<Value>>),
    /// A list under construction by a comprehension.
    #[doc(hidden)]
    Accumulator(Rc<Accumulator>),
}

impl Value {
    /// A string.
    #[must_use]
    pub fn str(text: &str) -> Self {
        Self::Str(ArcStr::from(text))
    }

    /// A new list.
    #[must_use]
    pub fn list(items: Vec<Value>) -> Self {
        Self::List(Rc::new(List::new(items)))
    }

    /// A new tuple.
    #[must_use]
    pub fn tuple(items: Vec<Value>) -> Self {
        Self::Tuple(Rc::new(Tuple::new(items.into())))
    }

    /// A new tuple of two.
    #[must_use]
    pub fn pair(first: Value, second: Value) -> Self {
        Self::Tuple(Rc::new(Tuple::new([first, second].into())))
    }

    /// A new dict. Keys must be hashable ([`Map::insert`] says which are); others are left out.
    #[must_use]
    pub fn dict(entries: impl IntoIterator<Item = (Value, Value)>) -> Self {
        let mut map = Map::new();
        for (key, value) in entries {
            let _ = map.insert(key, value);
        }
        Self::Dict(Rc::new(Dict::new(map)))
    }

    /// A new dict with string keys.
    #[must_use]
    pub fn record<'a>(entries: impl IntoIterator<Item = (&'a str, Value)>) -> Self {
        Self::dict(entries.into_iter().map(|(key, value)| (Value::str(key), value)))
    }

    /// A document's outermost value.
    #[must_use]
    pub fn json(doc: Doc) -> Self {
        Self::Json { at: Doc::ROOT, doc }
    }

    /// An object of the host's for this flow.
    #[must_use]
    pub fn object(object: impl Object) -> Self {
        Self::Object(ObjectRef::new(object))
    }

    pub(crate) const UNBOUND: Self = Self::Unbound;

    /// Whether a value of this kind can be used as it is: neither pending, nor absent, nor a
    /// scalar that still is JSON text.
    #[inline]
    #[must_use]
    pub fn is_plain(&self) -> bool {
        !matches!(self, Self::Json { .. } | Self::Pending(_) | Self::Absent(_))
    }

    /// The value to decide on: a pending one resolved, an absent one as `None`, a JSON scalar as the
    /// value that it denotes. JSON arrays and objects stay as they are.
    ///
    /// # Errors
    /// [`Stop::Wait`] if it is pending, [`Stop::Fail`] if it failed.
    #[inline]
    pub fn decide(&self) -> Result<Value, Stop> {
        if self.is_plain() { Ok(self.clone()) } else { self.decide_slowly() }
    }

    fn decide_slowly(&self) -> Result<Value, Stop> {
        let mut value = self.clone();
        loop {
            match &value {
                Self::Pending(pending) => match pending.outcome() {
                    None => return Err(Stop::Wait(pending.clone())),
                    Some(Ok(inner)) => value = inner,
                    Some(Err(failure)) => return Err(Stop::Fail(Box::new((*failure).clone()))),
                },
                Self::Absent(_) => return Ok(Self::None),
                Self::Json { at, doc } => {
                    number::bounded(doc.node(*at))?;
                    return Ok(match number::scalar(doc.node(*at)) {
                        Some(scalar) => scalar,
                        None => value,
                    });
                }
                _ => return Ok(value),
            }
        }
    }

    /// The text of a string, also of one in an answer that was decided on.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Str(text) => Some(text),
            _ => None,
        }
    }

    /// An integer of 64 bits.
    #[must_use]
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Self::Int(value) => Some(*value),
            _ => None,
        }
    }

    /// Whether a container may be reached through this value.
    #[must_use]
    pub fn may_hold(&self) -> bool {
        !matches!(
            self,
            Self::None
                | Self::Bool(_)
                | Self::Int(_)
                | Self::Float(_)
                | Self::BigInt(_)
                | Self::Str(_)
                | Self::Bytes(_)
                | Self::Json { .. }
                | Self::Range(_)
                | Self::Native(_)
                | Self::Frozen(_)
                | Self::Host(_)
                | Self::Absent(_)
        )
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::str(value)
    }
}

impl From<ArcStr> for Value {
    fn from(value: ArcStr) -> Self {
        Self::Str(value)
    }
}

impl From<BigInt> for Value {
    fn from(value: BigInt) -> Self {
        number::normal(value)
    }
}

impl std::fmt::Debug for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        display::debug(self, f)
    }
}

const _: () = assert!(size_of::<Value>() == 16);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_counts_its_elements() {
        let len = |start, stop, step| Range { start, stop, step }.len();
        assert_eq!(len(0, 10, 1), 10);
        assert_eq!(len(0, 10, 3), 4);
        assert_eq!(len(10, 0, -3), 4);
        assert_eq!(len(0, 0, 1), 0);
        assert_eq!(len(5, 0, 1), 0);
        assert_eq!(len(i64::MIN, i64::MAX, 1), usize::MAX);
    }
}
