use fanin_config::{FieldNames, Int64};
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, Kind, MapKey, MessageDescriptor, Value};

use super::super::message::parse_message;
use super::fuzz::{back, library, pool};
use super::{Layouts, Style};

fn layouts(pool: &DescriptorPool, style: Style) -> (Layouts, MessageDescriptor, MessageDescriptor) {
    let of = |name: &str| pool.get_message_by_name(name).unwrap();
    (Layouts::new([of("t.All"), of("t.Rare")].into_iter(), style), of("t.All"), of("t.Rare"))
}

const STYLE: Style = Style { int64: Int64::Number, field_names: FieldNames::Proto };

/// Xorshift.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, most: u64) -> u64 {
        self.next() % most
    }

    /// Often small, sometimes anything.
    fn number(&mut self) -> u64 {
        let shift = self.below(64);
        [0, 1, self.next() >> shift, u64::MAX, 1 << 31, 1 << 63][self.below(6) as usize]
    }

    fn text(&mut self) -> String {
        let texts =
            ["", "a", "a longer text without anything in it", "ü€\u{1F600}", "\"quoted\" \\ \n\t\u{1}", "\u{7f}/"];
        texts[self.below(6) as usize].to_owned()
    }

    fn value(&mut self, kind: &Kind, depth: u64) -> Value {
        let number = self.number();
        match kind {
            Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => Value::I32(number as i32),
            Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => Value::I64(number as i64),
            Kind::Uint32 | Kind::Fixed32 => Value::U32(number as u32),
            Kind::Uint64 | Kind::Fixed64 => Value::U64(number),
            // The library reads numbers of many digits less exactly than they are written.
            Kind::Float => Value::F32([0.0, -0.5, 1.0e10, 0.1, f32::INFINITY, 1e-20][self.below(6) as usize]),
            Kind::Double => {
                Value::F64([0.0, -0.5, 1.0e100, 0.1, f64::NEG_INFINITY, 123_456.75][self.below(6) as usize])
            }
            Kind::Bool => Value::Bool(number & 1 == 1),
            Kind::String => Value::String(self.text()),
            Kind::Bytes => Value::Bytes(self.text().into_bytes().into()),
            Kind::Enum(_) => Value::EnumNumber([0, 1, 7, 5][self.below(4) as usize]),
            Kind::Message(of) => Value::Message(self.message(of, depth.saturating_sub(1))),
        }
    }

    fn message(&mut self, of: &MessageDescriptor, depth: u64) -> DynamicMessage {
        let mut message = DynamicMessage::new(of.clone());
        for field in of.fields() {
            let kind = field.kind();
            if self.below(2) == 0 || depth == 0 && matches!(kind, Kind::Message(_)) {
                continue;
            }
            let value = match field.is_list() {
                true => Value::List((0..self.below(4)).map(|_| self.value(&kind, depth)).collect()),
                false => self.value(&kind, depth),
            };
            message.set_field(&field, value);
        }
        message
    }
}

#[test]
fn random_messages_are_converted_as_by_the_library() {
    let pool = pool();
    let other = Style { int64: Int64::String, field_names: FieldNames::Json };
    for style in [STYLE, other] {
        let (layouts, all, _) = layouts(&pool, style);
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let mut converted = 0;
        for round in 0..2_000 {
            let message = random.message(&all, 3);
            let wire = message.encode_to_vec();
            let json = layouts.to_json(&all, &wire).unwrap_or_else(|| panic!("round {round}: {message:?}"));
            let expected = library(&message, style);
            assert_eq!(String::from_utf8_lossy(&json), String::from_utf8_lossy(&expected), "round {round}");
            // Infinity and unknown numbers of an enum are the library's.
            if let Some(again) = back(&layouts, &all, &json) {
                assert_eq!(again, parse_message(&all, &json).unwrap().encode_to_vec(), "round {round}: {message:?}");
                converted += 1;
            }
        }
        assert!(converted > 200, "{converted}");
    }
}

#[test]
fn broken_bytes_are_the_librarys() {
    let pool = pool();
    let (layouts, all, _) = layouts(&pool, STYLE);
    let mut random = Random(7);
    let (mut valid, mut invalid) = (0, 0);
    for _ in 0..20_000 {
        let mut wire = random.message(&all, 2).encode_to_vec();
        for _ in 0..=random.below(3) {
            match (random.below(3), wire.len() as u64) {
                (_, 0) => {}
                (0, length) => wire.truncate(random.below(length) as usize),
                (1, length) => wire[random.below(length) as usize] ^= 1 << random.below(8),
                (_, length) => {
                    // A part comes once more.
                    let from = random.below(length) as usize;
                    let part = wire[from..].to_vec();
                    wire.extend(part);
                }
            }
        }
        let Some(json) = layouts.to_json(&all, &wire) else {
            invalid += 1;
            continue;
        };
        let decoded =
            DynamicMessage::decode(all.clone(), &wire[..]).unwrap_or_else(|error| panic!("{error}: {wire:?}"));
        assert_eq!(String::from_utf8_lossy(&json), String::from_utf8_lossy(&library(&decoded, STYLE)), "{wire:?}");
        valid += 1;
    }
    assert!(valid > 1_000 && invalid > 1_000, "{valid} {invalid}");
}

#[test]
fn json_that_is_not_the_message_is_the_librarys() {
    let pool = pool();
    let (layouts, all, _) = layouts(&pool, STYLE);
    for json in [
        "[]",
        "1",
        "null",
        r#"{"a_int32": 1.5}"#,
        r#"{"a_int32": 3000000000}"#,
        r#"{"a_int32": true}"#,
        r#"{"unknown": 1}"#,
        r#"{"a_text": 1}"#,
        r#"{"a_text": "\ud800"}"#,
        r#"{"a_bytes": "?"}"#,
        r#"{"a_colour": "GREEN"}"#,
        r#"{"a_colour": 1}"#,
        r#"{"a_inner": []}"#,
        r#"{"some_int32": 1}"#,
        r#"{"some_int32": [null]}"#,
        r#"{"a_float": 1e39}"#,
        r#"{"a_double": 1e999}"#,
        r#"{"a_bool": "true"}"#,
        r#"{"this": "x", "number": 1}"#,
        r#"{"a_int32": 1, "aInt32": 2}"#,
        r#"{"a_uint64": -1}"#,
    ] {
        assert_eq!(back(&layouts, &all, json.as_bytes()), None, "{json}");
    }
    for json in [
        "{}",
        r#"{"a_int32": null, "some_int32": null, "a_inner": null}"#,
        r#"{"aInt32": 5, "a_bool": true}"#,
        r#"{"a_int64": "-5", "a_uint64": 18446744073709551615}"#,
        r#"{"a_double": 5, "a_float": 16777217}"#,
        r#"{"another \"name": "x"}"#,
        r#"{"renamed": "x"}"#,
        r#"{"a_bytes": "YQ"}"#,
        r#"{"a_colour": "BLUE"}"#,
        r#"{"maybe_int32": 0, "maybe_text": "", "this": ""}"#,
        r#"{"a_inner": {}, "some_inner": [{}, {"name": "x"}]}"#,
        r#"{"a_text": "a\nb"}"#,
        r#"{"some_text": []}"#,
        r#"{"a_double": 0.1, "a_float": -0.0}"#,
    ] {
        let expected = parse_message(&all, json.as_bytes()).unwrap().encode_to_vec();
        if let Some(wire) = back(&layouts, &all, json.as_bytes()) {
            assert_eq!(wire, expected, "{json}");
        } else {
            assert!(json.contains("another"), "{json}");
        }
    }
}

#[test]
fn what_has_a_form_of_its_own_is_the_librarys() {
    let pool = pool();
    let (layouts, _, rare) = layouts(&pool, STYLE);
    let mut message = DynamicMessage::new(rare.clone());
    message.set_field_by_name("text", Value::String("x".into()));
    let json = layouts.to_json(&rare, &message.encode_to_vec()).unwrap();
    assert_eq!(json, r#"{"counts":{},"text":"x"}"#);
    assert_eq!(back(&layouts, &rare, &json).unwrap(), message.encode_to_vec());
    let counts = [(MapKey::String("a".into()), Value::I32(1))].into_iter().collect();
    message.set_field_by_name("counts", Value::Map(counts));
    assert_eq!(layouts.to_json(&rare, &message.encode_to_vec()), None);
    for json in [r#"{"counts": {"a": 1}}"#, r#"{"at": "2026-01-01T00:00:00Z"}"#, r#"{"any": null}"#, r#"{"any": 1}"#] {
        assert_eq!(back(&layouts, &rare, json.as_bytes()), None, "{json}");
    }
}

#[test]
fn depth_is_bounded() {
    let pool = pool();
    let (layouts, ..) = layouts(&pool, STYLE);
    let inner = pool.get_message_by_name("t.Inner").unwrap();
    let nested = |depth: usize| {
        (1..depth).fold(Vec::new(), |inside: Vec<u8>, _| {
            let mut wire = vec![0x12];
            prost::encoding::encode_varint(inside.len() as u64, &mut wire);
            wire.extend(inside);
            wire
        })
    };
    assert!(layouts.to_json(&inner, &nested(50)).is_some());
    assert_eq!(layouts.to_json(&inner, &nested(5_000)), None);
    let json = |depth: usize| format!("{}{{}}{}", "{\"inner\":[".repeat(depth), "]}".repeat(depth));
    assert!(back(&layouts, &inner, json(50).as_bytes()).is_some());
    assert!(back(&layouts, &inner, json(99).as_bytes()).is_some());
    assert_eq!(back(&layouts, &inner, json(100).as_bytes()), None);
}
