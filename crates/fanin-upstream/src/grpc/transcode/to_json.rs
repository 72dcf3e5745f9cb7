//! The wire format to JSON.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use fanin_config::Int64;
use fanin_json::{write_int, write_str};
use smallvec::SmallVec;

use super::layout::{Field, Layouts, Repeats, What};
use super::wire::{Reader, Wire};

/// Where a field's value is, or all records of a list. No field has its value at 0, behind its key.
#[derive(Clone, Copy, Default)]
struct Found {
    start: u32,
    end: u32,
}

/// Appends a message as an object.
pub(super) fn message(layouts: &Layouts, at: usize, bytes: &[u8], out: &mut Vec<u8>, depth: u32) -> Option<()> {
    let layout = &layouts.messages[at];
    if !layout.is_usual || depth == 0 || u32::try_from(bytes.len()).is_err() {
        return None;
    }
    let mut found: SmallVec<[Found; 16]> = SmallVec::from_elem(Found::default(), layout.fields.len());
    let mut reader = Reader::new(bytes);
    let (mut next, mut last, mut oneofs) = (0, None, 0_u64);
    while !reader.is_at_end() {
        let start = reader.at;
        let (number, wire) = reader.key()?;
        let value = reader.at;
        reader.skip(wire)?;
        // Fields that the description lacks are left out.
        let Some(at) = layout.by_number(number, next) else {
            last = None;
            continue;
        };
        let field = &layout.fields[at];
        let place = &mut found[at];
        let end = reader.at as u32;
        match field.repeats {
            Repeats::No => {
                // The library checks all values of a field, merges messages, and keeps the last of a `oneof`.
                let bit = field.oneof.map_or(0, |oneof| 1 << oneof);
                if wire != field.what.wire() || place.end > 0 || oneofs & bit != 0 {
                    return None;
                }
                oneofs |= bit;
                *place = Found { start: value as u32, end };
                next = at + 1;
            }
            Repeats::List { .. } => {
                if place.end == 0 {
                    *place = Found { start: start as u32, end };
                } else if last == Some(at) {
                    place.end = end;
                } else {
                    // Others are in between, so that finding them again would take time for each.
                    return None;
                }
                next = at;
            }
            Repeats::Map => return None,
        }
        last = Some(at);
    }
    out.push(b'{');
    let mut any = false;
    for (field, place) in layout.fields.iter().zip(&found) {
        let is_there = place.end > 0;
        if !is_there && field.may_lack && field.repeats == Repeats::No {
            continue;
        }
        if any {
            out.push(b',');
        }
        any = true;
        out.extend_from_slice(&field.key);
        let mut reader = Reader { bytes: &bytes[..place.end as usize], at: place.start as usize };
        match field.repeats {
            Repeats::No if is_there => value(layouts, field.what, &mut reader, out, depth)?,
            Repeats::No => default(layouts, field, out)?,
            Repeats::List { .. } => list(layouts, field.what, reader, out, depth)?,
            Repeats::Map => out.extend_from_slice(b"{}"),
        }
    }
    out.push(b'}');
    Some(())
}

/// The records of one field.
fn list(layouts: &Layouts, what: What, mut reader: Reader<'_>, out: &mut Vec<u8>, depth: u32) -> Option<()> {
    out.push(b'[');
    let mut any = false;
    let mut element = |reader: &mut Reader<'_>, out: &mut Vec<u8>| -> Option<()> {
        if any {
            out.push(b',');
        }
        any = true;
        value(layouts, what, reader, out, depth)
    };
    while !reader.is_at_end() {
        let (_, wire) = reader.key()?;
        if wire == what.wire() {
            element(&mut reader, out)?;
        } else if wire == Wire::Length {
            let mut packed = Reader::new(reader.length()?);
            while !packed.is_at_end() {
                element(&mut packed, out)?;
            }
        } else {
            return None;
        }
    }
    out.push(b']');
    Some(())
}

fn int64(layouts: &Layouts, out: &mut Vec<u8>, number: impl itoa::Integer) {
    let mut buffer = itoa::Buffer::new();
    let text = buffer.format(number).as_bytes();
    if layouts.style.int64 == Int64::String {
        out.push(b'"');
        out.extend_from_slice(text);
        out.push(b'"');
    } else {
        out.extend_from_slice(text);
    }
}

/// A finite number, in the shortest form that reads back as the same of its type; a name for others.
fn float(out: &mut Vec<u8>, wide: f64, write: impl FnOnce(&mut Vec<u8>) -> serde_json::Result<()>) -> Option<()> {
    if wide.is_finite() {
        return write(out).ok();
    }
    let name: &[u8] = match wide {
        _ if wide.is_nan() => b"\"NaN\"",
        _ if wide > 0.0 => b"\"Infinity\"",
        _ => b"\"-Infinity\"",
    };
    out.extend_from_slice(name);
    Some(())
}

fn value(layouts: &Layouts, what: What, reader: &mut Reader<'_>, out: &mut Vec<u8>, depth: u32) -> Option<()> {
    // The lowest bit is the sign.
    let zigzag = |number: u64| (number >> 1) as i64 ^ -((number & 1) as i64);
    match what {
        // As the library: what is beyond 32 bits is cut off.
        What::Int32 => write_int(out, i64::from(reader.varint()? as i32)),
        What::Uint32 => write_int(out, i64::from(reader.varint()? as u32)),
        What::Sint32 => write_int(out, i64::from(zigzag(u64::from(reader.varint()? as u32)) as i32)),
        What::Fixed32 => write_int(out, i64::from(u32::from_le_bytes(reader.fixed32()?))),
        What::Sfixed32 => write_int(out, i64::from(i32::from_le_bytes(reader.fixed32()?))),
        What::Int64 => int64(layouts, out, reader.varint()? as i64),
        What::Uint64 => int64(layouts, out, reader.varint()?),
        What::Sint64 => int64(layouts, out, zigzag(reader.varint()?)),
        What::Fixed64 => int64(layouts, out, u64::from_le_bytes(reader.fixed64()?)),
        What::Sfixed64 => int64(layouts, out, i64::from_le_bytes(reader.fixed64()?)),
        What::Float => {
            let number = f32::from_le_bytes(reader.fixed32()?);
            float(out, f64::from(number), |out| serde_json::to_writer(out, &number))?;
        }
        What::Double => {
            let number = f64::from_le_bytes(reader.fixed64()?);
            float(out, number, |out| serde_json::to_writer(out, &number))?;
        }
        What::Bool => out.extend_from_slice(if reader.varint()? != 0 { b"true" } else { b"false" }),
        What::Text => write_str(out, std::str::from_utf8(reader.length()?).ok()?),
        What::Bytes => {
            let bytes = reader.length()?;
            let start = out.len() + 1;
            let length = base64::encoded_len(bytes.len(), true)?;
            out.push(b'"');
            out.resize(start + length, 0);
            BASE64_STANDARD.encode_slice(bytes, &mut out[start..]).ok()?;
            out.push(b'"');
        }
        What::Enum(at) => {
            let number = reader.varint()? as i32;
            match layouts.enums[at].by_number.get(&number) {
                Some(name) => out.extend_from_slice(name),
                None => write_int(out, i64::from(number)),
            }
        }
        What::Message(at) => message(layouts, at, reader.length()?, out, depth - 1)?,
        What::Other => return None,
    }
    Some(())
}

/// The value of a field that is not there and has no presence.
fn default(layouts: &Layouts, field: &Field, out: &mut Vec<u8>) -> Option<()> {
    match field.what {
        What::Int64 | What::Uint64 | What::Sint64 | What::Fixed64 | What::Sfixed64 => int64(layouts, out, 0_u8),
        What::Float | What::Double => out.extend_from_slice(b"0.0"),
        What::Bool => out.extend_from_slice(b"false"),
        What::Text | What::Bytes => out.extend_from_slice(b"\"\""),
        What::Enum(at) => out.extend_from_slice(&layouts.enums[at].default),
        What::Message(_) | What::Other => return None,
        _ => out.push(b'0'),
    }
    Some(())
}
