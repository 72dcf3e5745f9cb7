//! `returns`: the shape that answers must have.

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

/// The shape of a JSON value.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    /// What the value must be.
    pub kind: ShapeKind,
    /// Whether it may also be `null`, or a member that is not there.
    pub optional: bool,
}

/// What a value must be.
#[derive(Clone, Debug, PartialEq)]
pub enum ShapeKind {
    /// Anything.
    Any,
    /// `true` or `false`.
    Bool,
    /// A whole number.
    Int,
    /// A number.
    Float,
    /// A string.
    String,
    /// A list, with the shape of its items.
    List(Option<Box<Shape>>),
    /// An object, with the shapes of its members.
    Object(Box<Members>),
}

/// The members of an object. It may have others.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Members {
    /// By name.
    pub named: Vec<(String, Shape)>,
    /// The shape of all other members.
    pub others: Option<Shape>,
}

const NAMES: [&str; 7] = ["object", "list", "string", "int", "float", "bool", "any"];

impl Shape {
    /// Reads a shape: the name of a kind, `[shape]` for the items of a list, or an object with a shape for each member.
    ///
    /// # Errors
    /// What is wrong, and what to write instead.
    pub fn read(value: &Value) -> Result<Shape, String> {
        let kind = match value {
            Value::String(text) => {
                let (name, optional) = text.strip_suffix('?').map_or((text.as_str(), false), |name| (name, true));
                return Ok(Shape { kind: ShapeKind::named(name)?, optional });
            }
            Value::Array(items) => match items.as_slice() {
                [item] => ShapeKind::List(Some(Box::new(Shape::read(item)?))),
                _ => {
                    return Err(format!(
                        "a list needs one shape, that of its items, such as [\"int\"]; {} given",
                        items.len()
                    ));
                }
            },
            Value::Object(members) => ShapeKind::Object(Box::new(Members::read(members)?)),
            other => return Err(format!("`{other}` is not a shape; use one of {}", NAMES.join(", "))),
        };
        Ok(Shape { kind, optional: false })
    }

    /// What it expects, for messages.
    pub fn describe(&self) -> &'static str {
        match self.kind {
            ShapeKind::Any => "any value",
            ShapeKind::Bool => "a bool",
            ShapeKind::Int => "an int",
            ShapeKind::Float => "a float",
            ShapeKind::String => "a string",
            ShapeKind::List(_) => "a list",
            ShapeKind::Object(_) => "an object",
        }
    }

    fn to_json(&self) -> Value {
        let name = match &self.kind {
            ShapeKind::Any => "any",
            ShapeKind::Bool => "bool",
            ShapeKind::Int => "int",
            ShapeKind::Float => "float",
            ShapeKind::String => "string",
            ShapeKind::List(None) => "list",
            ShapeKind::List(Some(item)) => return Value::Array(vec![item.to_json()]),
            ShapeKind::Object(members) if **members == Members::default() => "object",
            ShapeKind::Object(members) => return members.to_json(),
        };
        Value::String(if self.optional { format!("{name}?") } else { name.to_owned() })
    }
}

impl ShapeKind {
    fn named(name: &str) -> Result<ShapeKind, String> {
        Ok(match name {
            "object" => ShapeKind::Object(Box::default()),
            "list" => ShapeKind::List(None),
            "string" => ShapeKind::String,
            "int" => ShapeKind::Int,
            "float" => ShapeKind::Float,
            "bool" => ShapeKind::Bool,
            "any" => ShapeKind::Any,
            _ => {
                return Err(format!(
                    "`{name}` is not a shape; use one of {}, with `?` if it may be null",
                    NAMES.join(", ")
                ));
            }
        })
    }
}

impl Members {
    fn read(members: &Map<String, Value>) -> Result<Members, String> {
        let mut read = Members::default();
        for (key, value) in members {
            let mut shape = Shape::read(value).map_err(|problem| format!("`{key}`: {problem}"))?;
            let name = match key.strip_suffix('?') {
                Some(name) => {
                    shape.optional = true;
                    name
                }
                None => key,
            };
            if name == "*" {
                read.others = Some(shape);
            } else if read.named.iter().any(|(other, _)| other == name) {
                return Err(format!("`{name}` is there twice, with `?` and without"));
            } else {
                read.named.push((name.to_owned(), shape));
            }
        }
        Ok(read)
    }

    fn to_json(&self) -> Value {
        let others = self.others.iter().map(|shape| ("*", shape));
        let all = self.named.iter().map(|(name, shape)| (name.as_str(), shape)).chain(others);
        let member = |(name, shape): (&str, &Shape)| match (shape.optional, shape.to_json()) {
            // A list or object has no name that takes the `?`.
            (true, nested @ (Value::Array(_) | Value::Object(_))) => (format!("{name}?"), nested),
            (_, json) => (name.to_owned(), json),
        };
        Value::Object(all.map(member).collect())
    }
}

impl Serialize for Shape {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.to_json().serialize(to)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn shapes_are_read_and_written() {
        for shape in [
            json!("object"),
            json!("list?"),
            json!("any"),
            json!(["int?"]),
            json!([["string"]]),
            json!({"id": "int", "tags": ["string"], "price": "float?", "page?": {"next": "bool"}, "rows?": ["any"]}),
            json!({"*": {"name": "string"}}),
        ] {
            assert_eq!(serde_json::to_value(Shape::read(&shape).unwrap()).unwrap(), shape);
        }
        assert_eq!(Shape::read(&json!({})), Shape::read(&json!("object")));
    }

    #[test]
    fn wrong_shapes_say_what_to_write() {
        for (shape, problem) in [
            (json!("array"), "`array` is not a shape; use one of object, list"),
            (json!(["int", "string"]), "2 given"),
            (json!([]), "0 given"),
            (json!({"a": {"b": 7}}), "`a`: `b`: `7` is not a shape"),
            (json!({"a": "int", "a?": "int"}), "`a` is there twice"),
        ] {
            let found = Shape::read(&shape).unwrap_err();
            assert!(found.contains(problem), "{found}");
        }
    }
}
