//! What upstreams offer to flows, for editors: their methods with parameters, and the fields of gRPC messages.

use fanin_config::{CALL_OPTIONS, OPERATION_CALL_OPTIONS, UpstreamKind};
use fanin_lang::{Globals, HostObject};
use fanin_upstream::Upstreams;
use prost_reflect::{Cardinality, FieldDescriptor, Kind, MessageDescriptor};

use crate::builtins;
use crate::kinds::{Backend, CALL_ARGUMENTS, UpstreamObject};

/// An upstream as flows see it.
#[derive(Debug, Clone)]
pub struct UpstreamDescription {
    /// Its name.
    pub name: String,
    /// Its kind, and where it is.
    pub about: String,
    /// Its methods, operations first.
    pub methods: Vec<MethodDescription>,
}

/// A method of an upstream.
#[derive(Debug, Clone)]
pub struct MethodDescription {
    /// Its name.
    pub name: String,
    /// Name and parameters: `catalog.product(id: string)`.
    pub signature: String,
    /// What it calls: `GET /products/{id}`.
    pub about: String,
    /// Whether a call may change something.
    pub writes: bool,
    /// Names of its own parameters.
    pub params: Vec<String>,
    /// Names of the options that every such call takes.
    pub options: Vec<String>,
    message: Option<MessageDescriptor>,
}

impl MethodDescription {
    /// Names and types of the fields of the method's message, or of one that is reached by fields; empty if that is not known.
    #[must_use]
    pub fn fields(&self, path: &[&str]) -> Vec<(String, String)> {
        let mut at = self.message.clone();
        for name in path {
            at = at.and_then(|message| message.get_field_by_name(name)).and_then(|field| match field.kind() {
                Kind::Message(message) => Some(message),
                _ => None,
            });
        }
        at.map_or_else(Vec::new, |message| {
            message.fields().map(|field| (field.name().to_owned(), type_of(&field))).collect()
        })
    }
}

fn type_of(field: &FieldDescriptor) -> String {
    let one = match field.kind() {
        Kind::Message(message) => message.full_name().to_owned(),
        Kind::Enum(values) => values.full_name().to_owned(),
        other => format!("{other:?}").to_lowercase(),
    };
    match field.cardinality() {
        Cardinality::Repeated if field.is_map() => "map".to_owned(),
        Cardinality::Repeated => format!("repeated {one}"),
        _ => one,
    }
}

/// Names that every flow sees without `load`.
#[must_use]
pub fn globals() -> Globals {
    builtins::globals()
}

/// What all upstreams offer.
#[must_use]
pub fn describe(upstreams: &Upstreams) -> Vec<UpstreamDescription> {
    upstreams.iter().map(|upstream| one(&UpstreamObject::new(upstream.clone()))).collect()
}

fn one(object: &UpstreamObject) -> UpstreamDescription {
    let config = object.upstream.config();
    let about = match config.kind() {
        UpstreamKind::Http => "an HTTP upstream",
        UpstreamKind::Grpc => "a gRPC upstream",
        UpstreamKind::Postgres => "a PostgreSQL database",
        UpstreamKind::Mysql => "a MySQL or MariaDB database",
        UpstreamKind::Files => "a folder of files",
        UpstreamKind::Model => "a model in this process",
    };
    let methods = object.names().iter().map(|name| method(object, name)).collect();
    UpstreamDescription { name: config.name.clone(), about: about.to_owned(), methods }
}

fn method(object: &UpstreamObject, name: &str) -> MethodDescription {
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let writes = object.method(name, &|_| None).is_some_and(|method| method.effect == fanin_lang::Effect::Write);
    let config = object.upstream.config();
    let named = config.named_calls();
    let mut message = None;
    let (shown, about, params, options) = match (&*object.backend, named.get(name)) {
        (Backend::Http, Some(operation)) => {
            let about = format!("{} {}", operation.method, operation.path);
            let (shown, params) = match &operation.params {
                Some(params) => {
                    let shown = params.iter().map(|(name, param)| match &param.default {
                        Some(default) => format!("{name}: {} = {default}", param.kind),
                        None => format!("{name}: {}", param.kind),
                    });
                    (shown.collect::<Vec<_>>(), params.keys().cloned().collect::<Vec<_>>())
                }
                None => {
                    let braces = operation.path.split('{').skip(1);
                    let names: Vec<String> =
                        braces.filter_map(|part| part.split_once('}')).map(|(name, _)| name.to_owned()).collect();
                    (names.clone(), names)
                }
            };
            (shown, about, params, owned(&OPERATION_CALL_OPTIONS))
        }
        (Backend::Http, None) => match name {
            "lookup" => (owned(&["key"]), "A row of the snapshot.".to_owned(), Vec::new(), Vec::new()),
            "table" => (Vec::new(), "All rows of the snapshot.".to_owned(), Vec::new(), Vec::new()),
            verb => {
                let about = format!("{} of a path.", verb.to_uppercase());
                let shown = owned(&["path", "params", "query", "headers", "..."]);
                (shown, about, owned(&["params"]), owned(&CALL_ARGUMENTS))
            }
        },
        (Backend::Sql(_), _) => {
            let statement = config.statements.get(name);
            let params = statement.map(|statement| statement.params.clone()).unwrap_or_default();
            let about = statement.map(|statement| statement.sql.trim().to_owned()).unwrap_or_default();
            (params.clone(), about, params, owned(&CALL_OPTIONS))
        }
        (Backend::Grpc(grpc), _) => {
            let options = [owned(&CALL_OPTIONS), owned(&["metadata", "stream"])].concat();
            match grpc.find(name) {
                Some(method) => {
                    message = Some(method.input().clone());
                    let takes = method.input().full_name();
                    let stream = if method.is_client_streaming() { "a stream of " } else { "" };
                    (vec![format!("{stream}{takes}")], method.full_name().to_owned(), Vec::new(), options)
                }
                None => (owned(&["method", "message"]), "A method by its full name.".to_owned(), Vec::new(), options),
            }
        }
        (Backend::Files, _) => {
            (owned(&["path"]), "Reads below the folder.".to_owned(), Vec::new(), owned(&CALL_OPTIONS))
        }
        (Backend::Model, _) => {
            let params = owned(&["outputs", "version"]);
            (
                owned(&["inputs", "outputs", "version"]),
                "Computes a prediction.".to_owned(),
                params,
                owned(&CALL_OPTIONS),
            )
        }
    };
    let signature = format!("{}.{name}({})", config.name, shown.join(", "));
    MethodDescription { name: name.to_owned(), signature, about, writes, params, options, message }
}
