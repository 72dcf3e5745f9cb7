//! `[upstreams.NAME.operations.NAME.params]`: parameters of an operation.

use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use serde_json::Value;
use toml::de::DeValue;

use crate::reader::{Item, Located, Table};
use crate::schema::types;
use crate::upstream::call_options::OPERATION_CALL_OPTIONS;
use crate::values::http::header_name;
use crate::values::names::is_identifier;

/// The type of a parameter, without `?`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamType {
    /// A string.
    String,
    /// A whole number.
    Int,
    /// A number.
    Float,
    /// True or False.
    Bool,
    /// A list of strings and numbers, or one of them.
    List,
    /// Any value.
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

    fn accepts(self, value: &Value) -> bool {
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

/// Where a parameter goes if the path does not name it.
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

/// The `type` of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParamKind {
    /// The type without `?`.
    pub base: ParamType,
    /// Whether a call may omit it or pass `None`. It is then not sent.
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
                Err(format!(
                    "`{text}` is not a type; use {}, with `?` at its end for an optional parameter",
                    known.join(", ")
                ))
            }
        }
    }
}

impl std::fmt::Display for ParamKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.base.as_str(), if self.optional { "?" } else { "" })
    }
}

impl Serialize for ParamKind {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

/// `[upstreams.NAME.operations.NAME.params.NAME]`: a parameter. A string stands for its `type` alone.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Param {
    /// Type: `"string"`, `"int"`, `"float"`, `"bool"`, `"list"` (strings and numbers, or a single one) or `"any"`. A
    /// `?` at its end makes the parameter optional: a call may omit it or pass `None`, and nothing is sent.
    #[serde(rename = "type")]
    #[schemars(with = "types::ParamTypeText")]
    pub kind: ParamKind,
    /// Value that is sent if the call omits the parameter.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "types::Anything")]
    pub default: Option<Value>,
    /// Where the parameter goes if the path does not name it: `"query"`, `"json"` (a member of the JSON body) or
    /// `"header"`.
    #[serde(rename = "in")]
    #[schemars(with = "types::ParamLocationText")]
    pub location: ParamLocation,
    /// Name in the request. Default: the name of the parameter.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub name: Option<String>,
}

impl Param {
    /// A required parameter with all defaults.
    pub fn new(base: ParamType) -> Param {
        Param { kind: ParamKind { base, optional: false }, default: None, location: ParamLocation::Query, name: None }
    }

    /// Its name in the request; `own` is its name in calls.
    pub fn wire_name<'a>(&'a self, own: &'a str) -> &'a str {
        self.name.as_deref().unwrap_or(own)
    }

    /// Whether a call may omit it.
    pub fn is_optional(&self) -> bool {
        self.kind.optional || self.default.is_some()
    }

    /// Reads one parameter.
    pub(crate) fn read(name: &Located<String>, item: Item<'_, '_>) -> Option<Param> {
        let reader = item.reader;
        if !is_identifier(&name.value) {
            let message = format!("`{}` is not a valid name for a parameter", name.value);
            reader.error_hint(&name.span, message, "use letters, digits and `_`; `name` sets its name in the request");
        } else if OPERATION_CALL_OPTIONS.contains(&name.value.as_str()) {
            let message = format!("`{}` is already an argument of every call", name.value);
            reader.error_hint(&name.span, message, "use another name; `name` sets its name in the request");
        }
        const WHAT: &str = "a type such as \"string\" or \"list?\"";
        if let DeValue::String(_) = item.get() {
            let kind = item.parsed(WHAT, ParamKind::read)?;
            return Some(Param { kind, ..Param::new(kind.base) });
        }
        let mut table = Table::from_item(&item)?;
        let kind = table.parsed("type", WHAT, ParamKind::read).map(|kind| kind.value);
        if !table.has("type") {
            table.missing("type", "write type = \"string\"");
        }
        let locations =
            [("query", ParamLocation::Query), ("json", ParamLocation::Json), ("header", ParamLocation::Header)];
        let location = table.choice("in", &locations).unwrap_or_default();
        let wire = table.string("name");
        if wire.as_deref() == Some("") {
            table.error("name", "must not be empty");
        }
        let default = table.json("default");
        if let (Some(kind), Some(default)) = (kind, &default) {
            if !kind.base.accepts(default) {
                table.error("default", format_args!("does not match the type, {}", kind.base.as_str()));
            } else if kind.optional {
                table.error("default", "cannot be combined with a type with `?`; remove one of them");
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
