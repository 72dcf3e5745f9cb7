//! Operators. Each decides on its operands first and changes something only in the end.

use std::cmp::Ordering;
use std::rc::Rc;

use num_bigint::BigInt;
use num_traits::{Signed, ToPrimitive, Zero};

use crate::code::{Binary, Order};
use crate::error::{Failure, Kind as Error, Stop};
use crate::native::{Ctx, ENTRY};
use crate::value::view::{self, Kind, type_name};
use crate::value::{Map, Range, Set, Value, compare, number};

pub(crate) use super::index::index_hard;

/// Whether a value counts as true.
///
/// # Errors
/// [`Stop::Wait`] if it is not there, its failure if it failed.
#[inline]
pub fn truth(value: &Value) -> Result<bool, Stop> {
    match value {
        Value::Bool(value) => Ok(*value),
        Value::None => Ok(false),
        _ => truth_slowly(value),
    }
}

fn truth_slowly(value: &Value) -> Result<bool, Stop> {
    Ok(match &value.decide()? {
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

/// Longest integer.
const MOST_BITS: u64 = 65_536;

fn symbol(op: Binary) -> &'static str {
    match op {
        Binary::Add => "+",
        Binary::Subtract => "-",
        Binary::Multiply => "*",
        Binary::Divide => "/",
        Binary::FloorDivide => "//",
        Binary::Modulo => "%",
        Binary::And => "&",
        Binary::Or => "|",
        Binary::Xor => "^",
        Binary::Left => "<<",
        Binary::Right => ">>",
    }
}

#[cold]
fn unsupported(op: Binary, a: &Value, b: &Value) -> Stop {
    let mut failure =
        Failure::new(Error::Type, format!("{} {} {} is not possible", type_name(a), symbol(op), type_name(b)));
    if matches!(a, Value::None) || matches!(b, Value::None) {
        failure = failure
            .with_hint("one side is None: a function without return, a missing key, or an optional call that failed");
    } else if op == Binary::Add && (matches!(a, Value::Str(_)) || matches!(b, Value::Str(_))) {
        failure = failure.with_hint("str(x) makes a string of anything");
    }
    failure.into()
}

#[cold]
fn division_by_zero() -> Stop {
    Stop::fail(Error::Arithmetic, "division by zero")
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

/// Integers whose result fits.
#[inline]
pub(crate) fn small(op: Binary, a: i64, b: i64) -> Option<i64> {
    Some(match op {
        Binary::Add => a.checked_add(b)?,
        Binary::Subtract => a.checked_sub(b)?,
        Binary::Multiply => a.checked_mul(b)?,
        Binary::FloorDivide if b != 0 => {
            let quotient = a.checked_div(b)?;
            if a % b != 0 && (a < 0) != (b < 0) { quotient - 1 } else { quotient }
        }
        Binary::Modulo if b != 0 => {
            let rest = a.checked_rem(b)?;
            if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest }
        }
        Binary::And => a & b,
        Binary::Or => a | b,
        Binary::Xor => a ^ b,
        Binary::Right if (0..64).contains(&b) => a >> b,
        Binary::Left if (0..62).contains(&b) && a.unsigned_abs() < 1 << (62 - b) => a << b,
        _ => return None,
    })
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
        (Binary::Add, Kind::List, Kind::List) => {
            let mut items = ctx.elements(a)?;
            items.extend(ctx.elements(b)?);
            ctx.list(items)
        }
        (Binary::Add, Kind::Tuple, Kind::Tuple) => {
            let mut items = ctx.elements(a)?;
            items.extend(ctx.elements(b)?);
            ctx.value(items.len() * size_of::<Value>())?;
            Ok(Value::tuple(items))
        }
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

fn concat(ctx: &mut Ctx<'_>, a: &str, b: &str) -> Result<Value, Stop> {
    ctx.memory(24 + a.len() + b.len())?;
    ctx.steps((a.len() + b.len()) / 16)?;
    let mut joined = ctx.scratch();
    joined.push_str(a);
    joined.push_str(b);
    let value = Value::str(&joined);
    ctx.put_scratch(joined);
    Ok(value)
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
        Value::Str(text) => Ok(Value::from(arcstr::ArcStr::from(text.repeat(count)))),
        Value::Bytes(bytes) => Ok(Value::Bytes(std::sync::Arc::new(bytes.repeat(count)))),
        other => {
            let items = view::elements(other)?;
            let mut repeated = Vec::with_capacity(items.len() * count);
            for _ in 0..count {
                repeated.extend(items.iter().cloned());
            }
            Ok(if view::kind(other) == Kind::Tuple { Value::tuple(repeated) } else { Value::list(repeated) })
        }
    }
}

fn arithmetic(ctx: &mut Ctx<'_>, op: Binary, a: &Value, b: &Value, x: f64, y: f64) -> Result<Value, Stop> {
    let floats = matches!(a, Value::Float(_)) || matches!(b, Value::Float(_));
    match op {
        Binary::Divide => {
            if y == 0.0 {
                return Err(division_by_zero());
            }
            return finite(x / y, floats);
        }
        _ if !floats => return integers(ctx, op, a, b),
        _ => {}
    }
    // An integer too large for a float cannot be mixed with one.
    if (x.is_infinite() && !matches!(a, Value::Float(_))) || (y.is_infinite() && !matches!(b, Value::Float(_))) {
        return Err(Stop::fail(Error::Arithmetic, "the integer is too large for a float"));
    }
    Ok(Value::Float(match op {
        Binary::Add => x + y,
        Binary::Subtract => x - y,
        Binary::Multiply => x * y,
        Binary::FloorDivide if y == 0.0 => return Err(division_by_zero()),
        Binary::FloorDivide => (x / y).floor(),
        Binary::Modulo if y == 0.0 => return Err(division_by_zero()),
        Binary::Modulo => {
            let rest = x % y;
            if rest != 0.0 && (rest < 0.0) != (y < 0.0) { rest + y } else { rest }
        }
        _ => return Err(unsupported(op, a, b)),
    }))
}

fn finite(value: f64, floats: bool) -> Result<Value, Stop> {
    if value.is_nan() && !floats {
        return Err(Stop::fail(Error::Arithmetic, "the integers are too large to be divided as floats"));
    }
    Ok(Value::Float(value))
}

fn integers(ctx: &mut Ctx<'_>, op: Binary, a: &Value, b: &Value) -> Result<Value, Stop> {
    let (Some(x), Some(y)) = (number::big(a), number::big(b)) else { return Err(unsupported(op, a, b)) };
    let size = (x.bits() + y.bits()) / 8;
    let value = match op {
        Binary::Add => x + y,
        Binary::Subtract => x - y,
        Binary::Multiply => {
            ctx.memory(size as usize)?;
            // Long multiplication at worst.
            ctx.steps((x.bits() / 64 * (y.bits() / 64) / 8) as usize)?;
            x * y
        }
        Binary::FloorDivide | Binary::Modulo => {
            if y.is_zero() {
                return Err(division_by_zero());
            }
            ctx.steps((x.bits() / 64 * (y.bits() / 64) / 8) as usize)?;
            let quotient = &x / &y;
            let rest: BigInt = &x - &quotient * &y;
            let adjust = !rest.is_zero() && rest.is_negative() != y.is_negative();
            match op {
                Binary::FloorDivide => quotient - i32::from(adjust),
                _ if adjust => rest + y,
                _ => rest,
            }
        }
        Binary::And => x & y,
        Binary::Or => x | y,
        Binary::Xor => x ^ y,
        Binary::Left | Binary::Right => {
            if y.is_negative() {
                return Err(Stop::fail(Error::Arithmetic, "a shift must be by 0 or more bits"));
            }
            let by = y.to_i64().unwrap_or(i64::MAX);
            if op == Binary::Right {
                match usize::try_from(by) {
                    Ok(by) if by < 1 << 24 => x >> by,
                    _ => BigInt::from(if x.is_negative() { -1 } else { 0 }),
                }
            } else {
                if by as u64 > MOST_BITS {
                    return Err(Stop::fail(Error::Limit, format!("a shift by more than {MOST_BITS} bits")));
                }
                ctx.memory(by as usize / 8)?;
                x << by
            }
        }
        Binary::Divide => return Err(unsupported(op, a, b)),
    };
    // Writing an integer in decimal, or dividing by one, takes time that grows with the square of its length.
    if value.bits() > MOST_BITS {
        return Err(Stop::fail(Error::Limit, format!("an integer of more than {MOST_BITS} bits")));
    }
    ctx.memory((value.bits() / 8) as usize)?;
    Ok(number::normal(value))
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
pub(crate) fn ordered(ctx: &mut Ctx<'_>, op: Order, a: &Value, b: &Value) -> Result<bool, Stop> {
    let order = match (a, b) {
        (Value::Int(a), Value::Int(b)) => a.cmp(b),
        _ => counted(ctx, |work| compare::order_counted(a, b, work))?,
    };
    Ok(match op {
        Order::Less => order == Ordering::Less,
        Order::LessEqual => order != Ordering::Greater,
        Order::Greater => order == Ordering::Greater,
        Order::GreaterEqual => order != Ordering::Less,
    })
}

/// `a in b`
pub(crate) fn contains(ctx: &mut Ctx<'_>, a: &Value, b: &Value) -> Result<bool, Stop> {
    let b = b.decide()?;
    match view::kind(&b) {
        Kind::Dict | Kind::Set => {
            let key = a.decide()?;
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
            (Value::Int(wanted), Value::Range(range)) => Ok(in_range(range, wanted)),
            // Equal numbers are equal, whatever holds them.
            (Value::Float(wanted), Value::Range(range)) if wanted.fract() == 0.0 && wanted.abs() < 1e15 => {
                Ok(in_range(range, wanted as i64))
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
        _ => Err(Stop::fail(Error::Type, format!("nothing can be in {}", type_name(&b)))),
    }
}

fn in_range(range: &Range, wanted: i64) -> bool {
    if range.is_empty() {
        return false;
    }
    let offset = i128::from(wanted) - i128::from(range.start);
    let step = i128::from(range.step);
    offset % step == 0 && offset / step >= 0 && offset / step < range.len() as i128
}

/// `-a`
pub(crate) fn negate(value: &Value) -> Result<Value, Stop> {
    Ok(match &value.decide()? {
        Value::Int(value) => match value.checked_neg() {
            Some(value) => Value::Int(value),
            None => number::normal(-BigInt::from(*value)),
        },
        Value::Float(value) => Value::Float(-value),
        Value::BigInt(value) => number::normal(-(**value).clone()),
        other => return Err(Stop::fail(Error::Type, format!("-{} is not possible", type_name(other)))),
    })
}

/// `+a`
pub(crate) fn plus(value: &Value) -> Result<Value, Stop> {
    match value.decide()? {
        value @ (Value::Int(_) | Value::Float(_) | Value::BigInt(_)) => Ok(value),
        other => Err(Stop::fail(Error::Type, format!("+{} is not possible", type_name(&other)))),
    }
}

/// `~a`
pub(crate) fn invert(value: &Value) -> Result<Value, Stop> {
    match &value.decide()? {
        Value::Int(value) => Ok(Value::Int(!value)),
        Value::BigInt(value) => Ok(number::normal(!(**value).clone())),
        other => Err(Stop::fail(Error::Type, format!("~{} is not possible", type_name(other)))),
    }
}
