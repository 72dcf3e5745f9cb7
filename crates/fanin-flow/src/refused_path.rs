//! The path of a call that was refused, and whether a value is why.

use std::borrow::Cow;

use fanin_config::{EscapedSlashes, check_value};
use fanin_json::{Kind, Node};

use crate::encode;

/// A value or path that cannot be sent. The payload of the failure of a call; it may be the client's fault
/// (`RequestObject::unsafe_value`).
#[derive(Debug)]
pub(crate) struct RefusedPath {
    /// The value, or the whole path.
    pub(crate) text: String,
    /// What its upstream takes.
    pub(crate) slashes: EscapedSlashes,
}

impl RefusedPath {
    /// Whether this value is in the path, and cannot be in one.
    pub(crate) fn is_due_to(&self, value: &str) -> bool {
        self.text.contains(value) && (check_value(value, self.slashes).is_err() || !encode::is_path_text(value))
    }

    /// The first string in a JSON value that the path is refused for. The depth of a body is bounded when it is parsed.
    pub(crate) fn find_in(&self, node: Node<'_>) -> Option<String> {
        match node.kind() {
            Kind::String => node.as_str().filter(|text| self.is_due_to(text)).map(Cow::into_owned),
            Kind::Array => node.elements().find_map(|item| self.find_in(item)),
            Kind::Object => node.entries().find_map(|(key, value)| self.find_in(key).or_else(|| self.find_in(value))),
            _ => None,
        }
    }
}
