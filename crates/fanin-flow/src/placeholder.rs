//! The placeholder for an upstream whose configuration is invalid, so that `check` can check the flows that use it.

use fanin_lang::{Effect, HostObject, Method, Value};

/// An upstream that has every method. No flow ever runs with it.
pub(crate) struct Placeholder {
    name: String,
}

impl Placeholder {
    pub(crate) fn new(name: &str) -> Placeholder {
        Placeholder { name: name.to_owned() }
    }
}

impl HostObject for Placeholder {
    fn type_name(&self) -> &str {
        "upstream"
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn method(&self, _name: &str, _literal: &dyn Fn(&str) -> Option<Value>) -> Option<Method> {
        Some(Method { id: 0, effect: Effect::Read })
    }

    fn names(&self) -> Vec<&str> {
        Vec::new()
    }
}
