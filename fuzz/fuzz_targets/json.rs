//! Any bytes as JSON: taken or refused as serde_json takes or refuses them, and read to the end.
#![no_main]

use fanin_json::{Doc, Kind, Node};

/// Reads all of a part of a document; gives its nodes.
fn nodes(node: Node<'_>) -> usize {
    1 + match node.kind() {
        Kind::Array => node.elements().map(nodes).sum(),
        Kind::Object => node.entries().map(|(key, value)| nodes(key) + nodes(value)).sum(),
        Kind::String => node.as_str().map_or(0, |text| text.len()),
        Kind::Number => {
            assert!(node.as_number_text().is_some_and(|text| text.parse::<f64>().is_ok()));
            node.as_i64().map_or(0, |_| 1)
        }
        Kind::Bool | Kind::Null => 0,
    }
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let ours = Doc::parse(bytes.to_vec().into(), 64);
    let theirs =
        std::str::from_utf8(bytes).is_ok_and(|text| serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok());
    let deep = bytes.iter().filter(|byte| matches!(byte, b'[' | b'{')).count() > 64;
    assert!(ours.is_ok() == theirs || deep && theirs, "{ours:?}");
    if let Ok(doc) = ours {
        assert!(nodes(doc.root()) > 0);
        assert!(serde_json::from_slice::<serde::de::IgnoredAny>(doc.root().raw()).is_ok());
    }
});
