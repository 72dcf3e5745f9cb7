//! Equality, order and hashes, the same for all representations of a value.

use std::cmp::Ordering;
use std::hash::{BuildHasher, Hash, Hasher};
use std::rc::Rc;
use std::sync::{Arc, LazyLock};

use foldhash::quality::RandomState;
use num_traits::ToPrimitive;

use super::view::{self, Iter, Kind};
use super::{Frozen, Value, number};
use crate::error::{Failure, Kind as Error, Stop};

/// Deepest nesting that operations go into. Containers may be nested deeper; looking through all of
/// one is then an error, so that no recursion over a program's data can overflow the stack.
pub const MAX_NESTING: usize = 256;

/// Most elements that one comparison or hash inspects, 64 bytes of text counting as one: it cannot yield to the worker.
pub(crate) const MAX_WORK: u64 = 20_000;

#[cold]
pub(crate) fn too_deep() -> Failure {
    Failure::new(Error::Limit, format!("this value is nested deeper than {MAX_NESTING} levels, or within itself"))
}

/// Whether two values are equal. Decides on both, and on what is inside.
///
/// # Errors
/// [`Stop::Wait`] for something pending; a failure for something failed, or nested too deep.
pub fn equal(a: &Value, b: &Value) -> Result<bool, Stop> {
    equal_within(a, b, 0, &mut { MAX_WORK })
}

/// The same; subtracts the number of compared elements from `work`, and fails when it reaches 0.
pub(crate) fn equal_counted(a: &Value, b: &Value, work: &mut u64) -> Result<bool, Stop> {
    equal_within(a, b, 0, work)
}

/// [`order`], counted like [`equal_counted`].
pub(crate) fn order_counted(a: &Value, b: &Value, work: &mut u64) -> Result<Ordering, Stop> {
    order_within(a, b, 0, work)
}

#[inline]
fn count(work: &mut u64) -> Result<(), Stop> {
    count_many(work, 1)
}

/// This many bytes of text count as one element.
const BYTES: usize = 64;

/// Charges for a text that is read as a whole.
#[inline]
fn count_text(work: &mut u64, bytes: usize) -> Result<(), Stop> {
    if bytes < BYTES { Ok(()) } else { count_many(work, (bytes / BYTES) as u64) }
}

fn count_many(work: &mut u64, elements: u64) -> Result<(), Stop> {
    match work.checked_sub(elements) {
        Some(left) => {
            *work = left;
            Ok(())
        }
        None => Err(Stop::fail(
            Error::Limit,
            format!("one operation compared more than {MAX_WORK} elements, or more than the flow has steps left"),
        )),
    }
}

fn equal_within(a: &Value, b: &Value, depth: usize, work: &mut u64) -> Result<bool, Stop> {
    match (a, b) {
        (Value::Str(a), Value::Str(b)) => {
            // Texts of different lengths differ, and a text is itself.
            if a.len() != b.len() || arcstr::ArcStr::ptr_eq(a, b) {
                return Ok(a.len() == b.len());
            }
            count_text(work, a.len())?;
            return Ok(a == b);
        }
        (Value::Int(a), Value::Int(b)) => return Ok(a == b),
        // Text in an answer is compared in place.
        (Value::Json { at, doc }, Value::Str(text)) | (Value::Str(text), Value::Json { at, doc }) => {
            return Ok(doc.node(*at).as_str().is_some_and(|own| own == text.as_str()));
        }
        _ => {}
    }
    if !a.is_plain() || !b.is_plain() {
        let (a, b) = (a.decide()?, b.decide()?);
        return equal_decided(&a, &b, depth, work);
    }
    equal_decided(a, b, depth, work)
}

fn equal_decided(a: &Value, b: &Value, depth: usize, work: &mut u64) -> Result<bool, Stop> {
    count(work)?;
    let (kind_a, kind_b) = (view::kind(a), view::kind(b));
    if let Some(order) = number::compare(a, b) {
        return Ok(order == Ordering::Equal);
    }
    if kind_a != kind_b {
        return Ok(false);
    }
    if depth > MAX_NESTING {
        return Err(too_deep().into());
    }
    match (a, b) {
        (Value::None, Value::None) => return Ok(true),
        (Value::Bool(a), Value::Bool(b)) => return Ok(a == b),
        (Value::Str(a), Value::Str(b)) => {
            count_text(work, a.len().min(b.len()))?;
            return Ok(a == b);
        }
        (Value::Bytes(a), Value::Bytes(b)) => {
            count_text(work, a.len().min(b.len()))?;
            return Ok(a == b);
        }
        (Value::List(a), Value::List(b)) if Rc::ptr_eq(a, b) => return Ok(true),
        (Value::Dict(a), Value::Dict(b)) if Rc::ptr_eq(a, b) => return Ok(true),
        (Value::Tuple(a), Value::Tuple(b)) if Rc::ptr_eq(a, b) => return Ok(true),
        (Value::List(a), Value::List(b)) => return equal_slices(&a.items(), &b.items(), depth, work),
        (Value::Tuple(a), Value::Tuple(b)) => return equal_slices(a, b, depth, work),
        (Value::Frozen(a), Value::Frozen(b)) if Arc::ptr_eq(a, b) => return Ok(true),
        _ => {}
    }
    match kind_a {
        Kind::List | Kind::Tuple | Kind::Range => {
            if view::len(a) != view::len(b) {
                return Ok(false);
            }
            let (left, right) = (Iter::of(a)?, Iter::of(b)?);
            while let (Some(x), Some(y)) = (left.next(), right.next()) {
                if !equal_within(&x, &y, depth + 1, work)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        Kind::Dict => {
            if view::len(a) != view::len(b) {
                return Ok(false);
            }
            for (key, value) in view::entries(a).unwrap_or_default() {
                match view::get(b, &key)? {
                    Some(other) if equal_within(&value, &other, depth + 1, work)? => {}
                    _ => return Ok(false),
                }
            }
            Ok(true)
        }
        Kind::Set => {
            if view::len(a) != view::len(b) {
                return Ok(false);
            }
            for key in view::elements(a)? {
                count(work)?;
                if view::get(b, &key)?.is_none() {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        Kind::Struct => {
            let (left, right) = (fields(a), fields(b));
            if left.len() != right.len() {
                return Ok(false);
            }
            for (name, value) in &left {
                match right.iter().find(|(other, _)| other == name) {
                    Some((_, other)) if equal_within(value, other, depth + 1, work)? => {}
                    _ => return Ok(false),
                }
            }
            Ok(true)
        }
        _ => Ok(same(a, b)),
    }
}

fn equal_slices(a: &[Value], b: &[Value], depth: usize, work: &mut u64) -> Result<bool, Stop> {
    if a.len() != b.len() {
        return Ok(false);
    }
    for (x, y) in a.iter().zip(b) {
        if !equal_within(x, y, depth + 1, work)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The fields of a struct.
pub(crate) fn fields(value: &Value) -> Vec<(arcstr::ArcStr, Value)> {
    match value {
        Value::Struct(fields) => fields.fields().to_vec(),
        Value::Frozen(frozen) => match &**frozen {
            Frozen::Struct(fields) => fields.iter().map(|(name, value)| (name.clone(), value.to_value())).collect(),
            _ => Vec::new(),
        },
        _ => Vec::new(),
    }
}

/// Identity, for what has no other equality.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Function(a), Value::Function(b)) => Rc::ptr_eq(a, b),
        (Value::Native(a), Value::Native(b)) => std::ptr::eq(*a, *b),
        (Value::Bound(a), Value::Bound(b)) => Rc::ptr_eq(a, b),
        (Value::Host(a), Value::Host(b)) => a.same(b),
        (Value::Object(a), Value::Object(b)) => a.same(b),
        (Value::Frozen(a), Value::Frozen(b)) => match (&**a, &**b) {
            (Frozen::Function(a), Frozen::Function(b)) => a.code == b.code && a.captured.is_empty(),
            _ => false,
        },
        _ => false,
    }
}

/// Which of two values is smaller: numbers, strings, booleans, and lists and tuples of these.
///
/// # Errors
/// [`Stop::Wait`] for something pending; a failure for values that have no order.
pub fn order(a: &Value, b: &Value) -> Result<Ordering, Stop> {
    order_within(a, b, 0, &mut { MAX_WORK })
}

fn order_within(a: &Value, b: &Value, depth: usize, work: &mut u64) -> Result<Ordering, Stop> {
    if !a.is_plain() || !b.is_plain() {
        let (a, b) = (a.decide()?, b.decide()?);
        return order_decided(&a, &b, depth, work);
    }
    order_decided(a, b, depth, work)
}

fn order_decided(a: &Value, b: &Value, depth: usize, work: &mut u64) -> Result<Ordering, Stop> {
    count(work)?;
    if let Some(order) = number::compare(a, b) {
        return Ok(order);
    }
    match (a, b) {
        (Value::Str(a), Value::Str(b)) => {
            count_text(work, a.len().min(b.len()))?;
            return Ok(a.as_str().cmp(b.as_str()));
        }
        (Value::Bool(a), Value::Bool(b)) => return Ok(a.cmp(b)),
        (Value::Bytes(a), Value::Bytes(b)) => {
            count_text(work, a.len().min(b.len()))?;
            return Ok(a.cmp(b));
        }
        _ => {}
    }
    if depth > MAX_NESTING {
        return Err(too_deep().into());
    }
    match (a, b) {
        (Value::Tuple(a), Value::Tuple(b)) => return order_slices(a, b, depth, work),
        (Value::List(a), Value::List(b)) => return order_slices(&a.items(), &b.items(), depth, work),
        _ => {}
    }
    match (view::kind(a), view::kind(b)) {
        (Kind::List, Kind::List) | (Kind::Tuple, Kind::Tuple) => {
            let (left, right) = (Iter::of(a)?, Iter::of(b)?);
            loop {
                match (left.next(), right.next()) {
                    (None, None) => return Ok(Ordering::Equal),
                    (None, Some(_)) => return Ok(Ordering::Less),
                    (Some(_), None) => return Ok(Ordering::Greater),
                    (Some(x), Some(y)) => {
                        if !equal_within(&x, &y, depth + 1, work)? {
                            return order_within(&x, &y, depth + 1, work);
                        }
                    }
                }
            }
        }
        _ => {
            Err(Stop::fail(Error::Type, format!("{} and {} cannot be ordered", view::type_name(a), view::type_name(b))))
        }
    }
}

fn order_slices(a: &[Value], b: &[Value], depth: usize, work: &mut u64) -> Result<Ordering, Stop> {
    for (x, y) in a.iter().zip(b) {
        let order = match (x, y) {
            (Value::Int(x), Value::Int(y)) => x.cmp(y),
            (Value::Str(x), Value::Str(y)) => {
                count_text(work, x.len().min(y.len()))?;
                x.as_str().cmp(y.as_str())
            }
            _ if equal_within(x, y, depth + 1, work)? => Ordering::Equal,
            _ => return order_within(x, y, depth + 1, work),
        };
        count(work)?;
        if order != Ordering::Equal {
            return Ok(order);
        }
    }
    Ok(a.len().cmp(&b.len()))
}

/// Keyed once per process: keys of dicts come from clients, who must not be able to choose keys that
/// collide. SipHash, the standard library's choice, took a tenth of a loop that counts in a dict.
static KEYS: LazyLock<RandomState> = LazyLock::new(RandomState::default);

pub(crate) fn hash_str(text: &str) -> u64 {
    KEYS.hash_one(text)
}

/// The hash of a key.
///
/// # Errors
/// If it is or holds a list, dict or set; [`Stop::Wait`] for something pending.
pub fn hash(value: &Value) -> Result<u64, Stop> {
    match value {
        Value::Str(text) => Ok(hash_str(text)),
        Value::Int(int) => Ok(KEYS.hash_one(int)),
        other => {
            let mut hasher = KEYS.build_hasher();
            hash_into(other, &mut hasher, 0, &mut { MAX_WORK })?;
            Ok(hasher.finish())
        }
    }
}

fn hash_into(value: &Value, hasher: &mut impl Hasher, depth: usize, work: &mut u64) -> Result<(), Stop> {
    count(work)?;
    if depth > MAX_NESTING {
        return Err(too_deep().into());
    }
    let value = value.decide()?;
    match &value {
        Value::None => 0_u8.hash(hasher),
        Value::Bool(value) => value.hash(hasher),
        Value::Int(value) => value.hash(hasher),
        // Equal numbers hash equally, whatever holds them.
        Value::Float(float) => match float.to_i64() {
            Some(whole) if whole as f64 == *float => whole.hash(hasher),
            _ => float.to_bits().hash(hasher),
        },
        Value::BigInt(big) => {
            let float = big.to_f64().unwrap_or(f64::INFINITY);
            float.to_bits().hash(hasher);
        }
        Value::Str(text) => {
            count_text(work, text.len())?;
            hash_str(text).hash(hasher);
        }
        Value::Bytes(bytes) => {
            count_text(work, bytes.len())?;
            bytes.hash(hasher);
        }
        Value::Native(native) => std::ptr::from_ref(*native).addr().hash(hasher),
        Value::Function(function) => Rc::as_ptr(function).addr().hash(hasher),
        other => match view::kind(other) {
            Kind::Tuple => {
                for element in view::elements(other)? {
                    hash_into(&element, hasher, depth + 1, work)?;
                }
            }
            Kind::Struct => {
                let mut fields = fields(other);
                fields.sort_by(|(a, _), (b, _)| a.cmp(b));
                for (name, value) in fields {
                    name.hash(hasher);
                    hash_into(&value, hasher, depth + 1, work)?;
                }
            }
            Kind::Function => 1_u8.hash(hasher),
            _ => {
                return Err(Stop::fail(
                    Error::Type,
                    format!("{} is not hashable, so it cannot be a key", view::type_name(other)),
                ));
            }
        },
    }
    Ok(())
}
