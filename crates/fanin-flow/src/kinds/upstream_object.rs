//! The value of `load("@upstreams", "catalog")`: an upstream with methods for verbs, operations and its snapshot, or with the methods
//! of its kind.

use std::sync::Arc;

use fanin_config::{Operation, UpstreamKind};
use fanin_lang::{CallDiagnostic, Effect, HostObject, Method, StaticArgs, StaticCall, Value};
use fanin_upstream::Upstream;
use http::Method as Verb;

use super::grpc::Grpc;
use super::sql::Sql;
use super::{files, model, operation, static_checks};

/// The verbs of HTTP upstreams. Their index is their number.
const VERBS: [(&str, Verb); 6] = [
    ("get", Verb::GET),
    ("head", Verb::HEAD),
    ("post", Verb::POST),
    ("put", Verb::PUT),
    ("patch", Verb::PATCH),
    ("delete", Verb::DELETE),
];

/// Methods of an upstream with a snapshot.
const LOOKUP: &str = "lookup";
const TABLE: &str = "table";

/// An upstream as a value of flows.
pub(crate) struct UpstreamObject {
    pub(crate) upstream: Arc<Upstream>,
    /// The operations, or the statements of a database.
    operations: Arc<[(String, Operation)]>,
    pub(crate) backend: Arc<Backend>,
}

/// The upstream's kind, with its methods.
pub(crate) enum Backend {
    Http,
    Grpc(Grpc),
    Sql(Sql),
    Files,
    Model,
}

/// What a method of an HTTP upstream calls.
pub(crate) enum Target<'a> {
    /// A verb: the path is the call's first argument.
    Verb(&'a Verb),
    /// A configured operation. Its parameters are the arguments.
    Operation(&'a Operation),
    /// A row of the snapshot: its key is the call's only argument.
    Lookup,
    /// All rows of the snapshot.
    Table,
}

impl UpstreamObject {
    pub(crate) fn new(upstream: Arc<Upstream>) -> UpstreamObject {
        let operations = upstream.config().named_calls().into_iter().collect();
        let backend = match upstream.config().kind() {
            UpstreamKind::Postgres | UpstreamKind::Mysql => Backend::Sql(Sql::new(upstream.config())),
            UpstreamKind::Files => Backend::Files,
            UpstreamKind::Model => Backend::Model,
            UpstreamKind::Http => Backend::Http,
            UpstreamKind::Grpc => match upstream.services() {
                Some(services) => Backend::Grpc(Grpc::new(services.clone())),
                // Every gRPC upstream has services.
                None => Backend::Http,
            },
        };
        UpstreamObject { upstream, operations, backend: Arc::new(backend) }
    }

    /// The same methods of another upstream, which has the same configuration.
    pub(crate) fn of(&self, upstream: Arc<Upstream>) -> UpstreamObject {
        UpstreamObject { upstream, operations: self.operations.clone(), backend: self.backend.clone() }
    }

    /// The target with this number; numbers come from [`HostObject::method`].
    pub(crate) fn target(&self, id: u32) -> Option<Target<'_>> {
        let at = id as usize;
        if let Some((_, verb)) = VERBS.get(at) {
            return Some(Target::Verb(verb));
        }
        match self.operation_of(id) {
            Some(at) => Some(Target::Operation(&self.operations[at].1)),
            None if self.upstream.snapshot().is_none() => None,
            None => match at - VERBS.len() - self.operations.len() {
                0 => Some(Target::Lookup),
                1 => Some(Target::Table),
                _ => None,
            },
        }
    }

    /// The index of the operation with this number, for HTTP upstreams.
    pub(crate) fn operation_of(&self, id: u32) -> Option<usize> {
        (id as usize).checked_sub(VERBS.len()).filter(|at| *at < self.operations.len())
    }

    /// The operation with an index from [`operation_of`](Self::operation_of).
    pub(crate) fn operation(&self, at: usize) -> (&str, &Operation) {
        let (name, operation) = &self.operations[at];
        (name, operation)
    }

    /// Whether its calls share work with others.
    pub(crate) fn merges(&self, at: usize) -> bool {
        let operation = &self.operations[at].1;
        operation.batch.is_some() || operation.cache.is_some() || operation.uses_single_flight()
    }

    /// The method in messages: `catalog.products`.
    pub(crate) fn full_name(&self, id: u32) -> String {
        let method = match (VERBS.get(id as usize), self.operation_of(id)) {
            (Some((verb, _)), _) => verb,
            (None, Some(at)) => self.operations[at].0.as_str(),
            (None, None) => LOOKUP,
        };
        format!("{}.{method}", self.upstream.name())
    }

    /// The effect of a method with this name, in the worst case; `None` if there is none.
    pub(crate) fn effect(&self, name: &str) -> Option<Effect> {
        self.method(name, &|_| None).map(|method| method.effect)
    }
}

fn is_true(value: Option<Value>) -> bool {
    matches!(value, Some(Value::Bool(true)))
}

impl HostObject for UpstreamObject {
    fn type_name(&self) -> &str {
        "upstream"
    }

    fn name(&self) -> &str {
        self.upstream.name()
    }

    fn method(&self, name: &str, literal: &dyn Fn(&str) -> Option<Value>) -> Option<Method> {
        match &*self.backend {
            Backend::Http => {}
            Backend::Grpc(grpc) => return grpc.method(name, literal),
            Backend::Sql(sql) => return sql.method(name, literal),
            Backend::Files => return files::method(name),
            Backend::Model => return model::method(name),
        }
        // An operation with a verb's name takes precedence.
        let (id, safe) = match self.operations.iter().position(|(other, _)| other == name) {
            Some(at) => (VERBS.len() + at, self.operations[at].1.is_safe()),
            None => match VERBS.iter().position(|(verb, _)| *verb == name) {
                Some(at) => (at, VERBS[at].1.is_safe()),
                None if self.upstream.snapshot().is_some() => {
                    let at = [LOOKUP, TABLE].iter().position(|method| *method == name)?;
                    (VERBS.len() + self.operations.len() + at, true)
                }
                None => return None,
            },
        };
        let reads = safe || is_true(literal("safe")) || is_true(literal("unordered"));
        Some(Method { id: id as u32, effect: if reads { Effect::Read } else { Effect::Write } })
    }

    fn verify(&self, method: u32, args: &StaticArgs<'_>) -> Option<(String, Option<String>)> {
        match &*self.backend {
            Backend::Http => {}
            Backend::Grpc(grpc) => return grpc.check_static(self.name(), method, args),
            Backend::Sql(sql) => return sql.check_static(self.name(), method, args),
            Backend::Files => return None,
            Backend::Model => return model::check_static(self.name(), args),
        }
        let declared = self.operations[self.operation_of(method)?].1.params.as_ref()?;
        operation::check_static(&self.full_name(method), declared, args.positional, args.names, args.open)
    }

    fn check(&self, method: &str, call: &StaticCall<'_>) -> Vec<CallDiagnostic> {
        match &*self.backend {
            Backend::Http => {}
            Backend::Grpc(grpc) => return grpc.check(self.name(), method, call),
            Backend::Sql(_) | Backend::Files | Backend::Model => {
                return static_checks::stream_of_other_kind(self.name(), call);
            }
        }
        if let Some((name, operation)) = self.operations.iter().find(|(name, _)| name == method) {
            return static_checks::operation(self.name(), name, operation, call);
        }
        match VERBS.iter().find(|(verb, _)| *verb == method) {
            Some((_, verb)) => static_checks::verb(self.name(), self.upstream.config().escaped_slashes, verb, call),
            None => Vec::new(),
        }
    }

    fn names(&self) -> Vec<&str> {
        match &*self.backend {
            Backend::Http => {}
            Backend::Grpc(grpc) => return grpc.names(),
            Backend::Sql(sql) => return sql.names().collect(),
            Backend::Files => return files::METHODS.to_vec(),
            Backend::Model => return vec![model::INFER],
        }
        let snapshot: &[&str] = if self.upstream.snapshot().is_some() { &[LOOKUP, TABLE] } else { &[] };
        let operations = self.operations.iter().map(|(name, _)| name.as_str());
        operations.chain(snapshot.iter().copied()).chain(VERBS.iter().map(|(name, _)| *name)).collect()
    }
}
