//! Whether a call is an effect.

use fanin_lang::{Effect, Value};

/// The effect of a method with these literal arguments.
pub(crate) fn effect(writes: bool, literal: &dyn Fn(&str) -> Option<Value>) -> Effect {
    let is_true = |name| matches!(literal(name), Some(Value::Bool(true)));
    if !writes || is_true("safe") || is_true("unordered") { Effect::Read } else { Effect::Write }
}
