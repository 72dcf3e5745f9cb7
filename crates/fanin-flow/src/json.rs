//! Writes values as JSON. The bytes of answers are spliced.

use bytes::Bytes;
use fanin_json::write_str;
use fanin_lang::value::{Frozen, view};
use fanin_lang::{Failure, FrozenValue, Kind, Value};
use smallvec::SmallVec;

/// A part of at least this size is spliced by reference, smaller ones are copied.
const BY_REFERENCE: usize = 16 * 1024;

/// A body as consecutive pieces.
pub(crate) type Pieces = SmallVec<[Bytes; 1]>;

/// Why a value cannot be written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JsonError {
    /// Functions, modules and the like.
    #[error("a {0} cannot be written as JSON")]
    Type(String),
    /// Keys of JSON objects are strings.
    #[error("a dict's key must be a string to be written as JSON, not a {0}")]
    Key(String),
    /// JSON has neither NaN nor infinity.
    #[error("{0} cannot be written as JSON")]
    Number(f64),
    /// The body is larger than its limit.
    #[error("the JSON is larger than {0} bytes")]
    Large(usize),
    /// A part is pending. Callers must await all parts before.
    #[error("internal error: a value to write is pending")]
    Pending,
}

impl JsonError {
    /// The failure of a flow whose response cannot be written.
    #[cold]
    pub(crate) fn failure(&self) -> Failure {
        match self {
            JsonError::Large(limit) => too_large(*limit),
            error => Failure::new(Kind::Value, format!("the response cannot be sent: {error}")),
        }
    }
}

/// The failure of a flow whose response is too large.
#[cold]
pub(crate) fn too_large(limit: usize) -> Failure {
    fanin_lang::Limit::Response
        .failure(format!("the response is larger than {limit} bytes (max_response)"))
        .with_hint("return less, or raise max_response of [flow] or of the route")
}

/// A value as JSON, as a response has it. Nothing in it may be pending.
///
/// # Errors
/// Why it cannot be written.
pub fn to_json(value: &Value) -> Result<Bytes, String> {
    to_bytes(value, usize::MAX).map_err(|error| error.to_string())
}

/// Writes a value into one piece.
pub(crate) fn to_bytes(value: &Value, limit: usize) -> Result<Bytes, JsonError> {
    let mut pieces = to_pieces(value, limit)?;
    if pieces.len() == 1 {
        return Ok(pieces.remove(0));
    }
    Ok(pieces.concat().into())
}

/// Writes a value into pieces, without copying large parts.
pub(crate) fn to_pieces(value: &Value, limit: usize) -> Result<Pieces, JsonError> {
    write(value, limit, false)
}

/// The same with `null` in place of each part that is pending.
pub(crate) fn to_pieces_without_pending(value: &Value, limit: usize) -> Result<Pieces, JsonError> {
    write(value, limit, true)
}

fn write(value: &Value, limit: usize, pending_is_null: bool) -> Result<Pieces, JsonError> {
    let buffer = Vec::with_capacity(estimate(value));
    let mut out = Out { pieces: SmallVec::new(), buffer, size: 0, limit, pending_is_null };
    out.value(value)?;
    out.flush();
    Ok(out.pieces)
}

/// Estimates the size from one level of the value, so that the buffer rarely grows.
fn estimate(value: &Value) -> usize {
    let one = |value: &Value| match value {
        Value::Pending(slot) => match slot.outcome() {
            Some(Ok(Value::Json { at, doc })) => doc.node(at).raw().len().min(BY_REFERENCE) + 8,
            _ => 16,
        },
        Value::Json { at, doc } => doc.node(*at).raw().len().min(BY_REFERENCE) + 8,
        Value::Str(text) => text.len() + 8,
        _ => 24,
    };
    match value {
        Value::Dict(dict) => dict.map().iter().map(|(_, value)| one(value) + 16).sum::<usize>() + 8,
        Value::List(list) => list.items().iter().map(one).sum::<usize>() + 8,
        other => one(other),
    }
}

struct Out {
    pieces: Pieces,
    buffer: Vec<u8>,
    /// Bytes in `pieces`.
    size: usize,
    limit: usize,
    pending_is_null: bool,
}

impl Out {
    fn flush(&mut self) {
        if !self.buffer.is_empty() {
            self.size += self.buffer.len();
            self.pieces.push(std::mem::take(&mut self.buffer).into());
        }
    }

    fn raw(&mut self, node: fanin_json::Node<'_>) -> Result<(), JsonError> {
        let raw = node.raw();
        if raw.len() >= BY_REFERENCE {
            self.flush();
            self.size += raw.len();
            self.pieces.push(node.raw_bytes());
        } else {
            self.buffer.extend_from_slice(raw);
        }
        self.check()
    }

    fn check(&self) -> Result<(), JsonError> {
        if self.size + self.buffer.len() > self.limit { Err(JsonError::Large(self.limit)) } else { Ok(()) }
    }

    /// The language bounds the nesting of containers, and so this recursion.
    fn value(&mut self, value: &Value) -> Result<(), JsonError> {
        match value {
            Value::None | Value::Absent(_) => self.buffer.extend_from_slice(b"null"),
            Value::Bool(true) => self.buffer.extend_from_slice(b"true"),
            Value::Bool(false) => self.buffer.extend_from_slice(b"false"),
            Value::Int(value) => fanin_json::write_int(&mut self.buffer, *value),
            Value::Float(value) => self.float(*value)?,
            Value::BigInt(value) => self.buffer.extend_from_slice(value.to_string().as_bytes()),
            Value::Str(text) => {
                write_str(&mut self.buffer, text);
                self.check()?;
            }
            Value::Json { at, doc } => self.raw(doc.node(*at))?,
            Value::Pending(slot) => match slot.outcome() {
                Some(Ok(inner)) => self.value(&inner)?,
                None if self.pending_is_null => self.buffer.extend_from_slice(b"null"),
                _ => return Err(JsonError::Pending),
            },
            Value::List(list) => self.array(list.items().iter(), Self::value)?,
            Value::Tuple(tuple) => self.array(tuple.iter(), Self::value)?,
            Value::Dict(dict) => self.object(dict.map().iter(), Self::value)?,
            Value::Struct(fields) => {
                let fields = fields.fields().iter().map(|(name, value)| (name.as_str(), value));
                self.fields(fields, Self::value)?;
            }
            Value::Set(set) => self.array(set.items().iter().map(|(key, _)| key), Self::value)?,
            Value::Range(range) => {
                for at in 0..range.len() {
                    self.buffer.push(if at == 0 { b'[' } else { b',' });
                    fanin_json::write_int(&mut self.buffer, range.at(at));
                    self.check()?;
                }
                self.buffer.extend_from_slice(if range.is_empty() { b"[]" } else { b"]" });
            }
            Value::Frozen(frozen) => self.frozen(frozen)?,
            other => return Err(JsonError::Type(view::type_name(other))),
        }
        Ok(())
    }

    fn frozen_value(&mut self, value: &FrozenValue) -> Result<(), JsonError> {
        match value {
            FrozenValue::Frozen(frozen) => self.frozen(frozen),
            other => self.value(&other.to_value()),
        }
    }

    fn frozen(&mut self, frozen: &Frozen) -> Result<(), JsonError> {
        match frozen {
            Frozen::List(items) | Frozen::Tuple(items) => self.array(items.iter(), Self::frozen_value),
            Frozen::Dict(map) => {
                self.buffer.push(b'{');
                for (at, (key, value)) in map.entries().iter().enumerate() {
                    if at > 0 {
                        self.buffer.push(b',');
                    }
                    self.key(&key.to_value())?;
                    self.frozen_value(value)?;
                }
                self.buffer.push(b'}');
                self.check()
            }
            Frozen::Set(map) => self.array(map.entries().iter().map(|(key, _)| key), Self::frozen_value),
            Frozen::Struct(fields) => {
                self.buffer.push(b'{');
                for (at, (name, value)) in fields.iter().enumerate() {
                    if at > 0 {
                        self.buffer.push(b',');
                    }
                    write_str(&mut self.buffer, name);
                    self.buffer.push(b':');
                    self.frozen_value(value)?;
                }
                self.buffer.push(b'}');
                self.check()
            }
            _ => Err(JsonError::Type("function".to_owned())),
        }
    }

    fn float(&mut self, value: f64) -> Result<(), JsonError> {
        fanin_json::write_float(&mut self.buffer, value).map_err(|_| JsonError::Number(value))
    }

    fn array<'a, T: 'a>(
        &mut self,
        items: impl Iterator<Item = &'a T>,
        write: impl Fn(&mut Self, &T) -> Result<(), JsonError>,
    ) -> Result<(), JsonError> {
        self.buffer.push(b'[');
        for (at, item) in items.enumerate() {
            if at > 0 {
                self.buffer.push(b',');
            }
            write(self, item)?;
        }
        self.buffer.push(b']');
        self.check()
    }

    fn object<'a>(
        &mut self,
        entries: impl Iterator<Item = (&'a Value, &'a Value)>,
        write: impl Fn(&mut Self, &Value) -> Result<(), JsonError>,
    ) -> Result<(), JsonError> {
        self.buffer.push(b'{');
        for (at, (key, value)) in entries.enumerate() {
            if at > 0 {
                self.buffer.push(b',');
            }
            self.key(key)?;
            write(self, value)?;
        }
        self.buffer.push(b'}');
        self.check()
    }

    fn fields<'a>(
        &mut self,
        fields: impl Iterator<Item = (&'a str, &'a Value)>,
        write: impl Fn(&mut Self, &Value) -> Result<(), JsonError>,
    ) -> Result<(), JsonError> {
        self.buffer.push(b'{');
        for (at, (name, value)) in fields.enumerate() {
            if at > 0 {
                self.buffer.push(b',');
            }
            write_str(&mut self.buffer, name);
            self.buffer.push(b':');
            write(self, value)?;
        }
        self.buffer.push(b'}');
        self.check()
    }

    fn key(&mut self, key: &Value) -> Result<(), JsonError> {
        match key {
            Value::Str(text) => write_str(&mut self.buffer, text),
            other => match other.decide() {
                Ok(Value::Str(text)) => write_str(&mut self.buffer, &text),
                _ => return Err(JsonError::Key(view::type_name(other))),
            },
        }
        self.buffer.push(b':');
        Ok(())
    }
}

/// Appends a member to a JSON object: `{…}` becomes `{…,"name":value}`. `false` if it is not an object. The object may have whitespace
/// around it and inside it, because a passed-on answer is written as it came.
pub(crate) fn add_member(pieces: &mut Pieces, name: &str, value: &[u8]) -> bool {
    let mut first = pieces.iter().flat_map(|piece| piece.iter()).filter(|byte| !is_whitespace(**byte));
    if first.next() != Some(&b'{') {
        return false;
    }
    let empty = first.next() == Some(&b'}');
    // The object ends with the last `}`.
    loop {
        let Some(last) = pieces.last_mut() else { return false };
        let Some(end) = last.iter().rposition(|byte| !is_whitespace(*byte)) else {
            pieces.pop();
            continue;
        };
        if last[end] != b'}' {
            return false;
        }
        last.truncate(end);
        break;
    }
    let mut text = Vec::with_capacity(value.len() + name.len() + 8);
    if !empty {
        text.push(b',');
    }
    write_str(&mut text, name);
    text.push(b':');
    text.extend_from_slice(value);
    text.push(b'}');
    pieces.push(text.into());
    true
}

/// The whitespace of JSON.
fn is_whitespace(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}
