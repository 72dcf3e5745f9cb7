//! `%` and `str.format`.

use std::borrow::Cow;

use arcstr::ArcStr;
use num_bigint::BigInt;
use num_traits::{FromPrimitive, ToPrimitive};

use crate::error::{Kind, Stop};
use crate::host::Args;
use crate::methods::args::{is_tuple, this};
use crate::native::Ctx;
use crate::value::view::{self, type_name};
use crate::value::{Value, display, number};

/// Text under construction; each piece is charged before it is added.
struct Text(String);

impl Text {
    fn push(&mut self, ctx: &mut Ctx<'_>, piece: &str) -> Result<(), Stop> {
        ctx.memory(piece.len())?;
        ctx.steps(1 + piece.len() / 16)?;
        ctx.value(self.0.len() + piece.len())?;
        self.0.push_str(piece);
        Ok(())
    }

    /// The text as a value; nothing of it is charged again.
    fn finish(self, ctx: &mut Ctx<'_>) -> Result<Value, Stop> {
        ctx.value(self.0.len())?;
        let text = ArcStr::from(self.0.as_str());
        ctx.put_scratch(self.0);
        Ok(Value::Str(text))
    }
}

#[cold]
fn value_error(message: impl Into<String>) -> Stop {
    Stop::fail(Kind::Value, message)
}

/// `format % args`: `args` is a tuple of as many values as the format has conversions, or the only
/// value, or a dict for conversions with names.
pub(crate) fn percent(ctx: &mut Ctx<'_>, format: &str, args: &Value) -> Result<Value, Stop> {
    let decided;
    let args = if args.is_plain() {
        args
    } else {
        decided = args.decide()?;
        &decided
    };
    let copied;
    let positional = match args {
        Value::Tuple(tuple) => {
            ctx.steps(tuple.len())?;
            &tuple[..]
        }
        frozen if is_tuple(frozen) => {
            copied = ctx.elements(frozen)?;
            &copied
        }
        one => std::slice::from_ref(one),
    };
    let mut next = positional.iter();
    let mut named = false;
    let mut out = Text(ctx.scratch());
    let mut rest = format;
    while let Some(at) = memchr::memchr(b'%', rest.as_bytes()) {
        let (before, after) = (&rest[..at], &rest[at + 1..]);
        out.push(ctx, before)?;
        if let Some(after) = after.strip_prefix('%') {
            out.push(ctx, "%")?;
            rest = after;
            continue;
        }
        let (value, after) = match after.strip_prefix('(') {
            Some(name) => {
                let Some((name, after)) = name.split_once(')') else {
                    return Err(value_error("a name in the format is not closed: `%(`"));
                };
                if view::kind(args) != view::Kind::Dict {
                    return Err(Stop::fail(
                        Kind::Type,
                        format!("`%({name})` needs a dict on the right of %, got {}", type_name(args)),
                    ));
                }
                named = true;
                let key = ctx.str(name)?;
                match view::get(args, &key)? {
                    Some(value) => (Cow::Owned(value), after),
                    None => return Err(Stop::fail(Kind::Key, format!("the format's key {name} is not in the dict"))),
                }
            }
            None => match next.next() {
                Some(value) => (Cow::Borrowed(value), after),
                None => return Err(value_error("not enough values for the format")),
            },
        };
        let mut conversions = after.chars();
        let Some(conversion) = conversions.next() else {
            return Err(value_error("the format ends in the middle of a conversion"));
        };
        rest = conversions.as_str();
        match (conversion, &*value) {
            ('s', value) => ctx.show_into(value, &mut out.0)?,
            ('r', value) => ctx.repr_into(value, &mut out.0)?,
            ('d', Value::Int(int)) => out.push(ctx, itoa::Buffer::new().format(*int))?,
            _ => {
                let piece = convert(ctx, conversion, &value)?;
                out.push(ctx, &piece)?;
            }
        }
    }
    out.push(ctx, rest)?;
    // A dict is there for names; a format may use none of them.
    if !named && next.next().is_some() && view::kind(args) != view::Kind::Dict {
        return Err(value_error("too many values for the format"));
    }
    out.finish(ctx)
}

fn convert(ctx: &mut Ctx<'_>, conversion: char, value: &Value) -> Result<String, Stop> {
    let value = value.decide()?;
    let wrong =
        |wanted: &str| Stop::fail(Kind::Type, format!("%{conversion} needs {wanted}, got {}", type_name(&value)));
    match conversion {
        'd' | 'i' | 'o' | 'x' | 'X' => {
            let int = match &value {
                // Floats are cut to whole numbers.
                Value::Float(float) => BigInt::from_f64(float.trunc())
                    .ok_or_else(|| value_error(format!("%{conversion} of an infinite float or not-a-number")))?,
                other => number::big(other).ok_or_else(|| wrong("a number"))?,
            };
            ctx.steps(int.bits() as usize / 64)?;
            Ok(match conversion {
                'o' => int.to_str_radix(8),
                'x' => int.to_str_radix(16),
                'X' => int.to_str_radix(16).to_uppercase(),
                _ => int.to_string(),
            })
        }
        'e' | 'E' | 'f' | 'F' | 'g' | 'G' => {
            let float = match &value {
                Value::Float(float) => *float,
                other => number::big(other).ok_or_else(|| wrong("a number"))?.to_f64().unwrap_or(f64::NAN),
            };
            Ok(float_text(float, conversion))
        }
        'c' => match &value {
            Value::Str(text) if text.chars().count() == 1 => Ok(text.to_string()),
            Value::Int(code) => match u32::try_from(*code).ok().and_then(char::from_u32) {
                Some(c) => Ok(c.to_string()),
                None => Err(value_error(format!("%c: there is no character {code}"))),
            },
            _ => Err(wrong("one character or its number")),
        },
        other => Err(value_error(format!("unknown conversion %{other} in the format"))),
    }
}

/// A float as C prints it with six digits (`e`, `f`), or as `str` does (`g`).
fn float_text(float: f64, conversion: char) -> String {
    if !float.is_finite() || matches!(conversion, 'g' | 'G') {
        let mut text = String::new();
        display::write_float(&mut text, float);
        return if conversion == 'G' { text.to_uppercase() } else { text };
    }
    if matches!(conversion, 'f' | 'F') {
        return format!("{float:.6}");
    }
    // Rust writes `1.5e3`, C `1.500000e+03`.
    let text = format!("{float:.6e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, digits) = match exponent.strip_prefix('-') {
        Some(digits) => ('-', digits),
        None => ('+', exponent),
    };
    let mark = conversion;
    format!("{mantissa}{mark}{sign}{digits:0>2}")
}

/// A piece of a format string of `str.format`.
#[derive(Debug, PartialEq)]
enum Piece<'a> {
    Text(&'a str),
    /// What is in the braces before `!`, and whether `!r` follows.
    Field(&'a str, bool),
}

/// Takes the first piece off a format string that is not empty.
fn piece(format: &str) -> Result<(Piece<'_>, &str), Stop> {
    // The most common field.
    if let Some(rest) = format.strip_prefix("{}") {
        return Ok((Piece::Field("", false), rest));
    }
    let end = memchr::memchr2(b'{', b'}', format.as_bytes()).unwrap_or(format.len());
    if end > 0 {
        return Ok((Piece::Text(&format[..end]), &format[end..]));
    }
    for doubled in ["{{", "}}"] {
        if let Some(rest) = format.strip_prefix(doubled) {
            return Ok((Piece::Text(&format[..1]), rest));
        }
    }
    let Some(inside) = format.strip_prefix('{') else {
        return Err(value_error("a single `}` in the format: write `}}` for the character"));
    };
    let Some((field, rest)) = inside.split_once('}') else {
        return Err(value_error("a `{` in the format is not closed: write `{{` for the character"));
    };
    if field.contains('{') {
        return Err(value_error("fields of a format cannot be nested"));
    }
    let (name, repr) = match field.split_once('!') {
        None => (field, false),
        Some((name, "s")) => (name, false),
        Some((name, "r")) => (name, true),
        Some((_, other)) => {
            return Err(value_error(format!("unknown conversion `!{other}` in the format: there are !s and !r")));
        }
    };
    if let Some(odd) = name.chars().find(|c| matches!(c, '.' | '[' | ']' | ':' | ',')) {
        return Err(value_error(format!("`{odd}` is not supported in a field of a format: `{{{field}}}`")));
    }
    Ok((Piece::Field(name, repr), rest))
}

/// `format.format(...)`. Only arguments that the format names are decided on.
pub(crate) fn format(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    let format: Cow<'_, str> = match &args.pos[0] {
        Value::Str(text) => Cow::Borrowed(text.as_str()),
        _ => Cow::Borrowed(this(args)?),
    };
    let values = &args.pos[1..];
    let mut out = Text(ctx.scratch());
    let mut rest = &*format;
    // Fields are numbered by themselves or by the format, not both.
    let (mut automatic, mut numbered) = (0_usize, false);
    while !rest.is_empty() {
        let (piece, after) = piece(rest)?;
        rest = after;
        let (name, repr) = match piece {
            Piece::Text(text) => {
                out.push(ctx, text)?;
                continue;
            }
            Piece::Field(name, repr) => (name, repr),
        };
        let value = if name.is_empty() || name.bytes().all(|byte| byte.is_ascii_digit()) {
            let at = if name.is_empty() {
                automatic += 1;
                automatic - 1
            } else {
                numbered = true;
                name.parse().unwrap_or(usize::MAX)
            };
            if numbered && automatic > 0 {
                return Err(value_error("a format has either numbered fields or empty ones, not both"));
            }
            values.get(at).ok_or_else(|| {
                Stop::fail(Kind::Index, format!("the format needs value {at}, format() got {}", values.len()))
            })?
        } else {
            args.keyword(name).ok_or_else(|| {
                Stop::fail(Kind::Key, format!("the format needs `{name}`, which format() did not get"))
            })?
        };
        if repr {
            ctx.repr_into(value, &mut out.0)?;
        } else {
            ctx.show_into(value, &mut out.0)?;
        }
    }
    out.finish(ctx)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_written_as_in_c() {
        assert_eq!(float_text(1.0, 'e'), "1.000000e+00");
        assert_eq!(float_text(-1234.5678, 'E'), "-1.234568E+03");
        assert_eq!(float_text(1e-100, 'e'), "1.000000e-100");
        assert_eq!(float_text(2.5, 'f'), "2.500000");
        assert_eq!(float_text(f64::INFINITY, 'f'), "+inf");
        assert_eq!(float_text(f64::NAN, 'e'), "nan");
    }

    #[test]
    fn formats_are_taken_apart() {
        let pieces = |mut rest: &'static str| {
            let mut pieces = Vec::new();
            while !rest.is_empty() {
                match piece(rest) {
                    Ok((piece, after)) => {
                        pieces.push(piece);
                        rest = after;
                    }
                    Err(_) => return None,
                }
            }
            Some(pieces)
        };
        assert_eq!(
            pieces("a{}{{{x!r}b}}{0!s}"),
            Some(vec![
                Piece::Text("a"),
                Piece::Field("", false),
                Piece::Text("{"),
                Piece::Field("x", true),
                Piece::Text("b"),
                Piece::Text("}"),
                Piece::Field("0", false)
            ])
        );
        for wrong in ["{", "}", "a{", "{a", "{a{b}}", "{!x}", "{!}", "{a.b}", "{a[0]}", "{:>3}", "}{"] {
            assert_eq!(pieces(wrong), None, "{wrong}");
        }
    }
}
