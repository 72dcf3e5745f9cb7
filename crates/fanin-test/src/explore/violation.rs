//! Something that an exploration has found.

use fanin_trace::CallTrace;

use super::change::Slot;
use crate::stub::split;

/// The name of what the exploration itself asserts.
const ASSERTIONS: &str = "assertions";

/// Something that does not hold.
#[derive(Debug, Clone)]
pub(crate) struct Violation {
    pub(crate) invariant: &'static str,
    pub(crate) what: String,
    /// File and line, if it is one line's fault.
    pub(crate) place: String,
    /// Lines of a test that fail because of it; none if the exploration itself fails.
    pub(crate) lines: Vec<String>,
}

impl Violation {
    /// What makes the exploration fail by itself.
    pub(crate) fn by_itself(what: String) -> Violation {
        Violation { invariant: ASSERTIONS, what, place: String::new(), lines: Vec::new() }
    }

    pub(crate) fn new(invariant: &'static str, what: String, line: String) -> Violation {
        Violation { invariant, what, place: String::new(), lines: vec![line] }
    }
}

/// The calls that a request was for.
pub(super) fn is_for(slot: &Slot, call: &CallTrace) -> bool {
    if slot.upstream != *call.upstream {
        return false;
    }
    match &call.operation {
        Some(operation) => slot.method.as_deref() == Some(&**operation),
        None => {
            let (verb, target) = call.target.split_once(' ').unwrap_or(("", &call.target));
            split(target).0 == slot.path && slot.method.as_ref().is_none_or(|method| method.eq_ignore_ascii_case(verb))
        }
    }
}
