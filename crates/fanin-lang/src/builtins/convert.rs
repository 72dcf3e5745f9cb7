//! Functions that make a scalar of something else.

use std::sync::Arc;

use num_bigint::{BigInt, Sign};
use num_traits::{FromPrimitive, Signed, ToPrimitive};

use crate::error::{Failure, Kind, Stop};
use crate::host::Args;
use crate::machine::truth;
use crate::methods::args::{iterate, require_elements, wrong_type};
use crate::methods::list::shorten;
use crate::native::{Awaits, Ctx, NativeFn};
use crate::value::number::normal;
use crate::value::view::type_name;
use crate::value::{Value, display};

pub(super) static FUNCTIONS: [NativeFn; 11] = [
    NativeFn::new("abs", abs),
    NativeFn::new("bool", bool),
    NativeFn::new("bytes", bytes),
    NativeFn::new("chr", chr),
    NativeFn::new("float", float),
    NativeFn::new("hash", hash),
    NativeFn::new("int", int),
    NativeFn::new("ord", ord),
    NativeFn::new("repr", repr).awaits(Awaits::Deep),
    NativeFn::new("str", str).awaits(Awaits::Deep),
    NativeFn::new("type", kind),
];

fn bool(_: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    args.only("bool", false, 0, 1)?;
    args.pos.first().map_or(Ok(false), truth).map(Value::Bool)
}

fn str(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    args.only("str", false, 0, 1)?;
    match args.pos.first() {
        None => ctx.str(""),
        Some(Value::Str(text)) => Ok(Value::Str(text.clone())),
        Some(Value::Bytes(bytes)) => ctx.str(&String::from_utf8_lossy(bytes)),
        Some(Value::Int(value)) => ctx.str(itoa::Buffer::new().format(*value)),
        Some(value) => {
            let text = ctx.show(value)?;
            ctx.str(&text)
        }
    }
}

fn repr(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    args.only("repr", false, 1, 1)?;
    let text = ctx.repr(&args.pos[0])?;
    ctx.str(&text)
}

fn kind(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    args.only("type", false, 1, 1)?;
    ctx.str(&type_name(&args.pos[0]))
}

fn abs(_: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    args.only("abs", false, 1, 1)?;
    match &args.pos[0] {
        Value::Int(value) => Ok(value.checked_abs().map_or_else(|| normal(BigInt::from(*value).abs()), Value::Int)),
        Value::BigInt(value) => Ok(normal(value.abs())),
        Value::Float(value) => Ok(Value::Float(value.abs())),
        other => Err(wrong_type("abs", "argument", "a number", other)),
    }
}

fn chr(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    args.only("chr", false, 1, 1)?;
    let code = crate::methods::args::int("chr", "argument", &args.pos[0])?;
    match u32::try_from(code).ok().and_then(char::from_u32) {
        Some(c) => ctx.str(c.encode_utf8(&mut [0; 4])),
        None => Err(Stop::fail(Kind::Value, format!("chr({code}): there is no such character"))),
    }
}

fn ord(_: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    args.only("ord", false, 1, 1)?;
    let (code, length) = match &args.pos[0] {
        Value::Str(text) => {
            let mut rest = text.chars();
            match (rest.next(), rest.next()) {
                (Some(c), None) => (Some(u32::from(c)), 1),
                _ => (None, text.chars().count()),
            }
        }
        Value::Bytes(bytes) => match bytes.as_slice() {
            [byte] => (Some(u32::from(*byte)), 1),
            other => (None, other.len()),
        },
        other => return Err(wrong_type("ord", "argument", "a string or bytes", other)),
    };
    match code {
        Some(code) => Ok(Value::Int(i64::from(code))),
        None => Err(Stop::fail(Kind::Value, format!("ord() needs one character, got {length}"))),
    }
}

/// The hash that Java gives for a string, so that it is the same in every process and version; for
/// bytes FNV-1a of 32 bits, as the specification of Starlark has it.
fn hash(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    args.only("hash", false, 1, 1)?;
    match &args.pos[0] {
        Value::Str(text) => {
            ctx.steps(text.len() / 16)?;
            let hash =
                text.encode_utf16().fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)));
            Ok(Value::Int(i64::from(hash)))
        }
        Value::Bytes(bytes) => {
            ctx.steps(bytes.len() / 16)?;
            let hash =
                bytes.iter().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
            Ok(Value::Int(i64::from(hash)))
        }
        other => Err(wrong_type("hash", "argument", "a string or bytes", other)),
    }
}

fn bytes(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    args.only("bytes", false, 0, 1)?;
    let bytes = match args.pos.first() {
        None => Vec::new(),
        Some(Value::Bytes(bytes)) => return Ok(Value::Bytes(bytes.clone())),
        Some(Value::Str(text)) => {
            ctx.memory(text.len())?;
            text.as_bytes().to_vec()
        }
        Some(from) => {
            require_elements(from)?;
            let mut bytes = Vec::new();
            for (at, item) in iterate(from)?.enumerate() {
                ctx.steps(1)?;
                let item = item.decide()?;
                match item.as_int().and_then(|int| u8::try_from(int).ok()) {
                    Some(byte) => bytes.push(byte),
                    None => {
                        let shown = shorten(ctx.repr(&item)?);
                        return Err(Stop::fail(
                            Kind::Value,
                            format!("bytes() needs ints from 0 to 255, element {at} is {shown}"),
                        ));
                    }
                }
            }
            bytes
        }
    };
    ctx.memory(bytes.len() + 40)?;
    Ok(Value::Bytes(Arc::new(bytes)))
}

/// Longest text that is read as a number: the work grows with the square of the length.
const MOST_DIGITS: usize = 10_000;

fn int(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    let [value, base] = args.bind("int", false, ["x", "base"], 0)?;
    let Some(value) = value else { return Ok(Value::Int(0)) };
    if let Value::Str(text) = value {
        let base = base.map_or(Ok(10), |base| crate::methods::args::int("int", "base", base))?;
        if text.len() > MOST_DIGITS {
            return Err(Stop::fail(Kind::Limit, format!("int() of a string of {} bytes", text.len())));
        }
        ctx.steps(text.len() * text.len() / 256)?;
        let Some(radix) = u32::try_from(base).ok().filter(|base| *base == 0 || (2..=36).contains(base)) else {
            return Err(Stop::fail(Kind::Value, format!("int() needs a base from 2 to 36, or 0, got {base}")));
        };
        return match parse_int(text, radix) {
            Some(int) => Ok(normal(int)),
            None => {
                let mut shown = String::new();
                display::write_quoted(&mut shown, &shorten(text.to_string()));
                let failure = Failure::new(Kind::Value, format!("int() cannot read {shown} in base {base}"));
                Err(failure.with_hint("test input first: if not text.isdigit(): abort(400, ...)").into())
            }
        };
    }
    if let Some(base) = base {
        return Err(wrong_type("int", "x", "a string beside base", if base.is_plain() { value } else { base }));
    }
    match value {
        Value::Int(_) | Value::BigInt(_) => Ok(value.clone()),
        Value::Bool(value) => Ok(Value::Int(i64::from(*value))),
        Value::Float(value) => match BigInt::from_f64(value.trunc()) {
            Some(int) => Ok(normal(int)),
            None => Err(Stop::fail(Kind::Value, "int() of an infinite float or not-a-number")),
        },
        other => Err(wrong_type("int", "x", "a string, a number or a bool", other)),
    }
}

/// Digits with an optional sign and, if it is the base's own, a prefix. Base 0 reads the prefix and
/// refuses other leading zeros.
pub(crate) fn parse_int(text: &str, base: u32) -> Option<BigInt> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let prefixed = digits.get(..2).and_then(|prefix| match prefix {
        "0x" | "0X" => Some(16),
        "0o" | "0O" => Some(8),
        "0b" | "0B" => Some(2),
        _ => None,
    });
    let (radix, digits) = match (base, prefixed) {
        (0, Some(radix)) => (radix, &digits[2..]),
        (0, None) if digits.len() > 1 && digits.starts_with('0') && digits.bytes().any(|b| b != b'0') => return None,
        (0, None) => (10, digits),
        (base, Some(radix)) if base == radix => (radix, &digits[2..]),
        (base, _) => (base, digits),
    };
    // The parser of big integers allows a sign and underscores.
    if digits.is_empty() || !digits.bytes().all(|byte| char::from(byte).is_digit(radix)) {
        return None;
    }
    let int = BigInt::parse_bytes(digits.as_bytes(), radix)?;
    Some(if negative { -int } else { int })
}

fn float(_: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    args.only("float", false, 0, 1)?;
    let value = match args.pos.first() {
        None => 0.0,
        Some(Value::Bool(value)) => f64::from(u8::from(*value)),
        Some(Value::Float(value)) => *value,
        Some(Value::Int(value)) => *value as f64,
        Some(Value::BigInt(value)) => match value.to_f64() {
            Some(float) if float.is_finite() => float,
            _ => {
                let sign = if value.sign() == Sign::Minus { "negative " } else { "" };
                return Err(Stop::fail(Kind::Arithmetic, format!("this {sign}int is too large for a float")));
            }
        },
        Some(Value::Str(text)) => match parse_float(text) {
            Some(float) => float,
            None => {
                let mut shown = String::new();
                display::write_quoted(&mut shown, &shorten(text.to_string()));
                return Err(Stop::fail(Kind::Value, format!("float() cannot read {shown}")));
            }
        },
        Some(other) => return Err(wrong_type("float", "argument", "a string, a number or a bool", other)),
    };
    Ok(Value::Float(value))
}

/// A float, or `inf`, `infinity`, `nan` in any case with an optional sign. A decimal too large for
/// a float is none.
pub(crate) fn parse_float(text: &str) -> Option<f64> {
    let value: f64 = text.parse().ok()?;
    let named = text.bytes().any(|byte| matches!(byte, b'n' | b'N'));
    (value.is_finite() || named).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn int(text: &str, base: u32) -> Option<i64> {
        parse_int(text, base).and_then(|int| int.to_i64())
    }

    #[test]
    fn ints_are_read_as_the_specification_says() {
        assert_eq!(int("21", 10), Some(21));
        assert_eq!(int("-0012", 10), Some(-12));
        assert_eq!(int("+7", 10), Some(7));
        assert_eq!(int("1111", 2), Some(15));
        assert_eq!(int("0xFF", 16), Some(255));
        assert_eq!(int("ff", 16), Some(255));
        assert_eq!(int("0x10", 0), Some(16));
        assert_eq!(int("-0o17", 0), Some(-15));
        assert_eq!(int("0b11", 0), Some(3));
        assert_eq!(int("00", 0), Some(0));
        assert_eq!(int("0b11", 16), Some(0xb11));
        assert_eq!(int("zz", 36), Some(1295));
        for wrong in ["", "-", "+-1", "1_0", " 1", "1 ", "1.0", "0x", "é"] {
            assert_eq!(int(wrong, 10), None, "{wrong}");
        }
        assert_eq!(int("012", 0), None);
        assert_eq!(int("0x", 16), None);
        assert_eq!(int("0x+1", 16), None);
        assert_eq!(int("2", 2), None);
        assert_eq!(
            parse_int("123456789012345678901234567890", 10).map(|i| i.to_string()).as_deref(),
            Some("123456789012345678901234567890")
        );
    }

    #[test]
    fn floats_are_read_as_the_specification_says() {
        assert_eq!(parse_float("1.5e3"), Some(1500.0));
        assert_eq!(parse_float("-Inf"), Some(f64::NEG_INFINITY));
        assert_eq!(parse_float("+infinity"), Some(f64::INFINITY));
        assert!(parse_float("NaN").is_some_and(f64::is_nan));
        for wrong in ["", "1e999", "1.5x", " 1", "1_0", "0x1p3"] {
            assert_eq!(parse_float(wrong), None, "{wrong}");
        }
    }
}
