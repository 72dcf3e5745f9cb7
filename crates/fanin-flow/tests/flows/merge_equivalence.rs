//! Equivalence test of batches: what a call gets does not depend on the other calls of its batch.

use std::collections::BTreeMap;

use crate::common::{Script, after, paused, setup_toml};
use fanin_upstream::Request;
use proptest::prelude::*;

const FIELDS: [&str; 4] = ["a", "b", "c", "d"];

#[derive(Debug, Clone)]
struct Call {
    keys: Vec<u8>,
    one: bool,
    fields: Option<Vec<&'static str>>,
}

#[derive(Debug, Clone)]
struct Backend {
    /// The answer is a list of items, not an object by key.
    list: bool,
    /// Items are below this key.
    nested: bool,
    max_keys: usize,
    /// Fields of each existing item.
    items: BTreeMap<u8, BTreeMap<&'static str, i32>>,
    /// A request with one of these gets an unreadable answer.
    poison: Vec<u8>,
    /// The items come in reverse order, some twice, with an unrequested one.
    messy: bool,
}

fn call() -> impl Strategy<Value = Call> {
    let fields = proptest::option::of(proptest::sample::subsequence(FIELDS.to_vec(), 0..=4));
    (proptest::collection::vec(0_u8..24, 0..8), any::<bool>(), fields).prop_map(|(keys, one, fields)| {
        let one = one && !keys.is_empty();
        Call { keys, one, fields }
    })
}

fn backend() -> impl Strategy<Value = Backend> {
    let members = proptest::collection::btree_map(proptest::sample::select(FIELDS.to_vec()), any::<i32>(), 0..4);
    let items = proptest::collection::btree_map(0_u8..20, members, 0..20);
    let poison = proptest::collection::vec(0_u8..24, 0..3);
    (any::<bool>(), any::<bool>(), 1_usize..12, items, poison, any::<bool>()).prop_map(
        |(list, nested, max_keys, items, poison, messy)| Backend { list, nested, max_keys, items, poison, messy },
    )
}

fn query<'a>(request: &'a Request, name: &str) -> Option<&'a str> {
    let (_, query) = request.path_and_query.split_once('?')?;
    query.split('&').find_map(|pair| pair.split_once('=').filter(|(key, _)| *key == name)).map(|(_, value)| value)
}

impl Backend {
    fn item(&self, key: u8, wanted: impl Fn(&str) -> bool) -> Option<String> {
        let members = self.items.get(&key)?;
        let id = (self.list && wanted("id")).then(|| format!("\"id\":{key}"));
        let members =
            members.iter().filter(|(name, _)| wanted(name)).map(|(name, value)| format!("\"{name}\":{value}"));
        Some(format!("{{{}}}", id.into_iter().chain(members).collect::<Vec<_>>().join(",")))
    }

    fn wrap(&self, keyed: impl Iterator<Item = (u8, String)>) -> String {
        let all: Vec<String> = match self.list {
            true => keyed.map(|(_, item)| item).collect(),
            false => keyed.map(|(key, item)| format!("\"{key}\":{item}")).collect(),
        };
        if self.list { format!("[{}]", all.join(",")) } else { format!("{{{}}}", all.join(",")) }
    }

    fn answer(&self, request: &Request) -> Script {
        let keys: Vec<u8> = query(request, "ids").unwrap_or("").split(',').filter_map(|key| key.parse().ok()).collect();
        assert!(keys.len() <= self.max_keys, "{} keys, at most {}", keys.len(), self.max_keys);
        if keys.iter().any(|key| self.poison.contains(key)) {
            return after(5, "{\"half");
        }
        let fields: Option<Vec<&str>> = query(request, "fields").map(|fields| fields.split(',').collect());
        // This backend sends all fields, whatever was requested.
        let wanted = |name: &str| self.messy || fields.as_ref().is_none_or(|fields| fields.contains(&name));
        let mut found: Vec<(u8, String)> =
            keys.iter().filter_map(|key| Some((*key, self.item(*key, wanted)?))).collect();
        if self.messy {
            found.reverse();
            if let Some(extra) = self.items.keys().find(|key| !keys.contains(key)) {
                found.push((*extra, self.item(*extra, wanted).expect("it is there")));
            }
        }
        let rows = self.wrap(found.into_iter());
        after(5, if self.nested { format!("{{\"n\":1,\"rows\":{rows}}}") } else { rows })
    }

    /// The expected answer of a call, from the data.
    fn expected(&self, call: &Call) -> String {
        let mut keys: Vec<u8> = Vec::new();
        for key in &call.keys[..if call.one { 1 } else { call.keys.len() }] {
            if !keys.contains(key) {
                keys.push(*key);
            }
        }
        if keys.iter().any(|key| self.poison.contains(key)) {
            return "\"failed\"".to_owned();
        }
        let wanted = |name: &str| name == "id" || call.fields.as_ref().is_none_or(|fields| fields.contains(&name));
        if call.one {
            return self.item(keys[0], wanted).unwrap_or("null".to_owned());
        }
        self.wrap(keys.into_iter().filter_map(|key| Some((key, self.item(key, wanted)?))))
    }

    fn toml(&self) -> String {
        let matched = if self.list { "match = \"id\"," } else { "" };
        let items = if self.nested { "items = \"rows\"," } else { "" };
        format!(
            "[upstreams.u]\nurl = \"http://127.0.0.1:1\"\nquery_lists = \"comma\"\nretry = {{ budget = 1.0, floor = 1e6 }}\n\
             [upstreams.u.operations.get_all]\npath = \"/x\"\n\
             batch = {{ key = \"ids\", fields = \"fields\", {matched} {items} max_keys = {} }}\n",
            self.max_keys
        )
    }
}

impl Call {
    fn written(&self) -> String {
        let keys = match (self.one, self.keys.first()) {
            (true, Some(key)) => format!("{key}"),
            _ => format!("{:?}", self.keys),
        };
        let fields = self.fields.as_ref().map_or(String::new(), |fields| format!(", fields = {fields:?}"));
        format!("u.get_all(ids = {keys}{fields}, default = \"failed\")")
    }
}

fn flow(result: &str) -> String {
    format!("load(\"@upstreams\", \"u\")\ndef flow(req):\n    return {result}\n")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn merged_answers_equal_unmerged_ones(backend in backend(), calls in proptest::collection::vec(call(), 1..10)) {
        let written: Vec<String> = calls.iter().map(Call::written).collect();
        let expected: Vec<String> = calls.iter().map(|call| backend.expected(call)).collect();
        let run = |result: String| {
            let served = backend.clone();
            paused(async {
                let it = setup_toml(&backend.toml(), &flow(&result), move |_, request| served.answer(request));
                (it.text("/").await.replace(' ', ""), it.events().len())
            })
        };
        let (merged, requests) = run(format!("[{}]", written.join(", ")));
        prop_assert_eq!(&merged, &format!("[{}]", expected.join(",")));
        let mut alone = 0;
        for (written, expected) in written.into_iter().zip(&expected) {
            let (body, requests) = run(format!("[{written}]"));
            prop_assert_eq!(&body, &format!("[{}]", expected));
            alone += requests;
        }
        if backend.poison.is_empty() {
            prop_assert!(requests <= alone, "{} requests merged, {} alone", requests, alone);
        }
    }
}
