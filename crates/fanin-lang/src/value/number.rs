//! Numbers, and JSON scalars as values.

use std::cmp::Ordering;
use std::sync::Arc;

use fanin_json::{Node, Number};
use num_bigint::BigInt;
use num_traits::{FromPrimitive, ToPrimitive};

use super::Value;
use crate::error::{Kind as Error, Stop};

/// The value that a JSON scalar denotes; `None` for arrays and objects.
pub(crate) fn scalar(node: Node<'_>) -> Option<Value> {
    Some(match node.kind() {
        fanin_json::Kind::Null => Value::None,
        fanin_json::Kind::Bool => Value::Bool(node.as_bool()?),
        fanin_json::Kind::String => Value::str(&node.as_str()?),
        fanin_json::Kind::Number => of(node.as_number()?),
        fanin_json::Kind::Array | fanin_json::Kind::Object => return None,
    })
}

fn of(number: Number<'_>) -> Value {
    match number {
        Number::Int(value) => Value::Int(value),
        Number::Float(value) => Value::Float(value),
        Number::Large(digits) => match digits.parse::<BigInt>() {
            Ok(value) => normal(value),
            Err(_) => Value::Float(digits.parse().unwrap_or(f64::NAN)),
        },
    }
}

/// The value of a number in JSON's grammar.
///
/// # Errors
/// If it is too long.
pub(crate) fn read(text: &str) -> Result<Value, Stop> {
    if text.len() > MOST_DIGITS {
        return Err(too_long());
    }
    Ok(of(Number::read(text)))
}

/// Longest number of an answer that is computed with: reading it takes time that grows with the square of
/// its length. As long as it is only passed on it may be longer.
const MOST_DIGITS: usize = 20_000;

/// Refuses to compute with a number that is too long.
#[inline]
pub(crate) fn bounded(node: Node<'_>) -> Result<(), Stop> {
    if node.kind() == fanin_json::Kind::Number && node.raw().len() > MOST_DIGITS {
        return Err(too_long());
    }
    Ok(())
}

#[cold]
fn too_long() -> Stop {
    Stop::fail(Error::Limit, format!("a number of more than {MOST_DIGITS} digits"))
}

/// An integer in its only representation.
#[must_use]
pub fn normal(value: BigInt) -> Value {
    match value.to_i64() {
        Some(small) => Value::Int(small),
        None => Value::BigInt(Arc::new(value)),
    }
}

/// An integer of any size.
#[must_use]
pub fn big(value: &Value) -> Option<BigInt> {
    match value {
        Value::Int(value) => Some(BigInt::from(*value)),
        Value::BigInt(value) => Some((**value).clone()),
        _ => None,
    }
}

/// A number as a float; large integers may become infinite.
#[must_use]
pub fn float(value: &Value) -> Option<f64> {
    match value {
        Value::Int(value) => Some(*value as f64),
        Value::Float(value) => Some(*value),
        Value::BigInt(value) => Some(value.to_f64().unwrap_or(f64::INFINITY)),
        _ => None,
    }
}

/// Exact comparison of numbers. NaN equals itself and is greater than everything else.
#[must_use]
pub fn compare(a: &Value, b: &Value) -> Option<Ordering> {
    Some(match (a, b) {
        (Value::Int(a), Value::Int(b)) => a.cmp(b),
        (Value::Float(a), Value::Float(b)) => compare_floats(*a, *b),
        (Value::Float(a), _) => compare_with_float(&big(b)?, *a).reverse(),
        (_, Value::Float(b)) => compare_with_float(&big(a)?, *b),
        _ => big(a)?.cmp(&big(b)?),
    })
}

fn compare_floats(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

fn compare_with_float(a: &BigInt, b: f64) -> Ordering {
    if b.is_nan() || b == f64::INFINITY {
        return Ordering::Less;
    }
    if b == f64::NEG_INFINITY {
        return Ordering::Greater;
    }
    // A finite float has an integer part.
    let whole = BigInt::from_f64(b.trunc()).unwrap_or_default();
    a.cmp(&whole).then_with(|| {
        let fraction = b.fract();
        if fraction > 0.0 {
            Ordering::Less
        } else if fraction < 0.0 {
            Ordering::Greater
        } else {
            Ordering::Equal
        }
    })
}
