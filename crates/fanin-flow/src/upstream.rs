//! What `load("@upstreams", "catalog")` gives: methods for HTTP's verbs and for the upstream's operations.

use std::sync::Arc;

use fanin_config::Operation;
use fanin_lang::{Effect, HostObject, Method, Value};
use fanin_upstream::Upstream;
use http::Method as Verb;

/// The verbs of every upstream. Their place here is their number.
const VERBS: [(&str, Verb); 6] = [
    ("get", Verb::GET),
    ("head", Verb::HEAD),
    ("post", Verb::POST),
    ("put", Verb::PUT),
    ("patch", Verb::PATCH),
    ("delete", Verb::DELETE),
];

/// An upstream, as flows hold it.
pub(crate) struct UpstreamObject {
    pub(crate) upstream: Arc<Upstream>,
    operations: Vec<(String, Operation)>,
}

/// What a method of an upstream sends.
pub(crate) enum Target<'a> {
    /// A verb: the path is the call's first argument.
    Verb(&'a Verb),
    /// An operation of the configuration: arguments are named as its parameters.
    Operation(&'a Operation),
}

impl UpstreamObject {
    pub(crate) fn new(upstream: Arc<Upstream>) -> UpstreamObject {
        let operations = upstream.config().operations.iter().map(|(name, it)| (name.clone(), it.clone())).collect();
        UpstreamObject { upstream, operations }
    }

    /// The target with this number; numbers come from [`HostObject::method`].
    pub(crate) fn target(&self, id: u32) -> Option<Target<'_>> {
        let id = id as usize;
        match VERBS.get(id) {
            Some((_, verb)) => Some(Target::Verb(verb)),
            None => self.operations.get(id - VERBS.len()).map(|(_, operation)| Target::Operation(operation)),
        }
    }

    /// The worst that a method of this name can do, `None` if there is none.
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
        // An operation may bear a verb's name; it is the more special one.
        let (id, safe) = match self.operations.iter().position(|(other, _)| other == name) {
            Some(at) => {
                let operation = &self.operations[at].1;
                (VERBS.len() + at, operation.safe.unwrap_or(operation.method.is_safe()))
            }
            None => {
                let at = VERBS.iter().position(|(verb, _)| *verb == name)?;
                (at, VERBS[at].1.is_safe())
            }
        };
        let reads = safe || is_true(literal("safe")) || is_true(literal("unordered"));
        Some(Method { id: id as u32, effect: if reads { Effect::Read } else { Effect::Write } })
    }

    fn names(&self) -> Vec<&str> {
        self.operations.iter().map(|(name, _)| name.as_str()).chain(VERBS.iter().map(|(name, _)| *name)).collect()
    }
}
