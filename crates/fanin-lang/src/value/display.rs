//! Values as text: `str()`, `repr()`, and a debugging form.

use std::fmt::{self, Write as _};

use super::view::{self, Kind};
use super::{Frozen, Value, compare};
use crate::error::{Kind as Error, Stop};
use crate::program::ProgramData;

/// Longest text that `str` or `repr` of one value may give, in bytes.
pub const MAX_TEXT: usize = 16 << 20;

/// Puts the text of `str(value)` behind `out`: at most `most` bytes.
pub(crate) fn str(value: &Value, program: &ProgramData, most: usize, out: &mut String) -> Result<(), Stop> {
    let value = value.decide()?;
    if let Value::Str(text) = &value {
        out.push_str(text);
        return Ok(());
    }
    repr(&value, program, most, out)
}

/// Puts the text of `repr(value)` behind `out`: at most `most` bytes.
pub(crate) fn repr(value: &Value, program: &ProgramData, most: usize, out: &mut String) -> Result<(), Stop> {
    let most = most.min(MAX_TEXT);
    Show { program, most, end: out.len().saturating_add(most) }.write(value, out, 0)
}

/// A float as Starlark prints it.
pub fn write_float(out: &mut String, value: f64) {
    if value.is_nan() {
        out.push_str("nan");
    } else if value.is_infinite() {
        out.push_str(if value > 0.0 { "+inf" } else { "-inf" });
    } else {
        let mut bytes = Vec::with_capacity(24);
        // Finite floats always have a notation.
        let _ = fanin_json::write_float(&mut bytes, value);
        let text = String::from_utf8_lossy(&bytes);
        match text.split_once("e-") {
            // Negative exponents have two digits at least.
            Some((digits, exponent)) if exponent.len() == 1 => {
                out.push_str(digits);
                out.push_str("e-0");
                out.push_str(exponent);
            }
            _ => out.push_str(&text),
        }
    }
}

/// A string in quotes, as it is written in a program.
pub fn write_quoted(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => {
                let _ = write!(out, "\\x{:02x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

struct Show<'a> {
    program: &'a ProgramData,
    most: usize,
    /// Length of the text that is too long.
    end: usize,
}

impl Show<'_> {
    fn write(&self, value: &Value, out: &mut String, depth: usize) -> Result<(), Stop> {
        if depth > compare::MAX_NESTING {
            return Err(compare::too_deep().into());
        }
        if out.len() > self.end {
            return Err(Stop::fail(
                Error::Limit,
                format!(
                    "the text of one value is longer than {} bytes, which is the most that the flow may use",
                    self.most
                ),
            ));
        }
        let value = value.decide()?;
        match &value {
            Value::None => out.push_str("None"),
            Value::Bool(true) => out.push_str("True"),
            Value::Bool(false) => out.push_str("False"),
            Value::Int(value) => out.push_str(itoa::Buffer::new().format(*value)),
            Value::BigInt(value) => {
                let _ = write!(out, "{value}");
            }
            Value::Float(value) => write_float(out, *value),
            Value::Str(text) => write_quoted(out, text),
            Value::Bytes(bytes) => {
                out.push_str("b\"");
                for byte in bytes.iter() {
                    match byte {
                        b'"' => out.push_str("\\\""),
                        b'\\' => out.push_str("\\\\"),
                        b'\n' => out.push_str("\\n"),
                        0x20..=0x7e => out.push(char::from(*byte)),
                        other => {
                            let _ = write!(out, "\\x{other:02x}");
                        }
                    }
                }
                out.push('"');
            }
            Value::Range(range) => {
                let _ = if range.step != 1 {
                    write!(out, "range({}, {}, {})", range.start, range.stop, range.step)
                } else if range.start != 0 {
                    write!(out, "range({}, {})", range.start, range.stop)
                } else {
                    write!(out, "range({})", range.stop)
                };
            }
            Value::Native(native) => {
                let _ = write!(out, "<built-in function {}>", native.name);
            }
            Value::Function(function) => {
                let _ = write!(out, "<function {}>", self.program.codes[function.code as usize].name);
            }
            Value::Bound(bound) => {
                let name = match &bound.method {
                    super::object::BoundMethod::Native(native) => native.name,
                    super::object::BoundMethod::Host(name) => name.as_str(),
                };
                let _ = write!(out, "<built-in method {name} of {} value>", view::type_name(&bound.this));
            }
            Value::Host(host) => {
                let _ = write!(out, "<{} {}>", host.type_name(), host.name());
            }
            Value::Object(object) => out.push_str(&object.show()),
            Value::Frozen(frozen) if matches!(&**frozen, Frozen::Function(_)) => {
                if let Frozen::Function(function) = &**frozen {
                    let _ = write!(out, "<function {}>", self.program.codes[function.code as usize].name);
                }
            }
            other => match view::kind(other) {
                Kind::List => self.sequence(other, out, depth, "[", "]")?,
                Kind::Tuple => {
                    let close = if view::len(other) == Some(1) { ",)" } else { ")" };
                    self.sequence(other, out, depth, "(", close)?;
                }
                Kind::Set => self.sequence(other, out, depth, "set([", "])")?,
                Kind::Dict => {
                    out.push('{');
                    for (at, (key, value)) in view::entries(other).unwrap_or_default().iter().enumerate() {
                        if at > 0 {
                            out.push_str(", ");
                        }
                        self.write(key, out, depth + 1)?;
                        out.push_str(": ");
                        self.write(value, out, depth + 1)?;
                    }
                    out.push('}');
                }
                Kind::Struct => {
                    out.push_str("struct(");
                    for (at, (name, value)) in compare::fields(other).iter().enumerate() {
                        if at > 0 {
                            out.push_str(", ");
                        }
                        out.push_str(name);
                        out.push_str(" = ");
                        self.write(value, out, depth + 1)?;
                    }
                    out.push(')');
                }
                _ => out.push_str("<internal>"),
            },
        }
        Ok(())
    }

    fn sequence(&self, value: &Value, out: &mut String, depth: usize, open: &str, close: &str) -> Result<(), Stop> {
        out.push_str(open);
        for (at, element) in view::elements(value)?.iter().enumerate() {
            if at > 0 {
                out.push_str(", ");
            }
            self.write(element, out, depth + 1)?;
        }
        out.push_str(close);
        Ok(())
    }
}

/// What `{:?}` shows: one level, nothing decided.
pub(crate) fn debug(value: &Value, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match value {
        Value::None => f.write_str("None"),
        Value::Bool(value) => write!(f, "{value}"),
        Value::Int(value) => write!(f, "{value}"),
        Value::BigInt(value) => write!(f, "{value}"),
        Value::Float(value) => write!(f, "{value:?}"),
        Value::Str(text) => write!(f, "{:?}", text.as_str()),
        Value::Json { at, doc } => f.write_str(&String::from_utf8_lossy(doc.node(*at).raw())),
        Value::Pending(pending) => write!(f, "{pending:?}"),
        Value::Absent(failure) => write!(f, "Absent({failure:?})"),
        Value::Host(host) => write!(f, "{host:?}"),
        Value::Object(object) => write!(f, "{:?}", &**object),
        Value::Unbound | Value::Iter(_) | Value::Cell(_) | Value::Accumulator(_) => f.write_str("Internal"),
        other => write!(f, "{} of {:?}", view::type_name(other), view::len(other)),
    }
}
