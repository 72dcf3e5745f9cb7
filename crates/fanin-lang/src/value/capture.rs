//! Readiness of a value with everything inside it, and snapshots of it.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use smallvec::SmallVec;

use super::{Dict, List, Map, Set, Struct, Tuple, Value, compare};
use crate::error::{Failure, Kind};
use crate::pending::{Derived, Later, PendingKind, PendingValue};
use crate::program_order::ProgramOrder;
use crate::program_point::ProgramPoint;

/// Whether a value can be used with everything inside it.
#[derive(Debug)]
pub enum Readiness {
    /// Nothing.
    Ready,
    /// Something is pending: this one, and perhaps others.
    Pending(PendingValue),
    /// All is ready, and this is the first of it, in the order of the value, that failed.
    Failed(Rc<Failure>),
    /// All is ready, nothing failed, and this is the first that an optional call left out.
    Absent(Rc<Failure>),
    /// Nested deeper than any value may be, or within itself.
    TooDeep,
}

/// Looks through a value and everything inside it.
#[must_use]
pub fn readiness(value: &Value) -> Readiness {
    match value {
        // By far the most common ones.
        Value::Json { .. } | Value::Str(_) | Value::Int(_) | Value::Float(_) | Value::Bool(_) | Value::None => {
            return Readiness::Ready;
        }
        _ => {}
    }
    let mut walk = Walk { seen: HashSet::new(), failed: None, absent: None };
    match walk.value(value, 0) {
        Err(found) => found,
        Ok(()) => match (walk.failed, walk.absent) {
            (Some(failure), _) => Readiness::Failed(failure),
            (None, Some(failure)) => Readiness::Absent(failure),
            (None, None) => Readiness::Ready,
        },
    }
}

struct Walk {
    /// Shared containers that were searched. Keyed by address; the values are alive.
    seen: HashSet<usize>,
    failed: Option<Rc<Failure>>,
    absent: Option<Rc<Failure>>,
}

impl Walk {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Readiness> {
        if depth > compare::MAX_NESTING {
            return Err(Readiness::TooDeep);
        }
        match value {
            Value::Absent(failure) => {
                self.absent.get_or_insert_with(|| failure.clone());
            }
            Value::Pending(pending) => match pending.outcome() {
                None => return Err(Readiness::Pending(pending.clone())),
                Some(Err(failure)) => {
                    self.failed.get_or_insert(failure);
                }
                Some(Ok(inner)) => return self.value(&inner, depth + 1),
            },
            Value::List(list) if (Rc::strong_count(list) == 1 || self.seen.insert(Rc::as_ptr(list).addr())) => {
                for value in list.items().iter() {
                    self.value(value, depth + 1)?;
                }
            }
            Value::Dict(dict) if (Rc::strong_count(dict) == 1 || self.seen.insert(Rc::as_ptr(dict).addr())) => {
                for (_, value) in dict.map().iter() {
                    self.value(value, depth + 1)?;
                }
            }
            Value::Tuple(tuple) if (Rc::strong_count(tuple) == 1 || self.seen.insert(Rc::as_ptr(tuple).addr())) => {
                for value in tuple.iter() {
                    self.value(value, depth + 1)?;
                }
            }
            Value::Struct(fields) if (Rc::strong_count(fields) == 1 || self.seen.insert(Rc::as_ptr(fields).addr())) => {
                for (_, value) in fields.fields() {
                    self.value(value, depth + 1)?;
                }
            }
            Value::Object(object)
                if (Rc::strong_count(&object.0) == 1 || self.seen.insert(Rc::as_ptr(&object.0).addr())) =>
            {
                let mut found = Ok(());
                object.visit(&mut |value| {
                    if found.is_ok() {
                        found = self.value(value, depth + 1);
                    }
                });
                return found;
            }
            _ => {}
        }
        Ok(())
    }
}

/// A snapshot: containers are copied as they are now, with all that is inside; what is pending stays
/// so, but a fiber's result is copied the moment it comes.
///
/// `order` and `place` are where the snapshot is taken, for a failure that shows only later.
pub(crate) fn capture(value: &Value, order: &ProgramOrder, place: &dyn Fn() -> ProgramPoint) -> Result<Value, Failure> {
    match value {
        Value::List(_)
        | Value::Dict(_)
        | Value::Set(_)
        | Value::Tuple(_)
        | Value::Struct(_)
        | Value::Pending(_)
        | Value::Unbound
        | Value::Iter(_)
        | Value::Cell(_)
        | Value::Accumulator(_) => {
            // Mostly a dict written in the call itself: nothing else can ever change it.
            if is_sole(value, 0, &mut { MOST }) {
                return Ok(value.clone());
            }
            Capture { copies: HashMap::new(), order, place, left: MOST }.value(value, 0)
        }
        other => Ok(other.clone()),
    }
}

/// Most elements of one snapshot: it cannot yield to the worker.
const MOST: usize = 200_000;

/// Whether the one reference that leads to each container within a value is the one inspected, and none
/// is still to come.
fn is_sole(value: &Value, depth: usize, left: &mut usize) -> bool {
    const DEEP: usize = 16;
    if depth > DEEP || *left == 0 {
        return false;
    }
    *left -= 1;
    let below = depth + 1;
    match value {
        Value::List(list) => {
            Rc::strong_count(list) == 1 && list.items().iter().all(|value| is_sole(value, below, left))
        }
        Value::Dict(dict) => {
            Rc::strong_count(dict) == 1 && dict.map().iter().all(|(_, value)| is_sole(value, below, left))
        }
        Value::Set(set) => Rc::strong_count(set) == 1,
        Value::Tuple(tuple) => Rc::strong_count(tuple) == 1 && tuple.iter().all(|value| is_sole(value, below, left)),
        Value::Struct(fields) => {
            Rc::strong_count(fields) == 1 && fields.fields().iter().all(|(_, value)| is_sole(value, below, left))
        }
        Value::Pending(pending) => pending.is_soft(),
        Value::Unbound | Value::Iter(_) | Value::Cell(_) | Value::Accumulator(_) => false,
        _ => true,
    }
}

struct Capture<'a> {
    /// Shared containers that were copied. Keyed by address; the values are alive.
    copies: HashMap<usize, Value>,
    order: &'a ProgramOrder,
    place: &'a dyn Fn() -> ProgramPoint,
    /// Elements that may still be copied.
    left: usize,
}

impl Capture<'_> {
    fn shared(
        &mut self,
        address: usize,
        count: usize,
        copy: impl FnOnce(&mut Self) -> Result<Value, Failure>,
    ) -> Result<Value, Failure> {
        if count == 1 {
            return copy(self);
        }
        if let Some(known) = self.copies.get(&address) {
            return Ok(known.clone());
        }
        let made = copy(self)?;
        self.copies.insert(address, made.clone());
        Ok(made)
    }

    fn value(&mut self, value: &Value, depth: usize) -> Result<Value, Failure> {
        if depth > compare::MAX_NESTING {
            return Err(compare::too_deep());
        }
        self.left = self
            .left
            .checked_sub(1)
            .ok_or_else(|| Failure::new(Kind::Limit, format!("a call's arguments have more than {MOST} elements")))?;
        let below = depth + 1;
        match value {
            Value::List(list) => self.shared(Rc::as_ptr(list).addr(), Rc::strong_count(list), |this| {
                let items: Result<Vec<Value>, Failure> =
                    list.items().iter().map(|value| this.value(value, below)).collect();
                Ok(Value::List(Rc::new(List::new(items?))))
            }),
            Value::Tuple(tuple) => self.shared(Rc::as_ptr(tuple).addr(), Rc::strong_count(tuple), |this| {
                let items: Result<SmallVec<[Value; 2]>, Failure> =
                    tuple.iter().map(|value| this.value(value, below)).collect();
                Ok(Value::Tuple(Rc::new(Tuple::new(items?))))
            }),
            Value::Dict(dict) => self.shared(Rc::as_ptr(dict).addr(), Rc::strong_count(dict), |this| {
                let mut map = Map::with_capacity(dict.map().len());
                for (key, value) in dict.map().iter() {
                    // Keys cannot change and were hashed before.
                    let _ = map.insert(key.clone(), this.value(value, below)?);
                }
                Ok(Value::Dict(Rc::new(Dict::new(map))))
            }),
            Value::Set(set) => Ok(Value::Set(Rc::new(Set::new(set.items().clone())))),
            Value::Struct(fields) => self.shared(Rc::as_ptr(fields).addr(), Rc::strong_count(fields), |this| {
                let mut copied = Vec::with_capacity(fields.fields().len());
                for (name, value) in fields.fields() {
                    copied.push((name.clone(), this.value(value, below)?));
                }
                Ok(Value::Struct(Rc::new(Struct::new(copied))))
            }),
            Value::Pending(pending) if !pending.is_soft() => match pending.outcome() {
                Some(Ok(inner)) => self.value(&inner, below),
                Some(Err(_)) => Ok(value.clone()),
                None => Ok(Value::Pending(self.later(pending))),
            },
            Value::Unbound => Ok(Value::None),
            other => Ok(other.clone()),
        }
    }

    /// A pending value for the copy of a fiber's result.
    fn later(&self, pending: &PendingValue) -> PendingValue {
        let (root, path) = match &pending.0.kind {
            PendingKind::Derived(way) => (way.of.clone(), way.path.clone()),
            _ => (pending.clone(), Box::default()),
        };
        let derived = PendingValue::derived(root.clone(), path.clone());
        root.derive(Derived::Capture(Later {
            pending: derived.clone(),
            path,
            order: self.order.clone(),
            place: (self.place)(),
        }));
        derived
    }
}
