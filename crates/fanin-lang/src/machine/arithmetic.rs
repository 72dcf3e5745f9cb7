//! Arithmetic on numbers.

use num_bigint::BigInt;
use num_traits::{Signed, ToPrimitive, Zero};

use crate::code::Binary;
use crate::error::{Failure, Kind as Error, Stop};
use crate::native::Ctx;
use crate::value::view::type_name;
use crate::value::{Value, number};

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
pub(super) fn unsupported(op: Binary, a: &Value, b: &Value) -> Stop {
    let mut failure =
        Failure::new(Error::Type, format!("{} {} {} is not possible", type_name(a), symbol(op), type_name(b)));
    if matches!(a, Value::None) || matches!(b, Value::None) {
        failure = failure
            .with_hint("one side is None: a function without return, a missing key, or an optional call that failed");
    } else if op == Binary::Add && (matches!(a, Value::Str(_)) || matches!(b, Value::Str(_))) {
        failure = failure.with_hint("str(x) converts a value to a string");
    }
    failure.into()
}

#[cold]
fn division_by_zero() -> Stop {
    Stop::fail(Error::Arithmetic, "division by zero")
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

#[cold]
fn too_long() -> Stop {
    Stop::fail(Error::Limit, format!("an integer of more than {MOST_BITS} bits"))
}

/// `a op b` of two numbers, which as floats are `x` and `y`.
pub(super) fn arithmetic(ctx: &mut Ctx<'_>, op: Binary, a: &Value, b: &Value, x: f64, y: f64) -> Result<Value, Stop> {
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
            // A product has as many bits as its factors together, or one less: what is too long is not computed first.
            if !x.is_zero() && !y.is_zero() && x.bits() + y.bits() - 1 > MOST_BITS {
                return Err(too_long());
            }
            x * y
        }
        Binary::FloorDivide | Binary::Modulo => {
            if y.is_zero() {
                return Err(division_by_zero());
            }
            ctx.steps((x.bits() / 64 * (y.bits() / 64) / 8) as usize)?;
            let differ = x.is_negative() != y.is_negative();
            match op {
                Binary::FloorDivide if differ => {
                    let (x, y) = (x.abs(), y.abs());
                    let up: BigInt = (x + &y - 1_i32) / y;
                    -up
                }
                Binary::FloorDivide => x / y,
                _ => {
                    let rest = x % &y;
                    if !rest.is_zero() && differ { rest + y } else { rest }
                }
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
        return Err(too_long());
    }
    ctx.memory((value.bits() / 8) as usize)?;
    Ok(number::normal(value))
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
