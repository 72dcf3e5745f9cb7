//! Checks answers against the shape that their operation or call declares (`returns`).

use std::borrow::Cow;
use std::fmt::Write;

use fanin_config::{Members, Shape, ShapeKind};
use fanin_json::{Doc, Kind, Node};
use fanin_upstream::shared::Body;

/// Longest member name in a message, in characters: it may come from the upstream.
const LONGEST_NAME: usize = 50;

/// A value that does not have its shape. The path is built from the inside outwards.
struct Mismatch {
    path: Vec<String>,
    problem: String,
}

/// How the body differs from the shape; `None` if it has it. A shape that is only a kind costs a look at one byte.
pub(crate) fn mismatch(shape: &Shape, body: &Body, operation: Option<&str>) -> Option<String> {
    let Mismatch { path, problem } = check(shape, body).err()?;
    let mut text = operation.map_or_else(String::new, |name| format!("{name}: "));
    text.push_str("answer");
    path.iter().rev().for_each(|part| text.push_str(part));
    let _ = write!(text, " {problem} (returns)");
    Some(text)
}

fn check(shape: &Shape, body: &Body) -> Result<(), Mismatch> {
    match (&shape.kind, body) {
        (ShapeKind::Any, _) | (ShapeKind::String, Body::Text) => Ok(()),
        // A key that is not there is no wrong answer.
        (_, Body::Absent | Body::Items(_)) => Ok(()),
        (_, Body::Empty) if shape.optional => Ok(()),
        (_, Body::Empty) => Err(differs(shape, "empty")),
        (_, Body::Text) => Err(differs(shape, "text")),
        (_, Body::Json(doc)) => node(shape, doc.root()),
        (_, Body::Part { doc, at }) => node(shape, doc.node(*at)),
        (ShapeKind::List(item), Body::List { doc, at }) => items(item.as_deref(), at.iter().map(|at| doc.node(*at))),
        (ShapeKind::Object(members), Body::Entries { doc, at }) => object(
            members,
            |name| entry(doc, at, name),
            || at.iter().map(|(key, value)| (doc.node(*key), doc.node(*value))),
        ),
        (_, Body::List { .. }) => Err(differs(shape, "a list")),
        (_, Body::Entries { .. }) => Err(differs(shape, "an object")),
    }
}

fn entry<'a>(doc: &'a Doc, at: &[(u32, u32)], name: &str) -> Option<Node<'a>> {
    at.iter().find(|(key, _)| doc.node(*key).as_str().is_some_and(|key| key == name)).map(|(_, value)| doc.node(*value))
}

fn node(shape: &Shape, node: Node<'_>) -> Result<(), Mismatch> {
    match (&shape.kind, node.kind()) {
        (ShapeKind::Any, _)
        | (ShapeKind::Bool, Kind::Bool)
        | (ShapeKind::Float, Kind::Number)
        | (ShapeKind::String, Kind::String) => Ok(()),
        (ShapeKind::Int, Kind::Number) if is_whole(node) => Ok(()),
        (ShapeKind::List(item), Kind::Array) => items(item.as_deref(), node.elements()),
        (ShapeKind::Object(members), Kind::Object) => object(members, |name| node.get(name), || node.entries()),
        (_, Kind::Null) if shape.optional => Ok(()),
        _ => Err(differs(shape, found(node))),
    }
}

fn items<'a>(shape: Option<&Shape>, nodes: impl Iterator<Item = Node<'a>>) -> Result<(), Mismatch> {
    let Some(shape) = shape else { return Ok(()) };
    for (index, item) in nodes.enumerate() {
        node(shape, item).map_err(|mismatch| mismatch.inside(format!("[{index}]")))?;
    }
    Ok(())
}

fn object<'a, E: Iterator<Item = (Node<'a>, Node<'a>)>>(
    members: &Members,
    get: impl Fn(&str) -> Option<Node<'a>>,
    entries: impl Fn() -> E,
) -> Result<(), Mismatch> {
    for (name, shape) in &members.named {
        match get(name) {
            Some(value) => node(shape, value).map_err(|mismatch| mismatch.inside(format!("[{name:?}]")))?,
            None if shape.optional => {}
            None => return Err(Mismatch { path: Vec::new(), problem: format!("has no key {name:?}") }),
        }
    }
    let Some(others) = &members.others else { return Ok(()) };
    for (key, value) in entries() {
        let name = key.as_str().unwrap_or(Cow::Borrowed(""));
        if members.named.iter().all(|(other, _)| **other != *name) {
            node(others, value).map_err(|mismatch| {
                let name: String = name.chars().take(LONGEST_NAME).collect();
                mismatch.inside(format!("[{name:?}]"))
            })?;
        }
    }
    Ok(())
}

fn is_whole(node: Node<'_>) -> bool {
    node.as_number_text().is_some_and(|text| !text.contains(['.', 'e', 'E']))
}

fn found(node: Node<'_>) -> &'static str {
    match node.kind() {
        Kind::Null => "null",
        Kind::Bool => "a bool",
        Kind::Number if is_whole(node) => "an int",
        Kind::Number => "a float",
        Kind::String => "a string",
        Kind::Array => "a list",
        Kind::Object => "an object",
    }
}

#[cold]
fn differs(shape: &Shape, found: &str) -> Mismatch {
    Mismatch { path: Vec::new(), problem: format!("is {found}, not {}", shape.describe()) }
}

impl Mismatch {
    #[cold]
    fn inside(mut self, part: String) -> Mismatch {
        self.path.push(part);
        self
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(shape: Value, answer: &str) -> Option<String> {
        let doc = Doc::parse(answer.to_owned().into(), 64).unwrap();
        mismatch(&Shape::read(&shape).unwrap(), &Body::Json(doc), Some("shop.get"))
    }

    #[test]
    fn answers_that_fit() {
        for (shape, answer) in [
            (json!("object"), "{}"),
            (json!("list?"), "null"),
            (json!("float"), "1"),
            (json!("int"), "12345678901234567890123"),
            (json!(["int?"]), "[1, null]"),
            (
                json!({"id": "int", "price": "float?", "page?": {"next": "int"}}),
                r#"{"id": 1, "more": 2, "page": null}"#,
            ),
            (json!({"*": "object", "n": "int"}), r#"{"n": 1, "a": {}}"#),
        ] {
            assert_eq!(of(shape.clone(), answer), None, "{shape} {answer}");
        }
        let shape = |shape| Shape::read(&shape).unwrap();
        assert_eq!(mismatch(&shape(json!("string")), &Body::Text, None), None);
        assert_eq!(mismatch(&shape(json!("object?")), &Body::Empty, None), None);
        assert_eq!(mismatch(&shape(json!("object")), &Body::Absent, None), None);
    }

    #[test]
    fn a_mismatch_names_operation_path_expected_and_found() {
        for (shape, answer, problem) in [
            (json!("object"), "null", "is null, not an object"),
            (json!("object"), "17", "is an int, not an object"),
            (json!("object"), "[]", "is a list, not an object"),
            (json!("list"), "{}", "is an object, not a list"),
            (json!("int"), "1.5", "is a float, not an int"),
            (json!("int?"), "true", "is a bool, not an int"),
            (
                json!({"a": [{"b": "string"}]}),
                r#"{"a": [{"b": ""}, {"b": 1}]}"#,
                "[\"a\"][1][\"b\"] is an int, not a string",
            ),
            (json!({"a": {"b": "string"}}), r#"{"a": {}}"#, "[\"a\"] has no key \"b\""),
            (json!({"*": "object"}), r#"{"p1": {}, "p2": null}"#, "[\"p2\"] is null, not an object"),
        ] {
            let problem = if problem.starts_with('[') { problem.to_owned() } else { format!(" {problem}") };
            assert_eq!(of(shape, answer), Some(format!("shop.get: answer{problem} (returns)")));
        }
        let object = Shape::read(&json!("object")).unwrap();
        assert_eq!(mismatch(&object, &Body::Empty, None).unwrap(), "answer is empty, not an object (returns)");
    }

    #[test]
    fn parts_of_batches_have_shapes() {
        let doc = Doc::parse(r#"{"a": 1, "b": "x"}"#.into(), 9).unwrap();
        let entries: Vec<(u32, u32)> = doc.root().entries().map(|(key, value)| (key.at(), value.at())).collect();
        let values: Vec<u32> = entries.iter().map(|(_, value)| *value).collect();
        let entries = Body::Entries { doc: doc.clone(), at: entries.into() };
        let list = Body::List { doc, at: values.into() };
        let problem = |shape: Value, body| mismatch(&Shape::read(&shape).unwrap(), body, None);
        assert_eq!(problem(json!({"a": "int", "*": "string"}), &entries), None);
        assert!(problem(json!({"b": "int"}), &entries).unwrap().contains("[\"b\"] is a string"));
        assert!(problem(json!("list"), &entries).is_some() && problem(json!("object"), &list).is_some());
        assert!(problem(json!(["int"]), &list).unwrap().contains("[1] is a string"));
    }
}
