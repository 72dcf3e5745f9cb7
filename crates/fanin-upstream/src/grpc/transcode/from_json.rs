//! JSON to the wire format.

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use fanin_json::{Kind, Node};
use smallvec::SmallVec;

use super::layout::{Field, Layouts, Repeats, What};
use super::wire::{Wire, write_length, write_varint};

/// Base64 with and without padding. The library also takes the alphabet for URLs.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Appends the message that is an object. Fields are in the order of their numbers.
pub(super) fn message(layouts: &Layouts, at: usize, json: Node<'_>, out: &mut Vec<u8>, depth: u32) -> Option<()> {
    let layout = &layouts.messages[at];
    if !layout.is_usual || depth == 0 || json.kind() != Kind::Object {
        return None;
    }
    let mut values: SmallVec<[Option<Node<'_>>; 16]> = SmallVec::from_elem(None, layout.fields.len());
    let (mut next, mut oneofs) = (0, 0_u64);
    for (key, value) in json.entries() {
        // Also `None` for a key with an escape, which is in no name.
        let at = layout.by_key(key.raw(), next)?;
        let field = &layout.fields[at];
        next = at + 1;
        if value.is_null() && field.what != What::Other {
            // Of the types of `google.protobuf`, one has a value for it.
            if matches!(field.what, What::Message(of) if !layouts.messages[of].is_usual) {
                return None;
            }
            continue;
        }
        let bit = field.oneof.map_or(0, |oneof| 1 << oneof);
        // A field has two names.
        if values[at].is_some() || oneofs & bit != 0 {
            return None;
        }
        oneofs |= bit;
        values[at] = Some(value);
    }
    for (field, json) in layout.fields.iter().zip(&values) {
        let Some(json) = *json else { continue };
        match field.repeats {
            Repeats::No => {
                let start = out.len();
                key(field, field.what.wire(), out);
                let is_default = value(layouts, field.what, json, out, depth)?;
                if is_default && !field.may_lack {
                    out.truncate(start);
                }
            }
            Repeats::List { packed } => list(layouts, field, packed, json, out, depth)?,
            Repeats::Map if json.kind() == Kind::Object && json.is_empty() => {}
            Repeats::Map => return None,
        }
    }
    Some(())
}

fn list(layouts: &Layouts, field: &Field, packed: bool, json: Node<'_>, out: &mut Vec<u8>, depth: u32) -> Option<()> {
    if json.kind() != Kind::Array {
        return None;
    }
    if json.is_empty() {
        return Some(());
    }
    if packed {
        key(field, Wire::Length, out);
        return write_length(out, |out| {
            json.elements().try_for_each(|json| value(layouts, field.what, json, out, depth).map(drop))
        });
    }
    json.elements().try_for_each(|json| {
        key(field, field.what.wire(), out);
        value(layouts, field.what, json, out, depth).map(drop)
    })
}

#[inline]
fn key(field: &Field, wire: Wire, out: &mut Vec<u8>) {
    let wire = match wire {
        Wire::Varint => 0,
        Wire::Fixed64 => 1,
        Wire::Length => 2,
        Wire::Fixed32 => 5,
    };
    write_varint(out, u64::from(field.number) << 3 | wire);
}

/// A number, or one in a string.
fn whole<I: std::str::FromStr>(json: Node<'_>) -> Option<I> {
    let text = match json.kind() {
        // A fraction of zeros is whole, too: the library's matter.
        Kind::Number => json.raw(),
        Kind::String => json.raw().strip_prefix(b"\"")?.strip_suffix(b"\"")?,
        _ => return None,
    };
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn double(json: Node<'_>) -> Option<f64> {
    json.as_f64().filter(|number| number.is_finite())
}

fn float(json: Node<'_>) -> Option<f32> {
    let text = json.as_number_text()?;
    // A whole number is rounded once.
    if let Ok(number) = text.parse::<i64>() {
        return Some(number as f32);
    }
    let number = double(json)?;
    (number.abs() <= f64::from(f32::MAX)).then_some(number as f32)
}

/// The text of a string without quotes. `\u` may be half of a character, which the library refuses.
fn text(json: Node<'_>) -> Option<std::borrow::Cow<'_, str>> {
    if memchr::memmem::find(json.raw(), b"\\u").is_some() { None } else { json.as_str() }
}

/// Appends a value; whether it is the default of its type.
fn value(layouts: &Layouts, what: What, json: Node<'_>, out: &mut Vec<u8>, depth: u32) -> Option<bool> {
    let varint = |out: &mut Vec<u8>, number: u64| {
        write_varint(out, number);
        number == 0
    };
    let fixed = |out: &mut Vec<u8>, bytes: &[u8]| {
        out.extend_from_slice(bytes);
        bytes.iter().all(|byte| *byte == 0)
    };
    let is_default = match what {
        // Negative numbers take ten bytes.
        What::Int32 => varint(out, i64::from(whole::<i32>(json)?) as u64),
        What::Int64 => varint(out, whole::<i64>(json)? as u64),
        What::Uint32 => varint(out, u64::from(whole::<u32>(json)?)),
        What::Uint64 => varint(out, whole::<u64>(json)?),
        What::Sint32 => {
            let number = whole::<i32>(json)?;
            varint(out, u64::from((number << 1 ^ number >> 31) as u32))
        }
        What::Sint64 => {
            let number = whole::<i64>(json)?;
            varint(out, (number << 1 ^ number >> 63) as u64)
        }
        What::Fixed32 => fixed(out, &whole::<u32>(json)?.to_le_bytes()),
        What::Fixed64 => fixed(out, &whole::<u64>(json)?.to_le_bytes()),
        What::Sfixed32 => fixed(out, &whole::<i32>(json)?.to_le_bytes()),
        What::Sfixed64 => fixed(out, &whole::<i64>(json)?.to_le_bytes()),
        What::Float => {
            let number = float(json)?;
            out.extend_from_slice(&number.to_le_bytes());
            number == 0.0
        }
        What::Double => {
            let number = double(json)?;
            out.extend_from_slice(&number.to_le_bytes());
            number == 0.0
        }
        What::Bool => varint(out, u64::from(json.as_bool()?)),
        What::Text => {
            let text = text(json)?;
            write_varint(out, text.len() as u64);
            out.extend_from_slice(text.as_bytes());
            text.is_empty()
        }
        What::Bytes => {
            let text = text(json)?;
            write_length(out, |out| BASE64.decode_vec(&*text, out).ok())?;
            text.is_empty()
        }
        What::Enum(at) => {
            // A number need not be one of the enum's: the library's matter.
            let number = *layouts.enums[at].by_name.get(&*text(json)?)?;
            varint(out, i64::from(number) as u64)
        }
        What::Message(at) => {
            write_length(out, |out| message(layouts, at, json, out, depth - 1))?;
            false
        }
        What::Other => return None,
    };
    Some(is_default)
}
