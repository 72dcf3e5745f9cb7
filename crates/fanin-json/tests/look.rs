//! Looking inside, splicing, writing.

use bytes::Bytes;
use fanin_json::{Doc, Kind, Node, Number, Writer, indent, indented_len, write_float, write_int, write_str};

fn doc(body: &str) -> Doc {
    Doc::parse(Bytes::copy_from_slice(body.as_bytes()), 64).unwrap()
}

fn keys(node: Node<'_>) -> Vec<String> {
    node.entries().map(|(key, _)| key.as_str().unwrap().into_owned()).collect()
}

#[test]
fn a_document_passed_on_is_never_indexed() {
    let body = doc("  {\"a\": 1.00}\n");
    assert_eq!(&body.bytes()[..], b"{\"a\": 1.00}");
    assert_eq!(body.root().raw(), b"{\"a\": 1.00}");
    assert_eq!(body.root().kind(), Kind::Object);
    assert!(!body.root().is_empty());
    let mut out = Vec::new();
    Writer::new(&mut out).node(body.root());
    assert!(!body.is_indexed());
    let before = body.memory();
    assert_eq!(body.root().len(), Some(1));
    assert!(body.is_indexed());
    assert!(body.memory() > before);
}

#[test]
fn parts_are_the_bytes_that_came() {
    let body = doc(r#"{"a":[1, 2.50 ,"\u0041"], "b" : {"x":-0}}"#);
    let root = body.root();
    assert_eq!(root.get("a").unwrap().raw(), br#"[1, 2.50 ,"\u0041"]"#);
    assert_eq!(root.get("b").unwrap().raw(), br#"{"x":-0}"#);
    let part = root.get("a").unwrap().index(1).unwrap().raw_bytes();
    assert_eq!(&part[..], b"2.50");
    // No copy: the part lies within the body.
    assert!(body.bytes().as_ptr_range().contains(&part.as_ptr()));
    let at = root.get("b").unwrap().at();
    assert_eq!(body.node(at).get("x").unwrap().as_i64(), Some(0));
}

#[test]
fn a_small_part_kept_does_not_keep_a_large_body() {
    let body = doc(&format!(r#"{{"small":[1,2],"large":"{}"}}"#, "x".repeat(1000)));
    let small = body.root().get("small").unwrap().to_doc();
    assert!(!body.bytes().as_ptr_range().contains(&small.bytes().as_ptr()));
    assert_eq!(small.root().index(1).unwrap().as_i64(), Some(2));
    let large = body.root().get("large").unwrap().to_doc();
    assert!(body.bytes().as_ptr_range().contains(&large.bytes().as_ptr()));
    assert_eq!(large.root().as_str().unwrap().len(), 1000);
    assert!(body.root().to_doc().same(&body));
}

#[test]
fn kinds_and_scalars() {
    let body = doc(r#"[null,true,false,1,"s",[],{}, [ ], { } ,[0]]"#);
    let kinds: Vec<Kind> = body.root().elements().map(Node::kind).collect();
    use Kind::*;
    assert_eq!(kinds, [Null, Bool, Bool, Number, String, Array, Object, Array, Object, Array]);
    let empty: Vec<bool> = body.root().elements().map(Node::is_empty).collect();
    assert_eq!(empty, [false, false, false, false, false, true, true, true, true, false]);
    let at = |i| body.root().index(i).unwrap();
    assert!(at(0).is_null() && !at(1).is_null());
    assert_eq!([at(1).as_bool(), at(2).as_bool(), at(3).as_bool()], [Some(true), Some(false), None]);
    assert_eq!(at(4).len(), None);
    assert_eq!((at(5).len(), at(6).len()), (Some(0), Some(0)));
    assert!(at(4).as_number().is_none() && at(3).as_str().is_none());
    assert!(at(3).get("x").is_none() && at(6).index(0).is_none() && body.root().index(10).is_none());
    assert_eq!(at(3).elements().count() + at(3).entries().count() + at(6).elements().count(), 0);
    for scalar in ["1", "\"x\"", "null", "true"] {
        let body = doc(scalar);
        assert_eq!(body.root().elements().count(), 0);
        assert_eq!(body.root().cursor().next_element(&body), None);
    }
}

#[test]
fn numbers() {
    let read = |text: &str| format!("{:?}", doc(text).root().as_number().unwrap());
    assert_eq!(read("0"), "Int(0)");
    assert_eq!(read("-0"), "Int(0)");
    assert_eq!(read("9223372036854775807"), "Int(9223372036854775807)");
    assert_eq!(read("-9223372036854775808"), "Int(-9223372036854775808)");
    assert_eq!(read("9223372036854775808"), "Large(\"9223372036854775808\")");
    assert_eq!(read("-9223372036854775809"), "Large(\"-9223372036854775809\")");
    assert_eq!(read("1.0"), "Float(1.0)");
    assert_eq!(read("1e2"), "Float(100.0)");
    assert_eq!(read("-0.0"), "Float(-0.0)");
    assert_eq!(read("1e400"), "Float(inf)");
    assert_eq!(doc("3").root().as_f64(), Some(3.0));
    assert_eq!(doc("3.5").root().as_i64(), None);
    assert_eq!(doc("1.2300").root().as_number_text(), Some("1.2300"));
    assert_eq!(doc("7").root().as_number(), Some(Number::Int(7)));
}

#[test]
fn strings_are_decoded() {
    let text = |body: &str| doc(body).root().as_str().unwrap().into_owned();
    assert_eq!(text(r#""""#), "");
    assert_eq!(text(r#""\"\\\/\b\f\n\r\t""#), "\"\\/\u{8}\u{c}\n\r\t");
    assert_eq!(text(r#""a\u00e9b\uD834\uDD1Ec\u0000""#), "aéb𝄞c\0");
    assert_eq!(text(r#""€\u20ac𝄞""#), "€€𝄞");
    // Halves of surrogate pairs, alone, doubled, at the end, before something else.
    assert_eq!(text(r#""\ud800""#), "\u{fffd}");
    assert_eq!(text(r#""\udc00x""#), "\u{fffd}x");
    assert_eq!(text(r#""\ud800\ud834\udd1e""#), "\u{fffd}𝄞");
    assert_eq!(text(r#""\ud800\u0041""#), "\u{fffd}A");
    assert_eq!(text(r#""\ud800\n""#), "\u{fffd}\n");
    let plain = doc(r#"["abc"]"#);
    assert!(matches!(plain.root().index(0).unwrap().as_str(), Some(std::borrow::Cow::Borrowed("abc"))));
}

#[test]
fn keys_are_compared_decoded() {
    let body = doc(r#"{"\u0061b":1,"a\\n":2,"":3,"\"":4}"#);
    let get = |key| body.root().get(key).and_then(Node::as_i64);
    assert_eq!(get("ab"), Some(1));
    assert_eq!(get("\\u0061b"), None);
    assert_eq!(get("a\\n"), Some(2));
    assert_eq!(get("a\\\\n"), None);
    assert_eq!(get(""), Some(3));
    assert_eq!(get("\""), Some(4));
    assert_eq!(get("x"), None);
}

#[test]
fn the_last_of_equal_keys_wins_and_counts_once() {
    for padding in [0, 40] {
        let more: String = (0..padding).map(|i| format!(r#","k{i}":{i}"#)).collect();
        let body = doc(&format!(r#"{{"a":1,"b":{{"a":7}},"\u0061":2,"c":[3]{more},"a":4,"c":5}}"#));
        let root = body.root();
        assert_eq!(root.len(), Some(3 + padding));
        assert_eq!(root.get("a").unwrap().as_i64(), Some(4));
        assert_eq!(root.get("c").unwrap().as_i64(), Some(5));
        assert_eq!(root.get("b").unwrap().len(), Some(1));
        assert_eq!(keys(root)[..3], ["a", "b", "c"]);
        assert_eq!(root.entries().next().unwrap().1.as_i64(), Some(4));
        assert_eq!(root.entries().count(), 3 + padding);
    }
}

#[test]
fn large_containers_are_found_in_by_index() {
    let n = 3000;
    let members: Vec<String> = (0..n).map(|i| format!(r#""k{}":{{"v":[{i}]}}"#, (i * 7919) % n)).collect();
    let elements: Vec<String> = (0..n).map(|i| format!(r#"{{"i":{i},"t":[[]]}}"#)).collect();
    let body = doc(&format!(
        r#"{{"o":{{{}}},"a":[{}],"n":[{}]}}"#,
        members.join(","),
        elements.join(","),
        (0..n).map(|i| i.to_string()).collect::<Vec<_>>().join(",")
    ));
    let (object, array) = (body.root().get("o").unwrap(), body.root().get("a").unwrap());
    for i in 0..n {
        let value = object.get(&format!("k{}", (i * 7919) % n)).unwrap();
        assert_eq!(value.get("v").unwrap().index(0).unwrap().as_i64(), Some(i));
        let i = usize::try_from(i).unwrap();
        assert_eq!(array.index(i).unwrap().get("i").unwrap().as_i64(), Some(i as i64));
        assert_eq!(body.root().get("n").unwrap().index(i).unwrap().as_i64(), Some(i as i64));
    }
    assert!(object.get("k3000").is_none() && array.index(3000).is_none());
    assert_eq!((object.len(), array.len()), (Some(3000), Some(3000)));
    assert_eq!(object.entries().count() + array.elements().count(), 6000);
}

#[test]
fn cursors_go_on_after_a_pause() {
    let body = doc(r#"{"a":[10,[11],12],"b":2}"#);
    let mut members = body.root().cursor();
    let (key, value) = members.next_entry(&body).unwrap();
    assert_eq!(body.node(key).as_str().unwrap(), "a");
    let mut elements = body.node(value).cursor();
    assert_eq!(body.node(elements.next_element(&body).unwrap()).as_i64(), Some(10));
    let kept = elements;
    assert_eq!(body.node(elements.next_element(&body).unwrap()).raw(), b"[11]");
    elements = kept;
    assert_eq!(body.node(elements.next_element(&body).unwrap()).raw(), b"[11]");
    assert_eq!(body.node(elements.next_element(&body).unwrap()).as_i64(), Some(12));
    assert_eq!(elements.next_element(&body), None);
    assert_eq!(body.node(members.next_entry(&body).unwrap().1).as_i64(), Some(2));
    assert_eq!(members.next_entry(&body), None);
}

#[test]
fn the_writer_puts_commas_and_escapes() {
    let spliced = doc(r#"{"k\u0061":1.0}"#);
    let mut out = b"x".to_vec();
    let mut writer = Writer::new(&mut out);
    writer.begin_array();
    writer.begin_object();
    writer.end_object();
    writer.begin_object();
    writer.key("a\"");
    writer.begin_array();
    writer.end_array();
    writer.key("b");
    writer.null();
    writer.raw_key(spliced.root().entries().next().unwrap().0);
    writer.node(spliced.root());
    writer.end_object();
    writer.bool(true);
    writer.bool(false);
    writer.int(i64::MIN);
    writer.float(1.0).unwrap();
    assert!(writer.float(f64::NAN).is_err() && writer.float(f64::INFINITY).is_err());
    writer.str("é\u{1}\u{1f}\u{8}\u{c}\n\r\t\\\"/");
    writer.raw(b"123456789012345678901234567890");
    writer.end_array();
    let expected = "x[{},{\"a\\\"\":[],\"b\":null,\"k\\u0061\":{\"k\\u0061\":1.0}},true,false,-9223372036854775808,1.0,\
         \"é\\u0001\\u001f\\b\\f\\n\\r\\t\\\\\\\"/\",123456789012345678901234567890]";
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}

#[test]
fn floats_read_back_the_same() {
    for value in [0.0, -0.0, 0.1, 1.0, 1e16, 1e21, 1.5e300, 5e-324, f64::MAX, f64::MIN_POSITIVE, 123456.789] {
        let mut out = Vec::new();
        write_float(&mut out, value).unwrap();
        let text = String::from_utf8(out).unwrap();
        let back = doc(&text).root().as_f64().unwrap();
        assert_eq!(back.to_bits(), value.to_bits(), "{text}");
        // A float stays one: an integer's notation would change its type on the way back.
        assert!(matches!(doc(&text).root().as_number(), Some(Number::Float(_))), "{text}");
    }
    let mut out = Vec::new();
    write_int(&mut out, -7);
    write_str(&mut out, "");
    assert_eq!(out, b"-7\"\"");
}

#[test]
fn indents() {
    let body = doc(r#"{"a":[1.0,{ },[ ] ,"x,\"]\\"],"b":{"c":null}}"#);
    let text = String::from_utf8(indent(&body, "> ", "\t")).unwrap();
    assert_eq!(
        text,
        "{\n> \t\"a\": [\n> \t\t1.0,\n> \t\t{},\n> \t\t[],\n> \t\t\"x,\\\"]\\\\\"\n> \t],\n> \t\"b\": {\n> \t\t\"c\": null\n> \t}\n> }"
    );
    assert_eq!(indented_len(&body, "> ", "\t"), text.len());
    assert_eq!(indent(&doc("1"), "", " "), b"1");
}

#[test]
fn documents_are_shared_between_threads() {
    let body = doc(r#"{"a":[1,2,3]}"#);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let body = body.clone();
            scope.spawn(move || assert_eq!(body.root().get("a").unwrap().len(), Some(3)));
        }
    });
}

/// Keys that are written twice, escaped or not, in objects of every size around the one from which there is an index.
#[test]
fn repeated_and_escaped_keys_are_found_in_objects_of_any_size() {
    for members in [0, 1, 2, 15, 16, 17, 18, 100, 5000_usize] {
        for distinct in [members.max(1), members.div_ceil(2).max(1), 3] {
            let mut text = String::from("{");
            // First positions, and last values.
            let mut expected: Vec<(String, usize)> = Vec::new();
            let mut places = std::collections::HashMap::new();
            for value in 0..members {
                let number = value * 7 % distinct;
                let written = if value % 3 == 0 { format!("\\u006b{number}") } else { format!("k{number}") };
                text.push_str(&format!("{}\"{written}\":{value}", if value == 0 { "" } else { "," }));
                let name = format!("k{number}");
                let place = *places.entry(name.clone()).or_insert(expected.len());
                match expected.get_mut(place) {
                    Some(known) => known.1 = value,
                    None => expected.push((name, value)),
                }
            }
            let doc = doc(&(text + "}"));
            let root = doc.root();
            assert_eq!(root.len(), Some(expected.len()), "{members} members, {distinct} keys");
            for (name, value) in &expected {
                assert_eq!(root.get(name).and_then(|node| node.as_i64()), Some(*value as i64), "{name} of {members}");
            }
            assert!(root.get("k").is_none() && root.get("\\u006b0").is_none());
            let entries =
                root.entries().map(|(key, value)| (key.as_str().unwrap().into_owned(), value.as_i64().unwrap()));
            let expected = expected.into_iter().map(|(name, value)| (name, value as i64));
            assert_eq!(entries.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
        }
    }
}
