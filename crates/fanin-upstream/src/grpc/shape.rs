//! Checks JSON against a message, so that an error names the wrong field and a likely correction.
//!
//! The same check serves calls at compile time, as far as their arguments are literals, and messages that could not be
//! converted. It finds only certain mistakes: a text that is no timestamp passes.

use prost_reflect::{FieldDescriptor, Kind, MessageDescriptor};

/// JSON, or what is known of it at compile time.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// Anything.
    Unknown,
    /// `null`, which stands for an absent field.
    Null,
    /// `true` or `false`.
    Bool,
    /// A whole number.
    Int(i64),
    /// A number, not known to be whole.
    Number,
    /// A text.
    Text(String),
    /// A list.
    List(Vec<Shape>),
    /// An object; it may have more entries than these.
    Dict(Vec<(String, Shape)>),
}

impl From<&serde_json::Value> for Shape {
    fn from(value: &serde_json::Value) -> Shape {
        use serde_json::Value as Json;
        match value {
            Json::Null => Shape::Null,
            Json::Bool(_) => Shape::Bool,
            Json::Number(number) => number.as_i64().map_or(Shape::Number, Shape::Int),
            Json::String(text) => Shape::Text(text.clone()),
            Json::Array(items) => Shape::List(items.iter().map(Shape::from).collect()),
            Json::Object(entries) => {
                Shape::Dict(entries.iter().map(|(key, value)| (key.clone(), Shape::from(value))).collect())
            }
        }
    }
}

impl Shape {
    fn describe(&self) -> &'static str {
        match self {
            Shape::Unknown => "something else",
            Shape::Null => "null",
            Shape::Bool => "a boolean",
            Shape::Int(_) | Shape::Number => "a number",
            Shape::Text(_) => "a string",
            Shape::List(_) => "a list",
            Shape::Dict(_) => "a dict",
        }
    }
}

/// A mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// What is wrong, on one line.
    pub message: String,
    /// A likely correction.
    pub hint: Option<String>,
}

/// The name that `wanted` was probably meant to be.
pub fn nearest<'n>(wanted: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let wanted = wanted.to_lowercase();
    let close = |name: &&str| {
        let name = name.to_lowercase();
        // A small edit distance says more than a common prefix.
        let slip = strsim::damerau_levenshtein(&name, &wanted) <= (name.len() / 3).max(1);
        strsim::jaro_winkler(&name, &wanted) + f64::from(u8::from(slip))
    };
    names.max_by(|a, b| close(a).total_cmp(&close(b))).filter(|name| close(name) > 0.8)
}

/// The first certain mistake in a message.
pub fn find_mismatch(message: &MessageDescriptor, shape: &Shape) -> Option<Mismatch> {
    of_message(message, shape, "")
}

fn wrong(message: String) -> Option<Mismatch> {
    Some(Mismatch { message, hint: None })
}

fn of_message(message: &MessageDescriptor, shape: &Shape, path: &str) -> Option<Mismatch> {
    // These have special forms in JSON.
    if message.full_name().starts_with("google.protobuf.") {
        return None;
    }
    let entries = match shape {
        Shape::Dict(entries) => entries,
        Shape::Unknown => return None,
        other => {
            let what = if path.is_empty() { "the message" } else { path };
            return wrong(format!("{what} is a {}, not {}", message.full_name(), other.describe()));
        }
    };
    for (key, value) in entries {
        let by_name = || message.get_field_by_name(key);
        let Some(field) = message.get_field_by_json_name(key).or_else(by_name) else {
            // Extensions have names in brackets.
            if key.starts_with('[') {
                continue;
            }
            let names: Vec<FieldDescriptor> = message.fields().collect();
            let near = nearest(key, names.iter().flat_map(|field| [field.name(), field.json_name()]));
            let hint = match near {
                Some(near) => Some(format!("did you mean {near}?")),
                None if names.is_empty() => Some("it has none".to_owned()),
                None => {
                    let all: Vec<&str> = names.iter().map(FieldDescriptor::name).collect();
                    Some(format!("its fields are {}", all.join(", ")))
                }
            };
            let at = if path.is_empty() { String::new() } else { format!("{path}: ") };
            return Some(Mismatch { message: format!("{at}{} has no field {key}", message.full_name()), hint });
        };
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        if let Some(found) = of_field(&field, value, &path) {
            return Some(found);
        }
    }
    None
}

fn of_field(field: &FieldDescriptor, shape: &Shape, path: &str) -> Option<Mismatch> {
    let kind = field.kind();
    if matches!(shape, Shape::Unknown | Shape::Null) {
        return None;
    }
    if field.is_map() {
        let Shape::Dict(entries) = shape else { return wrong(format!("{path} is a map, not {}", shape.describe())) };
        let values = kind.as_message()?.map_entry_value_field();
        return entries.iter().find_map(|(key, value)| of_field(&values, value, &format!("{path}.{key}")));
    }
    if field.is_list() {
        let Shape::List(items) = shape else { return wrong(format!("{path} is a list, not {}", shape.describe())) };
        return items.iter().enumerate().find_map(|(at, item)| of_kind(&kind, item, &format!("{path}[{at}]")));
    }
    of_kind(&kind, shape, path)
}

fn of_kind(kind: &Kind, shape: &Shape, path: &str) -> Option<Mismatch> {
    let not = |what: &str| wrong(format!("{path} is {what}, not {}", shape.describe()));
    let whole = |least: i128, most: i128, what: &str| match shape {
        Shape::Int(number) if (least..=most).contains(&i128::from(*number)) => None,
        Shape::Int(number) => wrong(format!("{path} is {what}, which {number} does not fit")),
        Shape::Text(text) => match text.parse::<i128>() {
            Ok(number) if (least..=most).contains(&number) => None,
            _ => wrong(format!("{path} is {what}, which {text:?} does not fit")),
        },
        // It may be whole: 1.0.
        Shape::Number => None,
        _ => not(what),
    };
    match (kind, shape) {
        (_, Shape::Unknown) => None,
        (Kind::Message(message), shape) => of_message(message, shape, path),
        (Kind::Enum(of), Shape::Text(text)) if of.full_name() != "google.protobuf.NullValue" => {
            let names: Vec<_> = of.values().map(|value| value.name().to_owned()).collect();
            if names.contains(text) {
                return None;
            }
            let near = nearest(text, names.iter().map(String::as_str));
            let hint = near
                .map_or_else(|| format!("its values are {}", names.join(", ")), |near| format!("did you mean {near}?"));
            Some(Mismatch { message: format!("{path}: {} has no value {text}", of.full_name()), hint: Some(hint) })
        }
        (Kind::Enum(_), Shape::Bool | Shape::List(_) | Shape::Dict(_)) => not("an enum's name or number"),
        (Kind::Enum(_), _) => None,
        (Kind::Bool, Shape::Bool) | (Kind::String | Kind::Bytes, Shape::Text(_)) => None,
        (Kind::Bool, _) => not("a boolean"),
        (Kind::String, _) => not("a string"),
        (Kind::Bytes, _) => not("a string of base64"),
        (Kind::Double | Kind::Float, Shape::Int(_) | Shape::Number | Shape::Text(_)) => None,
        (Kind::Double | Kind::Float, _) => not("a number"),
        (Kind::Int32 | Kind::Sint32 | Kind::Sfixed32, _) => whole(i32::MIN.into(), i32::MAX.into(), "an int32"),
        (Kind::Uint32 | Kind::Fixed32, _) => whole(0, u32::MAX.into(), "a uint32"),
        (Kind::Int64 | Kind::Sint64 | Kind::Sfixed64, _) => whole(i64::MIN.into(), i64::MAX.into(), "an int64"),
        (Kind::Uint64 | Kind::Fixed64, _) => whole(0, u64::MAX.into(), "a uint64"),
    }
}
