//! What of one request differs: its response, its calls, its effects.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use bytes::Bytes;
use fanin_flow::RecordedCall;
use fanin_recording::{Call, Request};
use http::{HeaderMap, StatusCode};
use rustc_hash::FxHasher;
use serde_json::Value;

use super::answers::Wanted;
use super::effect::Effect;
use super::ignore::Ignore;
use super::player::is_unsent_name;
use crate::difference;

/// Lines of one difference at most.
const MAX_LINES: usize = 12;

/// What differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// It made a call that the recording does not have.
    Missing,
    /// The status.
    Status,
    /// Headers of the response.
    Headers,
    /// The body of the response.
    Body,
    /// Calls whose effects differ.
    Effects,
    /// Other calls.
    Calls,
}

impl What {
    /// All of them.
    pub const ALL: [What; 6] = [What::Missing, What::Status, What::Headers, What::Body, What::Effects, What::Calls];

    /// In a word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            What::Missing => "missing",
            What::Status => "status",
            What::Headers => "headers",
            What::Body => "body",
            What::Effects => "effects",
            What::Calls => "calls",
        }
    }
}

/// How a request differs.
#[derive(Debug, Clone)]
pub struct Difference {
    /// Its number in the recording, from 0.
    pub request: usize,
    /// Method and target.
    pub shown: String,
    /// Its route.
    pub route: String,
    /// What differs.
    pub what: Vec<What>,
    /// The differences in words.
    pub lines: Vec<String>,
}

/// A response of a replay.
pub(crate) struct Got {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// Collects what differs.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) what: Vec<What>,
    pub(crate) lines: Vec<String>,
}

impl Found {
    pub(crate) fn add(&mut self, what: What, line: String) {
        if !self.what.contains(&what) {
            self.what.push(what);
        }
        if self.lines.len() < MAX_LINES {
            self.lines.push(line);
        }
    }
}

/// Compares a response with the recorded one.
pub(crate) fn responses(recorded: &Request, got: &Got, ignore: &Ignore, found: &mut Found) {
    let Some(expected) = &recorded.response else { return };
    let status = u32::from(got.status.as_u16());
    if status != expected.status {
        found.add(What::Status, format!("status: {} → {status}", expected.status));
    }
    headers(expected, &got.headers, ignore, found);
    if !expected.without_body && got.body != expected.body {
        body(&expected.body, got, ignore, found);
    }
}

fn headers(expected: &fanin_recording::Response, got: &HeaderMap, ignore: &Ignore, found: &mut Found) {
    let is_same = got.len() == expected.headers.len()
        && expected.headers.iter().all(|pair| got.get(&pair.name).is_some_and(|value| *value == *pair.value));
    if is_same {
        return;
    }
    let mut before: BTreeMap<&str, Vec<&[u8]>> = BTreeMap::new();
    for pair in &expected.headers {
        before.entry(&pair.name).or_default().push(&pair.value);
    }
    let mut after: BTreeMap<&str, Vec<&[u8]>> = BTreeMap::new();
    for (name, value) in got {
        after.entry(name.as_str()).or_default().push(value.as_bytes());
    }
    let shown = |values: Option<&Vec<&[u8]>>| match values {
        None => "none".to_owned(),
        Some(values) => {
            let texts: Vec<_> = values.iter().map(|value| String::from_utf8_lossy(value)).collect();
            fanin_trace::shorten(&texts.join(", "), 80)
        }
    };
    let names: std::collections::BTreeSet<&str> = before.keys().chain(after.keys()).copied().collect();
    for name in names {
        let (old, new) = (before.get(name), after.get(name));
        if old != new && !ignore.has_header(name) {
            found.add(What::Headers, format!("{name}: {} → {}", shown(old), shown(new)));
        }
    }
}

fn body(expected: &Bytes, got: &Got, ignore: &Ignore, found: &mut Found) {
    let (Ok(mut old), Ok(mut new)) =
        (serde_json::from_slice::<Value>(expected), serde_json::from_slice::<Value>(&got.body))
    else {
        let shown = |body: &Bytes| fanin_trace::shorten(&String::from_utf8_lossy(body), 80);
        return found.add(What::Body, format!("body: {:?} → {:?}", shown(expected), shown(&got.body)));
    };
    if got.headers.get(http::header::CONTENT_TYPE).is_some_and(|kind| kind == "application/problem+json") {
        // Its text tells times.
        for problem in [&mut old, &mut new] {
            if let Value::Object(members) = problem {
                members.remove("detail");
            }
        }
    }
    ignore.apply(&mut old);
    ignore.apply(&mut new);
    if old != new {
        found.add(What::Body, format!("body: {}", difference::describe(&new, &old)));
    }
}

/// What tells a call from others.
fn identity(upstream: &str, operation: &str, parts: [&[u8]; 3], keys: &mut dyn Iterator<Item = &[u8]>) -> u64 {
    let mut hasher = FxHasher::default();
    (upstream, operation, parts).hash(&mut hasher);
    keys.for_each(|key| key.hash(&mut hasher));
    hasher.finish()
}

fn of_recorded(call: &Call) -> u64 {
    let parts = [call.method.as_bytes(), call.path.as_bytes(), &call.body];
    let operation = call.operation.as_deref().unwrap_or_default();
    identity(&call.upstream, operation, parts, &mut call.keys.iter().map(String::as_bytes))
}

fn of_made(call: &RecordedCall<'_>) -> u64 {
    let parts = [call.method, call.path_and_query, call.body];
    identity(call.upstream, call.operation.unwrap_or_default(), parts, &mut call.keys.iter().copied())
}

/// Compares the calls, in any order.
pub(crate) fn calls(recorded: &Request, made: &[RecordedCall<'_>], found: &mut Found) {
    // A sum does not depend on the order.
    let sum = |all: &mut dyn Iterator<Item = u64>| all.fold(0_u64, u64::wrapping_add);
    let before = sum(&mut recorded.calls.iter().map(of_recorded));
    if recorded.calls.len() == made.len() && before == sum(&mut made.iter().map(of_made)) {
        return;
    }
    let mut counts: BTreeMap<u64, (i64, String)> = BTreeMap::new();
    for call in &recorded.calls {
        let keys: Vec<&[u8]> = call.keys.iter().map(String::as_bytes).collect();
        let shown = || describe(&call.upstream, call.operation.as_deref(), &call.path, &keys);
        counts.entry(of_recorded(call)).or_insert_with(|| (0, shown())).0 -= 1;
    }
    for call in made {
        let path = String::from_utf8_lossy(call.path_and_query);
        let shown = || describe(call.upstream, call.operation, &path, &call.keys);
        counts.entry(of_made(call)).or_insert_with(|| (0, shown())).0 += 1;
    }
    for (number, shown) in counts.into_values().filter(|(number, _)| *number != 0) {
        let what = if number > 0 { "more" } else { "fewer" };
        let times = match number.abs() {
            1 => String::new(),
            times => format!(" ({times} times)"),
        };
        found.add(What::Calls, format!("calls: one {what}: {shown}{times}"));
    }
}

fn describe(upstream: &str, operation: Option<&str>, path: &str, keys: &[&[u8]]) -> String {
    let operation = operation.map(|operation| format!(".{operation}")).unwrap_or_default();
    let keys = match keys.is_empty() {
        true => String::new(),
        false => {
            let texts: Vec<_> = keys.iter().map(|key| String::from_utf8_lossy(key)).collect();
            format!(" [{}]", fanin_trace::shorten(&texts.join(", "), 60))
        }
    };
    format!("{upstream}{operation} {}{keys}", fanin_trace::shorten(path, 100))
}

/// Compares the effects, in their order.
pub(crate) fn effects(recorded: &Request, made: &[Effect], found: &mut Found) {
    if made.is_empty() && !recorded.exchanges.iter().any(|exchange| exchange.effect) {
        return;
    }
    let sent = recorded
        .exchanges
        .iter()
        .filter(|exchange| exchange.effect && !exchange.failure.as_deref().is_some_and(is_unsent_name));
    let mut before: Vec<(u64, Effect)> = sent
        .map(|exchange| {
            let wanted = Wanted {
                upstream: &exchange.upstream,
                operation: exchange.operation.as_deref(),
                method: &exchange.method,
                path: &exchange.path,
                body: &exchange.body,
            };
            (exchange.begun_us, Effect::of(&wanted))
        })
        .collect();
    before.sort_by_key(|(begun, _)| *begun);
    for at in 0..before.len().max(made.len()) {
        let (old, new) = (before.get(at).map(|(_, effect)| effect), made.get(at));
        if old != new {
            let shown = |effect: Option<&Effect>| {
                effect.map_or_else(|| "none".to_owned(), |effect| fanin_trace::shorten(&effect.0, 160))
            };
            found.add(What::Effects, format!("effect {}: {} → {}", at + 1, shown(old), shown(new)));
        }
    }
}

/// How many requests one after another: a call that was sent after another had ended counts one more. Which of two ended first does not
/// matter for it, so it does not depend on small differences of time.
pub(crate) fn rounds(calls: impl Iterator<Item = (Option<u64>, Option<u64>, bool)>) -> u32 {
    let mut all: Vec<(u64, Option<u64>, bool)> =
        calls.filter_map(|(made, ended, is_local)| Some((made?, ended, is_local))).collect();
    all.sort_unstable();
    let mut depths: Vec<u32> = Vec::with_capacity(all.len());
    for (at, (made, _, is_local)) in all.iter().enumerate() {
        let before = all[..at].iter().zip(&depths).filter(|((_, ended, _), _)| ended.is_some_and(|end| end <= *made));
        let depth = before.map(|(_, depth)| *depth).max().unwrap_or(0);
        depths.push(depth + u32::from(!is_local));
    }
    depths.into_iter().max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_calls_one_after_another() {
        let call = |made: u64, ended: u64| (Some(made), Some(ended), false);
        assert_eq!(rounds([call(0, 10), call(0, 12), call(1, 5)].into_iter()), 1);
        assert_eq!(rounds([call(0, 10), call(10, 12), call(12, 15)].into_iter()), 3);
        assert_eq!(rounds([call(0, 10), (Some(10), Some(10), true), call(10, 15)].into_iter()), 2);
        assert_eq!(rounds([(None, None, false)].into_iter()), 0);
    }

    fn body_lines(old: &'static str, new: &'static str, kind: &'static str) -> Vec<String> {
        let mut headers = HeaderMap::new();
        headers.insert("content-type", http::HeaderValue::from_static(kind));
        let got = Got { status: StatusCode::OK, headers, body: new.into() };
        let mut found = Found::default();
        body(&old.into(), &got, &Ignore::default(), &mut found);
        found.lines
    }

    #[test]
    fn bodies_are_compared_as_json() {
        let json = "application/json";
        assert!(body_lines(r#"{"a": 1, "b": 2}"#, r#"{"b":2,"a":1}"#, json).is_empty());
        assert_eq!(body_lines(r#"{"a": 1}"#, r#"{"a": 2}"#, json).len(), 1);
        let problem = "application/problem+json";
        assert!(body_lines(r#"{"detail": "98 ms"}"#, r#"{"detail": "99 ms"}"#, problem).is_empty());
        assert_eq!(body_lines("x", "y", "text/plain"), [r#"body: "x" → "y""#]);
    }
}
