//! The field of a message that cannot be read, for the error that a client gets. Messages that can be read never come here.

use std::collections::BTreeMap;
use std::fmt::Write;

use prost_reflect::{DeserializeOptions, DynamicMessage, FieldDescriptor, Kind, MessageDescriptor};
use serde_path_to_error::Segment;

use super::transcode::{Reader, Wire};

/// Deepest nesting that is looked at: that of the library.
const DEEPEST: u32 = 100;

/// The path of the value in JSON that does not fit, such as `items[3].price`. `None` if it is the whole message.
#[cold]
pub(super) fn in_json(of: &MessageDescriptor, json: &[u8], options: &DeserializeOptions) -> Option<String> {
    let mut from = serde_json::Deserializer::from_slice(json);
    let mut track = serde_path_to_error::Track::new();
    let tracked = serde_path_to_error::Deserializer::new(&mut from, &mut track);
    DynamicMessage::deserialize_with_options(of.clone(), tracked, options).err()?;
    let mut path = String::new();
    for segment in &track.path() {
        let dot = if path.is_empty() { "" } else { "." };
        // Written into a string, which cannot fail.
        let _ = match segment {
            Segment::Seq { index } => write!(path, "[{index}]"),
            Segment::Map { key } => write!(path, "{dot}{key}"),
            Segment::Enum { variant } => write!(path, "{dot}{variant}"),
            Segment::Unknown => break,
        };
    }
    (!path.is_empty()).then_some(path)
}

/// The path of the field in a message's bytes that does not fit. `None` if it is the whole message, or not known.
#[cold]
pub(super) fn in_bytes(of: &MessageDescriptor, bytes: &[u8]) -> Option<String> {
    let mut path = String::new();
    (!fits(of, bytes, DEEPEST, &mut path) && !path.is_empty()).then_some(path)
}

/// Whether a message can be read. If not, `path` names the field.
fn fits(of: &MessageDescriptor, bytes: &[u8], depth: u32, path: &mut String) -> bool {
    let mut reader = Reader::new(bytes);
    let mut counts = BTreeMap::new();
    while !reader.is_at_end() {
        let Some((number, wire)) = reader.key() else { return false };
        let Some(field) = of.get_field(number) else {
            if reader.skip(wire).is_none() {
                return false;
            }
            continue;
        };
        let before = path.len();
        let dot = if path.is_empty() { "" } else { "." };
        // Written into a string, which cannot fail.
        let _ = write!(path, "{dot}{}", field.name());
        if field.is_list() && (wire != Wire::Length || wire_of(&field.kind()) == Wire::Length) {
            let count = counts.entry(number).or_insert(0_usize);
            let _ = write!(path, "[{count}]");
            *count += 1;
        }
        if !value_fits(&field, wire, &mut reader, depth, path) {
            return false;
        }
        path.truncate(before);
    }
    true
}

fn value_fits(field: &FieldDescriptor, wire: Wire, reader: &mut Reader<'_>, depth: u32, path: &mut String) -> bool {
    let kind = field.kind();
    let expected = wire_of(&kind);
    if wire == Wire::Length && expected != Wire::Length && field.is_list() {
        let Some(packed) = reader.length() else { return false };
        let mut values = Reader::new(packed);
        while !values.is_at_end() {
            if values.skip(expected).is_none() {
                return false;
            }
        }
        return true;
    }
    if wire != expected || field.is_group() {
        return false;
    }
    match &kind {
        Kind::Message(of) => reader.length().is_some_and(|bytes| depth > 0 && fits(of, bytes, depth - 1, path)),
        Kind::String => reader.length().is_some_and(|bytes| std::str::from_utf8(bytes).is_ok()),
        _ => reader.skip(wire).is_some(),
    }
}

fn wire_of(kind: &Kind) -> Wire {
    match kind {
        Kind::Double | Kind::Fixed64 | Kind::Sfixed64 => Wire::Fixed64,
        Kind::Float | Kind::Fixed32 | Kind::Sfixed32 => Wire::Fixed32,
        Kind::String | Kind::Bytes | Kind::Message(_) => Wire::Length,
        Kind::Bool
        | Kind::Enum(_)
        | Kind::Int32
        | Kind::Int64
        | Kind::Uint32
        | Kind::Uint64
        | Kind::Sint32
        | Kind::Sint64 => Wire::Varint,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use prost::Message;

    use super::super::served::{Form, Served};
    use super::super::transcode::fuzz;
    use super::*;

    fn all() -> MessageDescriptor {
        fuzz::pool().get_message_by_name("t.All").unwrap()
    }

    #[test]
    fn the_value_in_json_is_named_with_its_path() {
        let options = DeserializeOptions::new().deny_unknown_fields(false);
        let path = |json: &str| in_json(&all(), json.as_bytes(), &options);
        for (json, wrong) in [
            (r#"{"aInt32": "x"}"#, Some("aInt32")),
            (
                r#"{"none": [], "someInner": [{"depth": 1}, {"inner": [{"depth": 1.5}]}]}"#,
                Some("someInner[1].inner[0].depth"),
            ),
            (r#"{"someInt32": [1, 2, true]}"#, Some("someInt32[2]")),
            (r#"{"aColour": [1]}"#, Some("aColour")),
            (r#"{"aBytes": "?"}"#, Some("aBytes")),
            ("[]", None),
            ("{", None),
            (r#"{"aInt32": 1}"#, None),
        ] {
            assert_eq!(path(json).as_deref(), wrong, "{json}");
        }
    }

    #[test]
    fn the_field_of_a_message_is_named_with_its_path() {
        for (bytes, wrong) in [
            // A number where a text belongs.
            (&b"\x70\x01"[..], Some("a_text")),
            // Messages in a list, of which the second has a text that is a number.
            (b"\xe2\x01\x03\x0a\x01a\xe2\x01\x02\x08\x01", Some("some_inner[1].name")),
            // A list of lists: the inner one has a text that is no UTF-8.
            (b"\xe2\x01\x05\x12\x03\x0a\x01\xff", Some("some_inner[0].inner[0].name")),
            // Texts in a list, the second is cut off.
            (b"\xd2\x01\x01a\xd2\x01\x05a", Some("some_text[1]")),
            // Packed numbers that are cut off.
            (b"\xba\x01\x03abc", Some("some_fixed32")),
            // Numbers that are not packed may be.
            (b"\xea\x01\x01\x05\xe8\x01\x05\xe9\x01", Some("loose[1]")),
            // No field.
            (b"\xff\xff", None),
            // An unknown field that is cut off.
            (b"\xf2\x3f\x05a", None),
            (b"\x08\x01", None),
        ] {
            assert_eq!(in_bytes(&all(), bytes).as_deref(), wrong, "{bytes:?}");
            assert_eq!(DynamicMessage::decode(all(), bytes).is_err(), bytes != b"\x08\x01", "{bytes:?}");
        }
    }

    #[test]
    fn a_message_that_can_be_read_has_no_wrong_field() {
        let json = r#"{"aInt32": 1, "aDouble": 0.5, "aText": "a", "aInner": {"name": "b", "inner": [{}]}, "someInt32": [1, 300],
            "someDouble": [1], "loose": [5, 6], "someBytes": ["AA=="], "maybeText": "", "that": {"depth": -4}}"#;
        let mut from = serde_json::Deserializer::from_str(json);
        let message = DynamicMessage::deserialize(all(), &mut from).unwrap();
        assert!(fits(&all(), &message.encode_to_vec(), DEEPEST, &mut String::new()));
    }

    #[test]
    fn a_served_method_says_which_field_is_wrong() {
        let proto = "syntax = \"proto3\"; package s; service S { rpc Do(Page) returns (Page); }
            message Item { double price = 1; } message Page { repeated Item items = 1; }";
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("s.proto");
        std::fs::write(&file, proto).unwrap();
        let set = protox::compile([&file], [folder.path()]).unwrap().encode_to_vec();
        let served = Served::decode(&set).unwrap();
        let method = served.find("s.S/Do").unwrap();
        let wrong =
            |message: &'static [u8], form| served.request(method, &[Bytes::from_static(message)], form).unwrap_err();
        let json = br#"{"items": [{"price": 1}, {"price": "much"}]}"#;
        let text = wrong(json, Form::Json);
        assert!(text.starts_with("the message is not a valid s.Page: items[1].price: "), "{text}");
        assert!(text.contains("line 1"), "{text}");
        let text = wrong(b"\x0a\x02\x08\x01", Form::Binary);
        assert!(text.starts_with("the message is not a valid s.Page: items[0].price: "), "{text}");
    }
}
