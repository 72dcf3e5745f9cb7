//! The schema of the whole file: sections, required keys, defaults.

use std::time::Duration;

use http::Method;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde_json::{Map, Value, json};
use url::Url;

use crate::auth::{Auth, AuthKind};
use crate::budget::Budget;
use crate::config::Config;
use crate::executor::Threads;
use crate::flow_limits::FlowLimits;
use crate::flow_ref::FlowRef;
use crate::grpc::Grpc;
use crate::models::{ModelSettings, Models};
use crate::otlp::Otlp;
use crate::push::Push;
use crate::rate_limit::RateLimit;
use crate::recorder::Recorder;
use crate::route::Route;
use crate::route_kind::KINDS;
use crate::server::Server;
use crate::server_tls::ServerTls;
use crate::tracing::Tracing;
use crate::upstream::answer_headers::AnswerHeaders;
use crate::upstream::batch::Batch;
use crate::upstream::breaker::Breaker;
use crate::upstream::cache::Cache;
use crate::upstream::keys::Upstream;
use crate::upstream::kind::ENDPOINT_KEYS;
use crate::upstream::limit::AdaptiveLimit;
use crate::upstream::param::{Param, ParamType};
use crate::upstream::retry::Retry;
use crate::upstream::snapshot::Snapshot;
use crate::upstream::statement_batch::StatementBatch;
use crate::upstream::tls::ClientTls;
use crate::web::compression::Compression;
use crate::web::cors::Cors;
use crate::web::folder::Folder;
use crate::web::redirect::Redirect;
use crate::web::request_headers::RequestHeaderRules;
use crate::web::respond::Respond;
use crate::web::response_cache::ResponseCache;
use crate::web::response_headers::HeaderRules;

impl Config {
    /// The JSON Schema of `fanin.toml` (draft 2020-12), for editors and the documentation. Every key has its description
    /// and, if it has one, its default.
    pub fn json_schema() -> Value {
        let root = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<Config>();
        let mut root = root.to_value();
        root["title"] = "fanin.toml".into();
        strict(&mut root, &[], &json!({}));

        let sections = &mut root["$defs"];
        let limits = value(&FlowLimits::default());
        strict(&mut sections["Server"], &[], &value(&Server::default()));
        strict(&mut sections["Push"], &[], &value(&Push::default()));
        strict(&mut sections["Recorder"], &[], &value(&Recorder::default()));
        strict(&mut sections["Grpc"], &[], &value(&Grpc::default()));
        strict(&mut sections["Cors"], &["origins"], &without(value(&Cors::new(Vec::new())), &["origins"]));
        strict(&mut sections["Compression"], &[], &value(&Compression::default()));
        strict(&mut sections["HeaderRules"], &[], &value(&HeaderRules::default()));
        strict(&mut sections["RequestHeaderRules"], &[], &value(&RequestHeaderRules::default()));
        strict(&mut sections["Signing"], &["key_files"], &json!({}));
        strict(&mut sections["AnswerHeaders"], &[], &value(&AnswerHeaders::default()));
        strict(&mut sections["Redirect"], &["to"], &without(value(&Redirect::new("")), &["to"]));
        strict(&mut sections["Respond"], &[], &value(&Respond::default()));
        strict(&mut sections["Folder"], &["path"], &without(value(&Folder::new("")), &["path"]));
        strict(&mut sections["ResponseCache"], &[], &value(&ResponseCache::default()));
        let auth = without(value(&Auth::new(AuthKind::Jwt)), &["kind", "header", "issuers", "audiences", "algorithms"]);
        strict(&mut sections["Auth"], &["kind"], &auth);
        let rate_limit = without(value(&RateLimit::new(1, Duration::from_secs(1))), &["requests", "per", "burst"]);
        strict(&mut sections["RateLimit"], &["requests", "per"], &rate_limit);
        let otlp = without(value(&Otlp::default()), &["endpoint"]);
        strict(&mut sections["Otlp"], &[], &otlp);
        strict(&mut sections["Tracing"], &[], &value(&Tracing::default()));
        let models = value(&Models::new(""));
        strict(&mut sections["Models"], &["repository"], &without(models, &["repository", "listen", "settings"]));
        strict(&mut sections["ModelSettings"], &[], &value(&ModelSettings::default()));
        let tls = without(value(&ServerTls::new("", "")), &["cert", "key"]);
        strict(&mut sections["ServerTls"], &["cert", "key"], &tls);
        strict(&mut sections["ServerCertificate"], &["cert", "key"], &json!({}));
        strict(&mut sections["FlowLimits"], &[], &limits);
        strict(&mut sections["ClientTls"], &[], &value(&ClientTls::default()));
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
        strict(&mut sections["Budget"], &[], &value(&Budget::default()));
        strict(&mut sections["Threads"], &[], &value(&Threads::default()));
        strict(&mut sections["Retry"], &[], &value(&Retry::default()));
        strict(&mut sections["Breaker"], &[], &value(&Breaker::default()));
        // Defaults that depend on the kind or on other keys are in the descriptions.
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
            "description": "Base URL of the endpoint (`http` or `https`): `\"http://search.internal:8080\"`. The path of a call is appended to the path of the URL.",
            "type": "string",
            "pattern": r"^https?://|\$\{",
            "x-type": "url",
        });
        sections["Upstream"]["oneOf"] = ENDPOINT_KEYS.map(|(key, _)| json!({ "required": [key] })).as_slice().into();

        // A route may have the keys of [flow], too. Their default is then the value in [flow].
        let mut on_route = sections["FlowLimits"]["properties"].clone();
        let mut inherited = vec![
            "path",
            "flow",
            "limit",
            "max_waiting",
            "max_body",
            "cors",
            "compression",
            "request_headers",
            "response_headers",
        ];
        for (key, schema) in on_route.as_object_mut().into_iter().flatten() {
            *schema = without(schema.take(), &["default"]);
            sections["Route"]["properties"][key.as_str()] = schema.clone();
        }
        inherited.extend(limits.as_object().into_iter().flat_map(Map::keys).map(String::as_str));
        let route = value(&Route::new(Method::GET, "", FlowRef::new("", "")));
        strict(&mut sections["Route"], &[], &without(route, &inherited));
        sections["Route"]["anyOf"] = json!([{ "required": ["path"] }, { "required": ["grpc"] }]);
        sections["Route"]["oneOf"] = KINDS.map(|key| json!({ "required": [key] })).as_slice().into();
        unwrap_lines(&mut root);
        root
    }
}

fn value(of: &impl Serialize) -> Value {
    // Serialisation of these types cannot fail: they are strings, numbers, lists and tables with string keys.
    serde_json::to_value(of).unwrap_or_default()
}

fn without(mut object: Value, keys: &[&str]) -> Value {
    if let Some(map) = object.as_object_mut() {
        map.retain(|key, _| !keys.contains(&key.as_str()));
    }
    object
}

/// Makes a section refuse unknown keys, require exactly these keys, and state the defaults of the others.
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

/// Joins the wrapped lines of descriptions; paragraphs stay.
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
