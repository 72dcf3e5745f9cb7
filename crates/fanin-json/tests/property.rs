//! Held against `serde_json` on random documents, mutated documents and random bytes.

use bytes::Bytes;
use fanin_json::{Doc, Kind, Node, Number, Writer};
use proptest::prelude::*;
use serde_json::Value;

fn value() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_filter("JSON has finite floats only", |f| f.is_finite()).prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    scalar.prop_recursive(6, 80, 24, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..24).prop_map(Value::from),
            proptest::collection::vec((text(), inner), 0..24)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-c]{0,2}", "[ -~]{0,40}", "\\PC{0,20}", "[\\x00-\\x1f\"\\\\é𝄞]{0,20}"]
}

/// The same document read through nodes.
fn read(node: Node<'_>) -> Value {
    match node.kind() {
        Kind::Null => Value::Null,
        Kind::Bool => Value::from(node.as_bool().unwrap()),
        Kind::Number => match node.as_number().unwrap() {
            Number::Int(int) => Value::from(int),
            Number::Large(text) => serde_json::from_str(text).unwrap(),
            Number::Float(float) => Value::from(float),
        },
        Kind::String => Value::from(node.as_str().unwrap()),
        Kind::Array => {
            let elements: Vec<Value> = node.elements().map(read).collect();
            assert_eq!(node.len(), Some(elements.len()));
            for (index, element) in elements.iter().enumerate() {
                assert_eq!(&read(node.index(index).unwrap()), element);
            }
            Value::from(elements)
        }
        Kind::Object => {
            let members: serde_json::Map<String, Value> =
                node.entries().map(|(key, value)| (key.as_str().unwrap().into_owned(), read(value))).collect();
            assert_eq!(node.len(), Some(members.len()));
            for (key, value) in &members {
                assert_eq!(&read(node.get(key).unwrap()), value);
            }
            Value::Object(members)
        }
    }
}

/// Equal, floats to within a few steps: `serde_json` reads floats fast, not exactly.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        (Value::Number(x), Value::Number(y)) if x.is_f64() || y.is_f64() => {
            let (x, y) = (x.as_f64().unwrap(), y.as_f64().unwrap());
            x == y || x.to_bits().abs_diff(y.to_bits()) <= 4
        }
        _ => a == b,
    }
}

fn write(value: &Value, writer: &mut Writer<'_>) {
    match value {
        Value::Null => writer.null(),
        Value::Bool(value) => writer.bool(*value),
        Value::Number(number) => match number.as_i64() {
            Some(int) => writer.int(int),
            None => writer.float(number.as_f64().unwrap()).unwrap(),
        },
        Value::String(text) => writer.str(text),
        Value::Array(elements) => {
            writer.begin_array();
            elements.iter().for_each(|element| write(element, writer));
            writer.end_array();
        }
        Value::Object(members) => {
            writer.begin_object();
            for (key, value) in members {
                writer.key(key);
                write(value, writer);
            }
            writer.end_object();
        }
    }
}

/// Both accept or both refuse. `serde_json` says of skipped values what the grammar says of them,
/// except for UTF-8, which `from_str` has checked before.
fn agree(body: &[u8]) -> Result<(), TestCaseError> {
    let ours = Doc::parse(Bytes::copy_from_slice(body), 64);
    let theirs =
        std::str::from_utf8(body).is_ok_and(|text| serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok());
    prop_assert_eq!(ours.is_ok(), theirs, "{:?} {}", ours, String::from_utf8_lossy(body));
    match ours {
        Ok(doc) => {
            if let Ok(value) = serde_json::from_slice::<Value>(body) {
                let ours = read(doc.root());
                prop_assert!(same(&ours, &value), "{ours} {value}");
                let indexed = Doc::parse_indexed(Bytes::copy_from_slice(body), 64).map(|doc| read(doc.root()));
                prop_assert_eq!(indexed, Ok(ours));
            }
        }
        Err(error) => prop_assert!(error.offset <= body.len()),
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn reads_what_serde_writes(value in value(), pretty in any::<bool>()) {
        let body = if pretty { serde_json::to_vec_pretty(&value) } else { serde_json::to_vec(&value) }.unwrap();
        let doc = Doc::parse(body.clone().into(), 64).unwrap();
        prop_assert_eq!(&doc.bytes()[..], &body[..]);
        let ours = read(doc.root());
        prop_assert!(same(&ours, &value), "{ours} {value}");
        let indexed = Doc::parse_indexed(body.into(), 64).unwrap();
        prop_assert!(indexed.is_indexed());
        prop_assert_eq!(read(indexed.root()), ours.clone());
        let indented = fanin_json::indent(&doc, "", "  ");
        let again: Value = serde_json::from_slice(&indented).unwrap();
        prop_assert!(same(&ours, &again), "{ours} {again}");
    }

    #[test]
    fn serde_reads_what_we_write(value in value()) {
        let mut out = Vec::new();
        write(&value, &mut Writer::new(&mut out));
        let theirs: Value = serde_json::from_slice(&out).unwrap();
        prop_assert!(same(&theirs, &value), "{theirs} {value}");
    }

    #[test]
    fn a_changed_byte_is_judged_alike(value in value(), at in any::<prop::sample::Index>(), byte in prop_oneof![
        any::<u8>(), prop::sample::select(b"{}[],:\"\\0123456789-+.eEtfnu \n\t\x00\x1f\x80".to_vec())
    ], cut in any::<bool>()) {
        let mut body = serde_json::to_vec(&value).unwrap();
        let at = at.index(body.len());
        if cut { body.remove(at); } else { body[at] = byte; }
        agree(&body)?;
    }

    #[test]
    fn tokens_in_any_order_are_judged_alike(tokens in proptest::collection::vec(prop::sample::select(vec![
        "{", "}", "[", "]", ",", ":", "\"\"", "\"a\"", "\"\\u0061\"", "\"\\ud800\"", "\"", "\\", "0", "-", "1.5", "e3", "null", "true", "false", " ", "\n", "é",
    ]), 0..14)) {
        agree(tokens.concat().as_bytes())?;
    }

    #[test]
    fn random_bytes_are_judged_alike(body in proptest::collection::vec(any::<u8>(), 0..64), quoted in any::<bool>()) {
        let body = if quoted { [&b"\""[..], &body, b"\""].concat() } else { body };
        agree(&body)?;
    }
}
