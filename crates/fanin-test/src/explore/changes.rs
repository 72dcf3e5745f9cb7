//! Which deviations a request can have.

use std::time::Duration;

use bytes::Bytes;
use fanin_config::UpstreamKind;
use serde_json::Value as Json;

use super::change::{Change, Slot};
use crate::stub::End;

/// How deep keys of an answer are looked for.
const LEVELS: usize = 3;
/// How long before its timeout a late answer comes: the clock counts in milliseconds, rounded up.
const EARLY_MS: u64 = 2;
/// How many keys of an answer are dropped, each in a case of its own.
const MAX_KEYS: usize = 24;
/// How many of one object.
const MAX_KEYS_EACH: usize = 8;

/// A request of a run, as the search looks at it.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) slot: Slot,
    pub(crate) kind: UpstreamKind,
    /// When it was sent, since the run began.
    pub(crate) at: Duration,
    /// How long its answer takes, and how long somebody waits for it.
    pub(crate) delay: Duration,
    pub(crate) left: Duration,
    pub(crate) end: End,
    /// What the stub answers with status 200.
    pub(crate) body: Option<Bytes>,
    pub(crate) deviates: bool,
    /// Requests with the same content ask for the same.
    pub(crate) content: u64,
}

/// All deviations of a request.
pub(crate) fn changes_of(seen: &Seen) -> Vec<Change> {
    let mut all = vec![Change::Never];
    let last = Duration::from_millis(u64::try_from(seen.left.as_millis()).unwrap_or(u64::MAX).saturating_sub(EARLY_MS));
    if last > seen.delay && seen.end != End::Never {
        all.push(Change::Late(last));
    }
    all.extend([Change::Refused, Change::Protocol]);
    let body: Option<Json> = seen.body.as_ref().and_then(|body| serde_json::from_slice(body).ok());
    match seen.kind {
        UpstreamKind::Http => {
            all.extend([Change::Status(500), Change::Status(503), Change::Status(404), Change::Malformed]);
            if let Some(body) = &body {
                all.extend(wrong_kinds(body));
                all.extend(wrong_members(body, true));
            }
        }
        UpstreamKind::Grpc => {
            all.extend([Change::Code("UNAVAILABLE", 503), Change::Code("NOT_FOUND", 404)]);
            all.extend(body.iter().flat_map(|body| wrong_members(body, false)));
        }
        UpstreamKind::Postgres | UpstreamKind::Mysql => match &body {
            // No row, and columns that are NULL.
            Some(whole @ Json::Array(rows)) if !rows.is_empty() => {
                all.push(Change::Body("[]".to_owned()));
                all.extend(wrong_members(whole, false));
            }
            Some(whole @ Json::Object(_)) => {
                all.push(Change::Body("null".to_owned()));
                all.extend(wrong_members(whole, false));
            }
            _ => {}
        },
        UpstreamKind::Files => all.push(Change::Status(404)),
        UpstreamKind::Model => {}
    }
    all
}

/// Another kind of JSON where there was one.
fn wrong_kinds(body: &Json) -> Vec<Change> {
    let all: &[&str] = match body {
        Json::Object(_) => &["null", "[]", "{}"],
        Json::Array(items) if items.is_empty() => &["null", "{}"],
        Json::Array(_) => &["null", "{}", "[]"],
        Json::Null => &[],
        _ => &["null", "{}"],
    };
    all.iter().map(|json| Change::Body((*json).to_owned())).collect()
}

/// Each key missing, null, or an empty list.
fn wrong_members(body: &Json, missing: bool) -> Vec<Change> {
    let mut paths = Vec::new();
    keys(body, "", LEVELS, &mut paths);
    paths.truncate(MAX_KEYS);
    let mut all = Vec::new();
    for (path, value) in paths {
        if missing {
            all.push(Change::Without(path.clone()));
        }
        if !value.is_null() {
            all.push(Change::Replace(path.clone(), "null".to_owned()));
        }
        if value.as_array().is_some_and(|items| !items.is_empty()) {
            all.push(Change::Replace(path, "[]".to_owned()));
        }
    }
    all
}

/// Paths of members, the outer ones first.
fn keys<'a>(value: &'a Json, path: &str, levels: usize, found: &mut Vec<(String, &'a Json)>) {
    let join = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    match value {
        _ if levels == 0 => {}
        Json::Object(members) => {
            let named = members.iter().filter(|(key, _)| !key.is_empty() && !key.contains('.') && *key != "*");
            let named: Vec<_> = named.take(MAX_KEYS_EACH).map(|(key, value)| (join(key), value)).collect();
            found.extend(named.iter().cloned());
            for (path, value) in &named {
                keys(value, path, levels - 1, found);
            }
        }
        // The items of a list are alike.
        Json::Array(items) => {
            if let Some(first) = items.first() {
                keys(first, &join("*"), levels, found);
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
    fn keys_of_an_answer_are_dropped_each() {
        let body = json!({"ids": [1], "items": [{"a": 1}], "none": null});
        let words: Vec<String> = wrong_members(&body, true).iter().map(Change::words).collect();
        assert_eq!(
            words,
            [
                "is answered without the key ids",
                "is answered with null as ids",
                "is answered with [] as ids",
                "is answered without the key items",
                "is answered with null as items",
                "is answered with [] as items",
                "is answered without the key none",
                "is answered without the key items.*.a",
                "is answered with null as items.*.a",
            ]
        );
    }
}
