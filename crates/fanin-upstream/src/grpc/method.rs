//! Methods of services, and the messages that they take and give.

use std::fmt;

use http::uri::PathAndQuery;
use indexmap::IndexMap;
use prost_reflect::prost_types::method_options::IdempotencyLevel;
use prost_reflect::{MessageDescriptor, MethodDescriptor, ServiceDescriptor};

use super::shape::nearest;

/// A method of a service.
#[derive(Clone)]
pub struct Method {
    path: PathAndQuery,
    pub(super) name: String,
    input: MessageDescriptor,
    output: MessageDescriptor,
    is_client_streaming: bool,
    is_server_streaming: bool,
    safe: bool,
}

impl fmt::Debug for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.full_name())
    }
}

impl Method {
    fn new(method: &MethodDescriptor, safe: &[String]) -> Option<Method> {
        let service = method.parent_service().full_name().to_owned();
        let options = method.method_descriptor_proto().options.as_ref();
        let level = options.and_then(|options| options.idempotency_level);
        let full = format!("{service}/{}", method.name());
        Some(Method {
            // Names of services and methods are identifiers with dots.
            path: PathAndQuery::try_from(format!("/{full}")).ok()?,
            name: method.name().to_owned(),
            input: method.input(),
            output: method.output(),
            is_client_streaming: method.is_client_streaming(),
            is_server_streaming: method.is_server_streaming(),
            safe: level == Some(IdempotencyLevel::NoSideEffects as i32) || is_safe(safe, &full),
        })
    }

    /// `package.Service/Method`.
    pub fn full_name(&self) -> &str {
        &self.path.as_str()[1..]
    }

    /// The method's own name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The message that it takes, or of whose stream it takes.
    pub fn input(&self) -> &MessageDescriptor {
        &self.input
    }

    /// Whether it takes a stream of messages: a list in flows.
    pub fn is_client_streaming(&self) -> bool {
        self.is_client_streaming
    }

    /// Whether it returns a stream of messages: a list in flows.
    pub fn is_server_streaming(&self) -> bool {
        self.is_server_streaming
    }

    /// Whether it changes nothing, so that it may be called more than once.
    pub fn is_safe(&self) -> bool {
        self.safe
    }

    pub(crate) fn path(&self) -> &PathAndQuery {
        &self.path
    }

    pub(crate) fn output(&self) -> &MessageDescriptor {
        &self.output
    }
}

/// Whether a list of safe methods and services contains this method.
pub(crate) fn is_safe(safe: &[String], full: &str) -> bool {
    let (service, method) = full.split_once('/').unwrap_or((full, ""));
    safe.iter().any(|safe| *safe == *full || *safe == *service || *safe == *method)
}

/// Methods by their full names.
#[derive(Debug, Default)]
pub(crate) struct Methods {
    pub(super) by_name: IndexMap<String, Method>,
}

impl Methods {
    pub fn new(services: impl Iterator<Item = ServiceDescriptor>, safe: &[String]) -> Methods {
        let methods = services.flat_map(|service| service.methods().collect::<Vec<_>>());
        let methods = methods.filter_map(|method| Method::new(&method, safe));
        Methods { by_name: methods.map(|method| (method.full_name().to_owned(), method)).collect() }
    }

    pub fn get(&self, full: &str) -> Option<&Method> {
        self.by_name.get(full)
    }

    /// A message and a hint for an unknown method.
    pub fn unknown_method(&self, full: &str) -> (String, Option<String>) {
        let near = nearest(full, self.by_name.keys().map(String::as_str));
        (format!("there is no method {full}"), near.map(|near| format!("did you mean {near}?")))
    }
}
