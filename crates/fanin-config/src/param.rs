//! `[upstreams.NAME.operations.NAME.params]`: what an operation is told, and where it goes.

use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use serde_json::Value;
use toml::de::DeValue;

use crate::read::{At, Item, header_name};
use crate::schema;
use crate::table::Table;
use crate::upstream::is_identifier;

/// Arguments that every call of an operation may have: no parameter may bear such a name.
pub const OPERATION_CALL_OPTIONS: [&str; 8] =
    ["default", "headers", "linger", "ok", "optional", "safe", "timeout", "unordered"];

/// What a parameter may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamType {
    /// Text.
    String,
    /// A whole number.
    Int,
    /// A number.
    Float,
    /// True or False.
    Bool,
    /// A list of texts and numbers, or one of them.
    List,
    /// Anything that can be sent.
    Any,
}

const TYPES: [(&str, ParamType); 6] = [
    ("string", ParamType::String),
    ("int", ParamType::Int),
    ("float", ParamType::Float),
    ("bool", ParamType::Bool),
    ("list", ParamType::List),
    ("any", ParamType::Any),
];

impl ParamType {
    /// Its name in the file.
    pub const fn as_str(self) -> &'static str {
        match self {
            ParamType::String => "string",
            ParamType::Int => "int",
            ParamType::Float => "float",
            ParamType::Bool => "bool",
            ParamType::List => "list",
            ParamType::Any => "any",
        }
    }

    fn takes(self, value: &Value) -> bool {
        let scalar = |value: &Value| !value.is_array() && !value.is_object();
        match self {
            ParamType::String => value.is_string(),
            ParamType::Int => value.is_i64(),
            ParamType::Float => value.is_number(),
            ParamType::Bool => value.is_boolean(),
            ParamType::List => value.as_array().is_some_and(|items| items.iter().all(scalar)),
            ParamType::Any => true,
        }
    }
}

/// Where a parameter goes that the path does not name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ParamLocation {
    /// Into the query.
    #[default]
    Query,
    /// Into the JSON body, as a member of its object.
    Json,
    /// Into a header.
    Header,
}

/// The `type` of a parameter: what it holds, and whether it may be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParamKind {
    /// What it holds.
    pub base: ParamType,
    /// A call may leave it out, or give `None`; it is then not sent.
    pub optional: bool,
}

impl ParamKind {
    fn read(text: &str) -> Result<ParamKind, String> {
        let (name, optional) = match text.strip_suffix('?') {
            Some(name) => (name, true),
            None => (text, false),
        };
        match TYPES.iter().find(|(known, _)| *known == name) {
            Some((_, base)) => Ok(ParamKind { base: *base, optional }),
            None => {
                let known: Vec<_> = TYPES.iter().map(|(known, _)| *known).collect();
                Err(format!("`{text}` is not a type; known are {}, with ? if it may be left out", known.join(", ")))
            }
        }
    }
}

impl Serialize for ParamKind {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&format_args!("{}{}", self.base.as_str(), if self.optional { "?" } else { "" }))
    }
}

/// `[upstreams.NAME.operations.NAME.params.NAME]`: a parameter of an operation. Its type alone (`ids = "list"`) is the short form.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Param {
    /// What it holds: `"string"`, `"int"`, `"float"`, `"bool"`, `"list"` (of texts and numbers, or one of them) or `"any"`; with
    /// `?` at its end it may be left out or `None`, and is then not sent.
    #[serde(rename = "type")]
    #[schemars(with = "schema::ParamTypeText")]
    pub kind: ParamKind,
    /// What is sent if it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "schema::Anything")]
    pub default: Option<Value>,
    /// Where it goes if the path does not name it: `"query"`, `"json"` (a member of the JSON body) or `"header"`.
    #[serde(rename = "in")]
    #[schemars(with = "schema::ParamLocationText")]
    pub location: ParamLocation,
    /// What it is called there. Default: the parameter's own name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub name: Option<String>,
}

impl Param {
    /// A parameter with all defaults, which a call must give.
    pub fn new(base: ParamType) -> Param {
        Param { kind: ParamKind { base, optional: false }, default: None, location: ParamLocation::Query, name: None }
    }

    /// What it is called in the request; `own` is its name.
    pub fn wire_name<'a>(&'a self, own: &'a str) -> &'a str {
        self.name.as_deref().unwrap_or(own)
    }

    /// Whether a call may leave it out.
    pub fn is_optional(&self) -> bool {
        self.kind.optional || self.default.is_some()
    }

    /// Reads one, under the name that it has in the file.
    pub(crate) fn read(name: &At<String>, item: Item<'_, '_>) -> Option<Param> {
        let reader = item.reader;
        if !is_identifier(&name.value) {
            let message = format!("`{}` is not a name for a parameter", name.value);
            reader.error_hint(
                &name.span,
                message,
                "use letters, digits and _; `name` says what it is called in the request",
            );
        } else if OPERATION_CALL_OPTIONS.contains(&name.value.as_str()) {
            let message = format!("`{}` is an argument of every call", name.value);
            reader.error_hint(&name.span, message, "take another name; `name` says what it is called in the request");
        }
        const WHAT: &str = "a type such as \"string\" or \"list?\"";
        if let DeValue::String(_) = item.get() {
            let kind = item.parsed(WHAT, ParamKind::read)?;
            return Some(Param { kind, ..Param::new(kind.base) });
        }
        let mut table = Table::of(&item)?;
        let kind = table.parsed("type", WHAT, ParamKind::read).map(|kind| kind.value);
        if table.at("type").is_none() {
            table.missing("type", "type = \"string\"");
        }
        let locations =
            [("query", ParamLocation::Query), ("json", ParamLocation::Json), ("header", ParamLocation::Header)];
        let location = table.choice("in", &locations).unwrap_or_default();
        let wire = table.text("name");
        if wire.as_deref() == Some("") {
            table.error("name", "is empty");
        }
        let default = table.value("default");
        if let (Some(kind), Some(default)) = (kind, &default) {
            if !kind.base.takes(default) {
                table.error("default", format_args!("is not what the type says, {}", kind.base.as_str()));
            } else if kind.optional {
                table.error("default", "stands beside a type with `?`, which sends nothing; keep one of them");
            }
        }
        if location == ParamLocation::Header
            && let Err(problem) = header_name(wire.as_deref().unwrap_or(&name.value))
        {
            table.error("in", problem);
        }
        table.finish();
        Some(Param { kind: kind?, default, location, name: wire })
    }
}
