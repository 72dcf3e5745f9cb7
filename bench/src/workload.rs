//! The three workloads: their requests and their correct answers.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};

use crate::load;
use crate::stub;

/// A workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Workload {
    /// Five parallel calls of 1 KB after 5 ms, merged.
    Page,
    /// Twenty ids after 5 ms, then 10 KB after 5 ms.
    Search,
    /// One call of 1 KB without delay, passed on.
    Raw,
}

impl Workload {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Page, Self::Search, Self::Raw];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Page => "page",
            Self::Search => "search",
            Self::Raw => "raw",
        }
    }

    /// The request's target.
    pub fn target(self) -> &'static str {
        match self {
            Self::Page => "/page/12345",
            Self::Search => "/search?q=x",
            Self::Raw => "/raw",
        }
    }

    /// The value of a right answer.
    pub fn answer(self) -> Value {
        let value = |body: Vec<u8>| serde_json::from_slice(&body).unwrap_or_default();
        match self {
            Self::Page => {
                stub::PAGE_KEYS.map(|key| (key.to_string(), value(stub::item(key, 1024)))).into_iter().collect()
            }
            Self::Search => value(stub::vacancies()),
            Self::Raw => value(stub::item('f', 1024)),
        }
    }

    /// No right answer's body is shorter: the value without a space, and what a peer may lawfully shorten (`1.0` to `1`).
    pub fn least_body(self) -> usize {
        self.answer().to_string().len() * 9 / 10
    }

    /// Asks once and compares the whole answer; `wrap` makes of the right value what this server wraps it in.
    pub fn verify(self, addr: SocketAddr, request: &[u8], wrap: fn(Self, Value) -> Value) -> Result<(), String> {
        let (status, body) =
            load::once(addr, request, Duration::from_secs(10)).map_err(|error| format!("{}: {error}", self.name()))?;
        let value: Value = serde_json::from_slice(&body).unwrap_or_default();
        if status != 200 || !same(&value, &wrap(self, self.answer())) {
            let body = String::from_utf8_lossy(&body[..body.len().min(300)]).into_owned();
            return Err(format!("{}: wrong answer, status {status}: {body}", self.name()));
        }
        Ok(())
    }
}

/// The right value as it is.
pub fn bare(_: Workload, value: Value) -> Value {
    value
}

/// The right value as a GraphQL server has to wrap it.
pub fn graphql(work: Workload, value: Value) -> Value {
    match work {
        Workload::Page => json!({ "data": value }),
        Workload::Search => json!({ "data": { "search": { "vacancies": value } } }),
        Workload::Raw => json!({ "data": { "raw": value } }),
    }
}

/// Equal but for how a number is written: peers that decode turn `0.0` into `0`.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        _ => a == b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_differ_by_more_than_notation() {
        assert!(same(&json!({"a": [1, 2.0]}), &json!({"a": [1.0, 2]})));
        assert!(!same(&json!({"a": [1, 2]}), &json!({"a": [1]})));
        assert!(!same(&json!({"a": 1}), &json!({"a": "1"})));
        assert!(!same(&json!({"a": 1, "b": 2}), &json!({"a": 1})));
        assert_eq!(Workload::Page.answer()["e"]["kind"], "e");
        assert!(Workload::Search.least_body() > 9_000);
    }
}
