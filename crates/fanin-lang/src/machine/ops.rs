//! Operators. Each decides on its operands first and changes something only in the end.

use std::cmp::Ordering;
use std::rc::Rc;

use arcstr::ArcStr;
use num_traits::Signed;

use crate::code::{Binary, Comparison};
use crate::error::{Failure, Kind as Error, Stop};
use crate::native::{Ctx, ENTRY};
use crate::value::view::{self, Kind, type_name};
use crate::value::{Map, Set, Value, compare, number};

use super::arithmetic::{arithmetic, small, unsupported};
use super::charge::scan_steps;

/// Whether a value counts as true.
///
/// # Errors
/// [`Stop::Wait`] if it is pending, its failure if it failed.
#[inline]
pub fn truth(value: &Value) -> Result<bool, Stop> {
    match value {
        Value::Bool(value) => Ok(*value),
        Value::None => Ok(false),
        _ => truth_slowly(value),
    }
}

fn truth_slowly(value: &Value) -> Result<bool, Stop> {
    let decided;
    let value = if value.is_plain() {
        value
    } else {
        decided = value.decide()?;
        &decided
    };
    Ok(match value {
        Value::None => false,
        Value::Bool(value) => *value,
        Value::Int(value) => *value != 0,
        Value::Float(value) => *value != 0.0,
        Value::Str(text) => !text.is_empty(),
        Value::Bytes(bytes) => !bytes.is_empty(),
        Value::Json { at, doc } => !doc.node(*at).is_empty(),
        other => match view::kind(other) {
            Kind::List | Kind::Tuple | Kind::Dict | Kind::Set | Kind::Range => view::len(other) != Some(0),
            _ => true,
        },
    })
}

/// `a op b`
pub(crate) fn binary(ctx: &mut Ctx<'_>, op: Binary, a: &Value, b: &Value) -> Result<Value, Stop> {
    if let (Value::Int(a), Value::Int(b)) = (a, b)
        && let Some(value) = small(op, *a, *b)
    {
        return Ok(Value::Int(value));
    }
    if let (Binary::Add, Value::Str(a), Value::Str(b)) = (op, a, b) {
        return concat(ctx, a, b);
    }
    if a.is_plain() && b.is_plain() {
        return decided(ctx, op, a, b);
    }
    let (a, b) = (a.decide()?, b.decide()?);
    decided(ctx, op, &a, &b)
}

fn decided(ctx: &mut Ctx<'_>, op: Binary, a: &Value, b: &Value) -> Result<Value, Stop> {
    if let (Some(x), Some(y)) = (number::float(a), number::float(b)) {
        return arithmetic(ctx, op, a, b, x, y);
    }
    match (op, view::kind(a), view::kind(b)) {
        (Binary::Add, Kind::Str, Kind::Str) => match (a, b) {
            (Value::Str(a), Value::Str(b)) => concat(ctx, a, b),
            _ => Err(unsupported(op, a, b)),
        },
        (Binary::Add, Kind::Bytes, Kind::Bytes) => {
            if let (Value::Bytes(x), Value::Bytes(y)) = (a, b) {
                ctx.memory(24 + x.len() + y.len())?;
                return Ok(Value::Bytes(std::sync::Arc::new([x.as_slice(), y.as_slice()].concat())));
            }
            Err(unsupported(op, a, b))
        }
        (Binary::Add, Kind::List, Kind::List) => joined(ctx, a, b).map(Value::list),
        (Binary::Add, Kind::Tuple, Kind::Tuple) => joined(ctx, a, b).map(Value::tuple),
        (Binary::Multiply, _, Kind::Int) => repeat(ctx, a, b),
        (Binary::Multiply, Kind::Int, _) => repeat(ctx, b, a),
        (Binary::Modulo, Kind::Str, _) => match a {
            Value::Str(format) => crate::builtins::format::percent(ctx, format, b),
            _ => Err(unsupported(op, a, b)),
        },
        (Binary::Or, Kind::Dict, Kind::Dict) => {
            let entries = view::entries(a).unwrap_or_default().into_iter().chain(view::entries(b).unwrap_or_default());
            let mut map = Map::new();
            for (key, value) in entries {
                ctx.memory(64)?;
                ctx.steps(1)?;
                ctx.value(map.len() * ENTRY)?;
                map.insert(key, value)?;
            }
            Ok(Value::Dict(Rc::new(crate::value::Dict::new(map))))
        }
        (Binary::Or | Binary::And | Binary::Xor | Binary::Subtract, Kind::Set, Kind::Set) => set(ctx, op, a, b),
        _ => Err(unsupported(op, a, b)),
    }
}

/// Texts of more bytes do not fit the room that is kept for putting them together.
const LONG: usize = 4096;

fn concat(ctx: &mut Ctx<'_>, a: &str, b: &str) -> Result<Value, Stop> {
    ctx.memory(24 + a.len() + b.len())?;
    ctx.steps((a.len() + b.len()) / 16)?;
    if a.len() + b.len() > LONG {
        return Ok(crate::native::filled(a.len() + b.len(), |bytes| {
            let (left, right) = bytes.split_at_mut(a.len());
            left.copy_from_slice(a.as_bytes());
            right.copy_from_slice(b.as_bytes());
        }));
    }
    let mut joined = ctx.scratch();
    joined.push_str(a);
    joined.push_str(b);
    let text = ArcStr::from(joined.as_str());
    ctx.put_scratch(joined);
    Ok(Value::Str(text))
}

/// The elements of two lists or tuples; charged.
fn joined(ctx: &mut Ctx<'_>, a: &Value, b: &Value) -> Result<Vec<Value>, Stop> {
    let length = view::len(a).unwrap_or(0) + view::len(b).unwrap_or(0);
    ctx.steps(length)?;
    ctx.value(length.saturating_mul(size_of::<Value>()))?;
    ctx.memory(64 + length.saturating_mul(size_of::<Value>()))?;
    let mut items = Vec::with_capacity(length);
    for part in [a, b] {
        match part {
            Value::List(list) => items.extend(list.items().iter().cloned()),
            Value::Tuple(tuple) => items.extend(tuple.iter().cloned()),
            other => items.extend(view::elements(other)?),
        }
    }
    Ok(items)
}

fn set(ctx: &mut Ctx<'_>, op: Binary, a: &Value, b: &Value) -> Result<Value, Stop> {
    let mut map = Map::new();
    for key in ctx.elements(a)? {
        let common = view::get(b, &key)?.is_some();
        let keep = match op {
            Binary::And => common,
            Binary::Or => true,
            _ => !common,
        };
        if keep {
            ctx.memory(64)?;
            map.insert(key, Value::None)?;
        }
    }
    if matches!(op, Binary::Or | Binary::Xor) {
        for key in ctx.elements(b)? {
            if op == Binary::Or || view::get(a, &key)?.is_none() {
                ctx.memory(64)?;
                map.insert(key, Value::None)?;
            }
        }
    }
    Ok(Value::Set(Rc::new(Set::new(map))))
}

fn repeat(ctx: &mut Ctx<'_>, what: &Value, times: &Value) -> Result<Value, Stop> {
    let count = match times {
        Value::Int(count) => usize::try_from(*count).unwrap_or(0),
        Value::BigInt(count) if count.is_negative() => 0,
        _ => usize::MAX,
    };
    let len = match what {
        Value::Str(text) => text.len(),
        other => view::len(other).unwrap_or(0).saturating_mul(size_of::<Value>()),
    };
    // Charged before anything is made: a program chooses the size.
    let size = len.saturating_mul(count);
    if !matches!(view::kind(what), Kind::Str | Kind::List | Kind::Tuple | Kind::Bytes) {
        return Err(unsupported(Binary::Multiply, what, times));
    }
    ctx.memory(size.saturating_add(64))?;
    ctx.steps(size / 16)?;
    match what {
        Value::Str(text) => Ok(crate::native::filled(size, |bytes| {
            bytes[..len].copy_from_slice(text.as_bytes());
            // What is there is copied behind itself: a short text many times takes no longer than a long one.
            let mut done = len;
            while done < size {
                let more = done.min(size - done);
                bytes.copy_within(..more, done);
                done += more;
            }
        })),
        Value::Bytes(bytes) => Ok(Value::Bytes(std::sync::Arc::new(bytes.repeat(count)))),
        Value::List(list) => Ok(Value::list(repeated(&list.items(), count))),
        Value::Tuple(tuple) => Ok(Value::tuple(repeated(tuple, count))),
        other => {
            let items = repeated(&view::elements(other)?, count);
            Ok(if view::kind(other) == Kind::Tuple { Value::tuple(items) } else { Value::list(items) })
        }
    }
}

fn repeated(items: &[Value], count: usize) -> Vec<Value> {
    let mut repeated = Vec::with_capacity(items.len() * count);
    for _ in 0..count {
        repeated.extend_from_slice(items);
    }
    repeated
}

/// `a op= b`
pub(crate) fn in_place(ctx: &mut Ctx<'_>, op: Binary, a: &Value, b: &Value) -> Result<Value, Stop> {
    if matches!(a, Value::Int(_) | Value::Float(_) | Value::Str(_)) {
        return binary(ctx, op, a, b);
    }
    let a = a.decide()?;
    match (&a, op) {
        (Value::List(_), Binary::Add) => {
            let b = b.decide()?;
            if !matches!(view::kind(&b), Kind::List | Kind::Tuple | Kind::Dict | Kind::Set | Kind::Range) {
                return Err(unsupported(op, &a, &b));
            }
            let items = ctx.elements(&b)?;
            let list = ctx.edit_list(&a, items.iter().find(|item| item.may_hold()))?;
            ctx.value((list.items().len() + items.len()) * size_of::<Value>())?;
            list.edit()?.extend(items);
            Ok(a)
        }
        (Value::Dict(_), Binary::Or) => {
            let b = b.decide()?;
            let Some(entries) = view::entries(&b) else { return Err(unsupported(op, &a, &b)) };
            ctx.steps(entries.len())?;
            ctx.memory(entries.len() * 48)?;
            ctx.value((view::len(&a).unwrap_or(0) + entries.len()) * ENTRY)?;
            let dict = ctx.edit_dict(&a, entries.iter().map(|(_, value)| value).find(|value| value.may_hold()))?;
            let mut map = dict.edit()?;
            for (key, value) in entries {
                map.insert(key, value)?;
            }
            drop(map);
            Ok(a)
        }
        (Value::Set(set), Binary::Or | Binary::And | Binary::Xor | Binary::Subtract) => {
            let b = b.decide()?;
            let Value::Set(result) = binary(ctx, op, &a, &b)? else { return Err(unsupported(op, &a, &b)) };
            let mut items = set.edit()?;
            *items = result.items().clone();
            drop(items);
            Ok(a)
        }
        // What would change in place if it could.
        (_, Binary::Add) if view::kind(&a) == Kind::List => Err(frozen(&a)),
        (_, Binary::Or) if view::kind(&a) == Kind::Dict => Err(frozen(&a)),
        (_, Binary::Or | Binary::And | Binary::Xor | Binary::Subtract) if view::kind(&a) == Kind::Set => {
            Err(frozen(&a))
        }
        _ => binary(ctx, op, &a, b),
    }
}

#[cold]
fn frozen(value: &Value) -> Stop {
    let name = type_name(value);
    Failure::new(Error::Frozen, format!("this {name} is frozen and cannot be changed"))
        .with_hint(format!("{name}(x) makes a copy that can be changed, and x = x + y a new one"))
        .into()
}

/// `a == b`
#[inline]
pub(crate) fn equal(ctx: &mut Ctx<'_>, a: &Value, b: &Value) -> Result<bool, Stop> {
    if let (Value::Int(a), Value::Int(b)) = (a, b) {
        return Ok(a == b);
    }
    counted(ctx, |work| compare::equal_counted(a, b, work))
}

/// Runs a comparison with as much work as one may do, and charges what it did.
fn counted<T>(ctx: &mut Ctx<'_>, compare: impl FnOnce(&mut u64) -> Result<T, Stop>) -> Result<T, Stop> {
    let most = compare::MAX_WORK.min(ctx.meter.steps_left());
    let mut left = most;
    let result = compare(&mut left)?;
    ctx.steps((most - left) as usize)?;
    Ok(result)
}

/// `a < b` and its like.
#[inline]
pub(crate) fn ordered(ctx: &mut Ctx<'_>, op: Comparison, a: &Value, b: &Value) -> Result<bool, Stop> {
    let order = match (a, b) {
        (Value::Int(a), Value::Int(b)) => a.cmp(b),
        _ => counted(ctx, |work| compare::order_counted(a, b, work))?,
    };
    Ok(match op {
        Comparison::Less => order == Ordering::Less,
        Comparison::LessEqual => order != Ordering::Greater,
        Comparison::Greater => order == Ordering::Greater,
        Comparison::GreaterEqual => order != Ordering::Less,
    })
}

/// `a in b`
pub(crate) fn contains(ctx: &mut Ctx<'_>, a: &Value, b: &Value) -> Result<bool, Stop> {
    if let (Value::Str(_) | Value::Int(_), Value::Dict(dict)) = (a, b) {
        ctx.steps(scan_steps(a))?;
        return Ok(dict.map().position(a)?.is_some());
    }
    let b = b.decide()?;
    match view::kind(&b) {
        Kind::Dict | Kind::Set => {
            let key = a.decide()?;
            ctx.steps(scan_steps(&key))?;
            Ok(view::get(&b, &key)?.is_some())
        }
        Kind::Str => match (a.decide()?, &b) {
            (Value::Str(part), Value::Str(text)) => {
                ctx.steps(text.len() / 32)?;
                Ok(memchr::memmem::find(text.as_bytes(), part.as_bytes()).is_some())
            }
            (other, _) => Err(Stop::fail(Error::Type, format!("{} in string is not possible", type_name(&other)))),
        },
        Kind::Range => match (a.decide()?, &b) {
            (Value::Int(wanted), Value::Range(range)) => Ok(range.has(wanted)),
            // Equal numbers are equal, whatever holds them.
            (Value::Float(wanted), Value::Range(range)) if wanted.fract() == 0.0 && wanted.abs() < 1e15 => {
                Ok(range.has(wanted as i64))
            }
            _ => Ok(false),
        },
        Kind::List | Kind::Tuple => {
            let wanted = a.decide()?;
            let iter = view::Iter::of(&b)?;
            counted(ctx, |work| {
                while let Some(item) = iter.next() {
                    if compare::equal_counted(&wanted, &item, work)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            })
        }
        _ => Err(Stop::fail(Error::Type, format!("`in` does not work with {}", type_name(&b)))),
    }
}
