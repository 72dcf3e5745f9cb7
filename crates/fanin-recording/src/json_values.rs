//! Values of JSON by their place: where they are in the bytes.

use std::ops::Range;

use bytes::Bytes;
use fanin_json::{Doc, Kind, Node};

use crate::rules::{Rules, Step};

/// How deep JSON may be nested.
const MAX_DEPTH: usize = 128;

/// A value to remove.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// Where it is, with the marks of a text.
    pub(crate) at: Range<usize>,
    /// What it is: the text, or the digits of a number.
    pub(crate) value: String,
    /// Whether it is a number.
    pub(crate) is_number: bool,
}

/// The values that the rules name, in the order of the bytes. None if the bytes are no JSON.
pub(crate) fn find(bytes: &Bytes, rules: &Rules) -> Vec<Found> {
    let mut found = Vec::new();
    let begins = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    if !matches!(begins, Some(b'{' | b'[')) {
        return found;
    }
    let Ok(doc) = Doc::parse(bytes.clone(), MAX_DEPTH) else { return found };
    let places: Vec<&[Step]> = rules.places().collect();
    walk(bytes, doc.root(), &places, false, &mut found);
    found.sort_by_key(|one| one.at.start);
    found.dedup_by(|one, before| one.at == before.at);
    found
}

/// Looks at a node with what is left of each place. `inside`: it is below a value that is removed as a whole.
fn walk(bytes: &Bytes, node: Node<'_>, places: &[&[Step]], inside: bool, found: &mut Vec<Found>) {
    let inside = inside || places.iter().any(|place| place.is_empty());
    match node.kind() {
        Kind::Object => {
            for (key, value) in node.entries() {
                let name = key.as_str().unwrap_or_default().to_ascii_lowercase();
                let mut next: Vec<&[Step]> = Vec::new();
                places.iter().for_each(|place| step(place, &name, &mut next));
                if inside || !next.is_empty() {
                    walk(bytes, value, &next, inside, found);
                }
            }
        }
        Kind::Array => node.elements().for_each(|element| walk(bytes, element, places, inside, found)),
        _ if !inside => {}
        _ => {
            // A part of the same bytes.
            let start = node.raw().as_ptr().addr() - bytes.as_ptr().addr();
            let at = start..start + node.raw().len();
            if let Some(value) = node.as_str() {
                found.push(Found { at, value: value.into_owned(), is_number: false });
            } else if let Some(digits) = node.as_number_text() {
                found.push(Found { at, value: digits.to_owned(), is_number: true });
            }
        }
    }
}

/// What is left of a place below a member.
fn step<'a>(place: &'a [Step], name: &str, next: &mut Vec<&'a [Step]>) {
    match place {
        [Step::Name(wanted), rest @ ..] if wanted == name => next.push(rest),
        [Step::Any, rest @ ..] => next.push(rest),
        [Step::Deep, rest @ ..] => {
            next.push(place);
            step(rest, name, next);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_their_place() {
        let mut rules = Rules::default();
        rules.add_json("users.card").unwrap();
        rules.add_json("a.*").unwrap();
        let text = r#"{"Password": "x\n1", "users": [{"card": 4111, "name": "n"}], "a": {"b": {"c": "deep"}}, "b": {"c": 5},
            "in": {"x": [{"token": ["t1", "t2"]}]}}"#;
        let bytes = Bytes::from_static(text.as_bytes());
        let found: Vec<(String, &str)> =
            find(&bytes, &rules).into_iter().map(|one| (one.value, &text[one.at])).collect();
        let expected =
            [("x\n1", r#""x\n1""#), ("4111", "4111"), ("deep", r#""deep""#), ("t1", r#""t1""#), ("t2", r#""t2""#)];
        assert_eq!(found, expected.map(|(value, raw)| (value.to_owned(), raw)));
        assert!(find(&Bytes::from_static(b"{\"password\":"), &rules).is_empty());
    }
}
