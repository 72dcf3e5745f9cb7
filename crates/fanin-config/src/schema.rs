//! JSON Schema of fanin.toml: the texts and numbers of the file as types, and the whole.

use std::borrow::Cow;
use std::marker::PhantomData;
use std::time::Duration;

use http::Method;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde_json::{Map, Value, json};
use url::Url;

use crate::limit::AdaptiveLimit;
use crate::{
    Batch, Breaker, Cache, Config, FlowLimits, FlowRef, ModelSettings, Models, Param, ParamType, Retry, Route, Server,
    Snapshot, StatementBatch, Threads, Upstream,
};

/// Text that names an environment variable stands for any other value.
fn variable() -> Value {
    json!({ "type": "string", "pattern": r"\$\{" })
}

/// A type of the file's texts, inlined wherever it is used.
macro_rules! leaf {
    ($(#[$doc:meta])* $name:ident, $schema:expr) => {
        $(#[$doc])*
        pub(crate) struct $name;
        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                $schema
            }
        }
    };
}

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
        "anyOf": [{ "enum": crate::read::METHODS }, variable()],
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
    /// How lists are sent.
    QueryListsText,
    json_schema!({ "anyOf": [{ "enum": ["repeat", "comma"] }, variable()] })
);
leaf!(
    /// What happens when the client leaves.
    DisconnectText,
    json_schema!({ "anyOf": [{ "enum": ["effect", "cancel", "finish"] }, variable()] })
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
leaf!(
    /// `"postgres://user@host/database"`.
    PostgresText,
    json_schema!({ "type": "string", "pattern": r"^postgres(ql)?://|\$\{", "x-type": "url" })
);
leaf!(
    /// `"mysql://user@host/database"`.
    MysqlText,
    json_schema!({ "type": "string", "pattern": r"^(mysql|mariadb)://|\$\{", "x-type": "url" })
);
leaf!(
    /// What becomes of a statement's rows.
    RowsText,
    json_schema!({ "anyOf": [{ "enum": ["many", "one"] }, variable()] })
);
leaf!(
    /// How 64-bit integers are shown.
    Int64Text,
    json_schema!({ "anyOf": [{ "enum": ["string", "number"] }, variable()] })
);
leaf!(
    /// Which names fields have.
    FieldNamesText,
    json_schema!({ "anyOf": [{ "enum": ["json", "proto"] }, variable()] })
);
leaf!(
    /// HTTP version.
    HttpVersionText,
    json_schema!({ "anyOf": [{ "enum": ["1", "2"] }, variable()] })
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

impl Config {
    /// The JSON Schema of `fanin.toml` (draft 2020-12), for editors and for the documentation. Every key has its
    /// description and, where there is one, its default.
    pub fn json_schema() -> Value {
        let root = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<Config>();
        let mut root = root.to_value();
        root["title"] = "fanin.toml".into();
        strict(&mut root, &[], &json!({}));

        let sections = &mut root["$defs"];
        let limits = value(&FlowLimits::default());
        strict(&mut sections["Server"], &[], &value(&Server::default()));
        let models = value(&Models::new(""));
        strict(&mut sections["Models"], &["repository"], &without(models, &["repository", "listen", "settings"]));
        strict(&mut sections["ModelSettings"], &[], &value(&ModelSettings::default()));
        strict(&mut sections["ServerTls"], &["cert", "key"], &json!({}));
        strict(&mut sections["FlowLimits"], &[], &limits);
        strict(&mut sections["ClientTls"], &[], &json!({}));
        let statement = json!({ "params": [], "writes": false, "rows": "many" });
        strict(&mut sections["Statement"], &["sql"], &statement);
        let batch = without(value(&StatementBatch::new("", "")), &["key", "match"]);
        strict(&mut sections["StatementBatch"], &["key", "match"], &batch);
        strict(&mut sections["Operation"], &["path"], &json!({ "method": "GET", "ok": [] }));
        strict(&mut sections["Param"], &["type"], &without(value(&Param::new(ParamType::Any)), &["type"]));
        strict(&mut sections["Batch"], &["key"], &without(value(&Batch::new("")), &["key"]));
        strict(&mut sections["Cache"], &["ttl"], &without(value(&Cache::new(Duration::ZERO)), &["ttl"]));
        strict(&mut sections["Snapshot"], &["path"], &without(value(&Snapshot::new("")), &["path"]));
        strict(&mut sections["AdaptiveLimit"], &[], &value(&AdaptiveLimit::default()));
        strict(&mut sections["Threads"], &[], &value(&Threads::default()));
        strict(&mut sections["Retry"], &[], &value(&Retry::default()));
        strict(&mut sections["Breaker"], &[], &value(&Breaker::default()));
        // `max_connections` depends on `http`; its description says how.
        let upstream = Url::parse("http://localhost").map(|url| value(&Upstream::new("", url)));
        strict(
            &mut sections["Upstream"],
            &[],
            &without(
                upstream.unwrap_or_default(),
                &["urls", "limit", "connect_timeout", "idle_timeout", "max_connections", "retry", "breaker"],
            ),
        );
        sections["Upstream"]["properties"]["url"] = json!({
            "description": "Base URL of the only endpoint (`http` or `https`). A call's path is appended to the URL's path.",
            "type": "string",
            "pattern": r"^https?://|\$\{",
            "x-type": "url",
        });
        sections["Upstream"]["oneOf"] = ["url", "urls", "grpc", "postgres", "mysql", "files", "model"]
            .map(|key| json!({ "required": [key] }))
            .as_slice()
            .into();

        // Keys of [flow] may stand on a route too; their default is then what [flow] says.
        let mut on_route = sections["FlowLimits"]["properties"].clone();
        let mut inherited = vec!["path", "flow", "limit", "max_waiting", "max_body"];
        for (key, schema) in on_route.as_object_mut().into_iter().flatten() {
            *schema = without(schema.take(), &["default"]);
            sections["Route"]["properties"][key.as_str()] = schema.clone();
        }
        inherited.extend(limits.as_object().into_iter().flat_map(Map::keys).map(String::as_str));
        let route = value(&Route::new(Method::GET, "", FlowRef::new("", "")));
        strict(&mut sections["Route"], &["path", "flow"], &without(route, &inherited));
        unwrap_lines(&mut root);
        root
    }
}

fn value(of: &impl Serialize) -> Value {
    // As for `Config::masked`: none of these types can fail to serialise.
    serde_json::to_value(of).unwrap_or_default()
}

fn without(mut object: Value, keys: &[&str]) -> Value {
    if let Some(map) = object.as_object_mut() {
        map.retain(|key, _| !keys.contains(&key.as_str()));
    }
    object
}

/// Makes a section's schema refuse unknown keys, need exactly the required ones, and tell the defaults of the others.
fn strict(section: &mut Value, required: &[&str], defaults: &Value) {
    if let Some(section) = section.as_object_mut() {
        section.remove("unevaluatedProperties");
        section.remove("allOf");
    }
    section["additionalProperties"] = false.into();
    section["required"] = required.into();
    for (key, default) in defaults.as_object().into_iter().flatten() {
        if let Some(property) = section["properties"].get_mut(key) {
            property["default"] = default.clone();
        }
    }
}

/// Descriptions are wrapped as the source's comments are; in a schema only paragraphs matter.
fn unwrap_lines(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            if let Some(Value::String(text)) = map.get_mut("description") {
                let paragraphs: Vec<String> =
                    text.split("\n\n").map(|paragraph| paragraph.replace('\n', " ")).collect();
                *text = paragraphs.join("\n\n");
            }
            map.values_mut().for_each(unwrap_lines);
        }
        Value::Array(items) => items.iter_mut().for_each(unwrap_lines),
        _ => {}
    }
}
