//! Headers that a route's responses get, or must not have.

use fanin_config::HeaderRules;
use http::HeaderMap;

/// Applies the rules to what the flow or the server has made.
pub(super) fn apply(rules: &HeaderRules, headers: &mut HeaderMap) {
    for name in &rules.remove {
        headers.remove(name);
    }
    for (name, value) in &rules.set {
        headers.insert(name, value.clone());
    }
}
