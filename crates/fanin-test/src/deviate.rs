//! Deviations: what one request is answered instead of what its stub says.

use std::cell::{Cell, RefCell};

use serde_json::Value as Json;

use crate::pattern::Pattern;
use crate::stub::{AnswerSpec, split};
use fanin_upstream::StubRequest;

/// One `deviate(...)`.
pub(crate) struct Deviation {
    pub(crate) upstream: String,
    /// The method, operation or statement; any, if it is for a whole upstream.
    pub(crate) method: Option<String>,
    pub(crate) path: Option<Pattern>,
    /// Which of the requests that fit, from 1; all of them if `None`.
    pub(crate) number: Option<u64>,
    /// What it says replaces what the stub says.
    pub(crate) spec: AnswerSpec,
    /// What is changed in the stub's answer.
    pub(crate) edits: Vec<Edit>,
    /// How many requests have fitted so far.
    pub(crate) seen: Cell<u64>,
}

/// A change of a body. A path is keys with dots; `*` stands for all items of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Edit {
    /// The key is not there.
    Without(String),
    /// The key has this value.
    Replace(String, Json),
}

impl Deviation {
    /// Whether this request is the one. Counts those that fit.
    fn takes(&self, request: &StubRequest, method: &str) -> bool {
        let (path, _) = split(&request.path_and_query);
        let fits = self.upstream == *request.upstream
            && self.method.as_ref().is_none_or(|own| own == method)
            && self.path.as_ref().is_none_or(|own| own.find(path).is_some());
        if !fits {
            return false;
        }
        self.seen.set(self.seen.get() + 1);
        self.number.is_none_or(|number| number == self.seen.get())
    }
}

/// All deviations of a test, in their order.
#[derive(Default)]
pub(crate) struct Deviations(pub(crate) RefCell<Vec<Deviation>>);

impl Deviations {
    /// What is said about a request: answers, and edits of the answer that holds.
    pub(crate) fn of(&self, request: &StubRequest, method: &str) -> Vec<(AnswerSpec, Vec<Edit>)> {
        let all = self.0.borrow();
        let taken = all.iter().filter(|one| one.takes(request, method));
        taken.map(|one| (one.spec.clone(), one.edits.clone())).collect()
    }

    /// The upstreams that have deviations, each once, in order.
    pub(crate) fn upstreams(&self) -> Vec<String> {
        let mut names: Vec<String> = self.0.borrow().iter().map(|one| one.upstream.clone()).collect();
        names.sort();
        names.dedup();
        names
    }
}

impl Edit {
    /// Changes a body. A path that is not there changes nothing.
    ///
    /// # Errors
    /// A body that is no JSON.
    pub(crate) fn apply(&self, body: &[u8]) -> Result<Vec<u8>, String> {
        let mut whole: Json = serde_json::from_slice(body)
            .map_err(|error| format!("the answer is no JSON to take a key from: {error}"))?;
        let (path, value) = match self {
            Edit::Without(path) => (path, None),
            Edit::Replace(path, value) => (path, Some(value)),
        };
        let keys: Vec<&str> = path.split('.').collect();
        change(&mut whole, &keys, value);
        Ok(whole.to_string().into_bytes())
    }
}

fn change(at: &mut Json, keys: &[&str], to: Option<&Json>) {
    let Some((key, rest)) = keys.split_first() else { return };
    match at {
        Json::Array(items) if *key == "*" => {
            for item in items {
                match (rest.is_empty(), to) {
                    (true, Some(value)) => *item = value.clone(),
                    (true, None) => {}
                    (false, _) => change(item, rest, to),
                }
            }
        }
        Json::Object(members) if rest.is_empty() => match to {
            None => _ = members.remove(*key),
            Some(value) => {
                if let Some(member) = members.get_mut(*key) {
                    *member = value.clone();
                }
            }
        },
        Json::Object(members) => {
            if let Some(member) = members.get_mut(*key) {
                change(member, rest, to);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn bodies_are_changed_at_a_path() {
        let body = json!({"ids": [1, 2], "items": [{"a": 1, "b": 2}, {"a": 3}], "deep": {"x": {"y": 1}}});
        let after = |edit: Edit| {
            let text = edit.apply(body.to_string().as_bytes()).unwrap();
            serde_json::from_slice::<Json>(&text).unwrap()
        };
        let without = |path: &str| after(Edit::Without(path.to_owned()));
        assert_eq!(without("ids"), json!({"items": body["items"], "deep": body["deep"]}));
        assert_eq!(without("items.*.a")["items"], json!([{"b": 2}, {}]));
        assert_eq!(without("deep.x.y")["deep"], json!({"x": {}}));
        assert_eq!(without("nothing.here"), body);
        let replaced = after(Edit::Replace("items.*.a".to_owned(), Json::Null));
        assert_eq!(replaced["items"], json!([{"a": null, "b": 2}, {"a": null}]));
        assert!(Edit::Without("a".to_owned()).apply(b"{").is_err());
    }
}
