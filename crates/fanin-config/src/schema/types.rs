//! Types of the JSON Schema: durations, sizes, addresses and so on.

use std::borrow::Cow;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use crate::values::http::{METHODS, REQUEST_ID_HEADERS};

/// A string with an environment variable. It may stand for a value of any type.
pub(crate) fn variable() -> Value {
    json!({ "type": "string", "pattern": r"\$\{" })
}

/// Defines a type of the schema, inlined wherever it is used.
macro_rules! leaf {
    ($(#[$doc:meta])* $name:ident, $schema:expr) => {
        $(#[$doc])*
        pub(crate) struct $name;
        impl schemars::JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                $schema
            }
        }
    };
}
pub(crate) use leaf;

leaf!(
    /// Any string.
    Text,
    json_schema!({ "type": "string" })
);
leaf!(
    /// `"off"`.
    Off,
    json_schema!({ "const": "off" })
);
leaf!(
    /// true or false.
    Flag,
    json_schema!({ "anyOf": [{ "type": "boolean" }, variable()] })
);
leaf!(
    /// `"100ms"`.
    DurationText,
    json_schema!({
        "type": "string",
        "pattern": r"^\s*(0|([0-9]+(\.[0-9]+)?(d|h|ms|m|s|us|ns))+)\s*$|\$\{",
        "x-type": "duration"
    })
);
leaf!(
    /// `"127.0.0.1:8080"`.
    Address,
    json_schema!({ "type": "string", "pattern": r":[0-9]+$|\$\{", "x-type": "address" })
);
leaf!(
    /// `"http://host:port/base"`.
    UrlText,
    json_schema!({ "type": "string", "pattern": r"^https?://|\$\{", "x-type": "url" })
);
leaf!(
    /// Versions of a model.
    ModelVersions,
    json_schema!({
        "anyOf": [
            { "const": "latest" },
            { "type": "integer", "minimum": 1 },
            { "type": "array", "items": { "type": "integer", "minimum": 0 }, "minItems": 1 },
            variable(),
        ],
    })
);
leaf!(
    /// An HTTP method.
    MethodText,
    json_schema!({
        "anyOf": [{ "enum": METHODS }, variable()],
        "x-type": "method"
    })
);
leaf!(
    /// A route's path.
    PathPattern,
    json_schema!({ "type": "string", "pattern": r"^/|\$\{", "x-type": "path pattern" })
);
leaf!(
    /// An operation's path.
    PathTemplate,
    json_schema!({ "type": "string", "pattern": r"^/|\$\{", "x-type": "path template" })
);
leaf!(
    /// `"file.star:function"`.
    FlowText,
    json_schema!({ "type": "string", "pattern": r"^.+\.star:[A-Za-z_][A-Za-z0-9_]*$|\$\{", "x-type": "file:function" })
);
leaf!(
    /// `"99 % < 200ms"`.
    ObjectiveText,
    json_schema!({ "type": "string", "pattern": r"^\s*[0-9.]+\s*%\s*<\s*[0-9].*$|\$\{", "x-type": "objective" })
);
leaf!(
    /// `"2 + 3n"`.
    SumText,
    json_schema!({ "type": "string", "pattern": r"^\s*[0-9n][0-9n^*+\s]*$|\$\{", "x-type": "sum" })
);
leaf!(
    /// What happens when the client leaves.
    DisconnectText,
    json_schema!({ "anyOf": [{ "enum": ["effect", "cancel", "finish"] }, variable()] })
);
leaf!(
    /// `"text"` or `"json"`.
    LogFormatText,
    json_schema!({ "anyOf": [{ "enum": ["text", "json"] }, variable()] })
);
leaf!(
    /// `"refuse"`, `"keep"` or `"decode"`.
    RequestSlashesText,
    json_schema!({ "anyOf": [{ "enum": ["refuse", "keep", "decode"] }, variable()] })
);
leaf!(
    /// How important.
    PriorityText,
    json_schema!({ "anyOf": [{ "enum": ["critical", "normal", "low", "background"] }, variable()] })
);
leaf!(
    /// `"10.0.0.0/8"`.
    NetworkText,
    json_schema!({ "type": "string", "pattern": r"^[0-9a-fA-F.:]+(/[0-9]+)?$|\$\{", "x-type": "address or network" })
);
leaf!(
    /// `"shop.example.com"`.
    HostText,
    json_schema!({ "type": "string", "pattern": r"^(\*\.)?[A-Za-z0-9_.-]+$|^\[[0-9a-fA-F:.]+\]$|\$\{", "x-type": "host" })
);
leaf!(
    /// A header for ids of requests.
    RequestIdText,
    json_schema!({ "anyOf": [{ "enum": REQUEST_ID_HEADERS }, variable()], "x-type": "header" })
);
leaf!(
    /// `"https://shop.example"`.
    OriginText,
    json_schema!({ "type": "string", "pattern": r"^https?://[^/]+$|^\*$|\$\{", "x-type": "origin" })
);
leaf!(
    /// A size, `"auto"` or `"off"`.
    MemoryText,
    json_schema!({
        "anyOf": [
            { "type": "string", "pattern": r"^\s*[0-9]+(\.[0-9]+)?\s*([KkMmGg]?[Ii]?[Bb])?\s*$|^(auto|off)$|\$\{" },
            { "type": "integer", "minimum": 1 << 20 }
        ],
        "x-type": "size, `\"auto\"` or `\"off\"`"
    })
);
leaf!(
    /// `"coroutines"`.
    Coroutines,
    json_schema!({ "const": "coroutines" })
);
leaf!(
    /// `"adaptive"`.
    Adaptive,
    json_schema!({ "const": "adaptive" })
);
leaf!(
    /// A number from 0 to 1.
    Share,
    json_schema!({ "anyOf": [{ "type": "number", "minimum": 0, "maximum": 1 }, variable()] })
);
leaf!(
    /// A number that is not negative.
    Number,
    json_schema!({ "anyOf": [{ "type": "number", "minimum": 0 }, variable()] })
);
leaf!(
    /// `"half"`, `"p95"`, `"30ms"` or `"off"`.
    HedgeText,
    json_schema!({
        "type": "string",
        "pattern": r"^(off|half|p[0-9.]+|([0-9]+(\.[0-9]+)?(d|h|ms|m|s|us|ns))+)$|\$\{",
        "x-type": "`\"half\"`, percentile, duration or `\"off\"`"
    })
);
leaf!(
    /// A parameter's type.
    ParamTypeText,
    json_schema!({
        "type": "string",
        "pattern": r"^(string|int|float|bool|list|any)\??$|\$\{",
        "x-type": "type"
    })
);
leaf!(
    /// Where a parameter goes.
    ParamLocationText,
    json_schema!({ "anyOf": [{ "enum": ["query", "json", "header"] }, variable()] })
);
leaf!(
    /// Any value.
    Anything,
    json_schema!({ "x-type": "any value" })
);

/// A whole number in a range.
pub(crate) struct Count<const MIN: u64, const MAX: u64 = { u64::MAX }>;

impl<const MIN: u64, const MAX: u64> JsonSchema for Count<MIN, MAX> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Count".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let mut integer = json!({ "type": "integer", "minimum": MIN });
        if MAX < u64::MAX {
            integer["maximum"] = MAX.into();
        }
        json_schema!({ "anyOf": [integer, variable()] })
    }
}

/// A number of bytes: text with a unit, or a plain number.
pub(crate) struct Size<const MIN: u64>;

impl<const MIN: u64> JsonSchema for Size<MIN> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Size".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [
                { "type": "string", "pattern": r"^\s*[0-9]+(\.[0-9]+)?\s*([KkMmGg]?[Ii]?[Bb])?\s*$|\$\{" },
                { "type": "integer", "minimum": MIN }
            ],
            "x-type": "size"
        })
    }
}

/// One or the other.
pub(crate) struct Or<A, B>(PhantomData<(A, B)>);

impl<A: JsonSchema, B: JsonSchema> JsonSchema for Or<A, B> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Or".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [generator.subschema_for::<A>(), generator.subschema_for::<B>()] })
    }
}

/// One, or a list of at least one.
pub(crate) struct OneOrMore<T>(PhantomData<T>);

impl<T: JsonSchema> JsonSchema for OneOrMore<T> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "OneOrMore".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let one = generator.subschema_for::<T>();
        json_schema!({ "anyOf": [one, { "type": "array", "items": one, "minItems": 1 }] })
    }
}
