//! What of a response may differ.

use std::collections::BTreeSet;

use serde_json::Value;

/// What of a response may differ.
#[derive(Debug, Clone, Default)]
pub struct Ignore {
    headers: BTreeSet<String>,
    json: Vec<Vec<String>>,
}

impl Ignore {
    /// Adds a rule: the name of a header, or `json:` and a place such as `json:items.*.age` or `json:**.generated_at`.
    ///
    /// # Errors
    /// It is neither.
    pub fn add(&mut self, rule: &str) -> Result<(), String> {
        match rule.strip_prefix("json:") {
            Some(place) => {
                let steps: Vec<String> = place.split('.').map(str::to_owned).collect();
                if steps.iter().any(String::is_empty) || steps.last().is_some_and(|last| last == "**") {
                    return Err(format!("{rule:?} is no place: write json: and names with dots between them"));
                }
                self.json.push(steps);
            }
            None => {
                let is_name = http::HeaderName::from_bytes(rule.as_bytes()).is_ok();
                if !is_name {
                    return Err(format!(
                        "{rule:?} is neither the name of a header nor a place such as json:items.*.age"
                    ));
                }
                self.headers.insert(rule.to_ascii_lowercase());
            }
        }
        Ok(())
    }

    pub(crate) fn has_header(&self, name: &str) -> bool {
        self.headers.contains(name)
    }

    /// Removes from a body what may differ.
    pub(crate) fn apply(&self, value: &mut Value) {
        self.json.iter().for_each(|place| remove(value, place));
    }
}

fn remove(value: &mut Value, place: &[String]) {
    let Some((step, rest)) = place.split_first() else { return };
    match value {
        // Elements are at the place of their list.
        Value::Array(all) => all.iter_mut().for_each(|one| remove(one, place)),
        Value::Object(members) => match step.as_str() {
            "**" => {
                remove_here(members, rest);
                members.values_mut().for_each(|one| remove(one, place));
            }
            _ => remove_here(members, place),
        },
        _ => {}
    }
}

fn remove_here(members: &mut serde_json::Map<String, Value>, place: &[String]) {
    let Some((step, rest)) = place.split_first() else { return };
    match (step.as_str(), rest.is_empty()) {
        ("*", true) => members.clear(),
        ("*", false) => members.values_mut().for_each(|one| remove(one, rest)),
        (name, true) => drop(members.remove(name)),
        (name, false) => {
            if let Some(one) = members.get_mut(name) {
                remove(one, rest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn places_are_removed() {
        let left = |rule: &str, mut value: Value| {
            let mut ignore = Ignore::default();
            ignore.add(rule).unwrap();
            ignore.apply(&mut value);
            value
        };
        assert_eq!(left("json:a", json!({"a": 1, "b": {"a": 2}})), json!({"b": {"a": 2}}));
        assert_eq!(left("json:**.a", json!({"a": 1, "b": [{"a": 2, "c": 3}]})), json!({"b": [{"c": 3}]}));
        assert_eq!(left("json:b.*.a", json!({"b": {"x": {"a": 2, "c": 3}}})), json!({"b": {"x": {"c": 3}}}));
        assert_eq!(left("json:a.b", json!([{"a": {"b": 1}}, 5])), json!([{"a": {}}, 5]));
    }

    #[test]
    fn rules_that_are_none_are_refused() {
        for wrong in ["", "a b", "json:", "json:a..b", "json:a.**"] {
            assert!(Ignore::default().add(wrong).is_err(), "{wrong}");
        }
        let mut ignore = Ignore::default();
        ignore.add("ETag").unwrap();
        assert!(ignore.has_header("etag"));
    }
}
