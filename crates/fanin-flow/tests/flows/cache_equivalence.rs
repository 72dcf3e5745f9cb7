//! Equivalence test of batches, caches and single-flight: each call gets what the upstream would have answered it alone,
//! no older than its time to live allows.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use crate::common::{Script, Setup, after, paused, setup_toml};
use fanin_upstream::Request;
use proptest::prelude::*;
use serde_json::{Value, json};

const FIELDS: [&str; 4] = ["a", "b", "c", "d"];
/// What a request to the upstream takes.
const TAKES: u64 = 5;

#[derive(Debug, Clone)]
struct Call {
    keys: Vec<u8>,
    one: bool,
    fields: Option<Vec<&'static str>>,
}

#[derive(Debug, Clone)]
struct Step {
    /// Milliseconds before it.
    pause: u64,
    calls: Vec<Call>,
}

#[derive(Debug, Clone)]
struct Backend {
    list: bool,
    nested: bool,
    share: bool,
    single_flight: bool,
    max_keys: usize,
    stale: u64,
    negative: u64,
    /// Items, with their members and the time from which on there are any.
    items: BTreeMap<u8, (BTreeSet<&'static str>, u64)>,
    /// A request with one of these gets an unreadable answer.
    poison: Vec<u8>,
    messy: bool,
}

const TTL: u64 = 4000;

fn call() -> impl Strategy<Value = Call> {
    let fields = proptest::option::of(proptest::sample::subsequence(FIELDS.to_vec(), 0..=4));
    (proptest::collection::vec(0_u8..12, 1..6), any::<bool>(), fields).prop_map(|(keys, one, fields)| Call {
        keys,
        one,
        fields,
    })
}

fn step() -> impl Strategy<Value = Step> {
    let pause = prop_oneof![Just(0_u64), 1_u64..1500, 3000_u64..6000];
    (pause, proptest::collection::vec(call(), 1..5)).prop_map(|(pause, calls)| Step { pause, calls })
}

fn backend() -> impl Strategy<Value = Backend> {
    let members = proptest::collection::btree_set(proptest::sample::select(FIELDS.to_vec()), 0..4);
    let born = prop_oneof![Just(0_u64), 1_u64..12_000];
    let items = proptest::collection::btree_map(0_u8..10, (members, born), 0..10);
    let poison = proptest::collection::vec(0_u8..12, 0..2);
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let times = (prop_oneof![Just(0_u64), Just(2000)], prop_oneof![Just(0_u64), Just(1000)]);
    (flags, 1_usize..12, times, items, poison).prop_map(|(flags, max_keys, (stale, negative), items, poison)| {
        let (list, nested, share, single_flight, messy) = flags;
        Backend { list, nested, share, single_flight, max_keys, stale, negative, items, poison, messy }
    })
}

fn query<'r>(request: &'r Request, name: &str) -> Option<&'r str> {
    let (_, query) = request.path_and_query.split_once('?')?;
    query.split('&').find_map(|pair| pair.split_once('=').filter(|(key, _)| *key == name)).map(|(_, value)| value)
}

fn keys(request: &Request) -> Vec<u8> {
    query(request, "ids").unwrap_or("").split(',').filter_map(|key| key.parse().ok()).collect()
}

impl Backend {
    /// An item's fields hold the user and the time of its request.
    fn item(&self, key: u8, now: u64, user: &str, wanted: impl Fn(&str) -> bool) -> Option<Value> {
        let (members, born) = self.items.get(&key)?;
        if *born > now {
            return None;
        }
        let mut item = serde_json::Map::new();
        if self.list {
            item.insert("id".into(), json!(key));
        }
        for member in members.iter().filter(|member| wanted(member)) {
            item.insert((*member).into(), json!(format!("{user} {now}")));
        }
        Some(Value::Object(item))
    }

    fn answer(&self, request: &Request, now: u64) -> Script {
        let user = request.headers["x-user"].to_str().unwrap();
        let keys = keys(request);
        assert!(!keys.is_empty() && keys.len() <= self.max_keys, "{} keys, at most {}", keys.len(), self.max_keys);
        if keys.iter().any(|key| self.poison.contains(key)) {
            return after(TAKES, "{\"half");
        }
        let fields: Option<Vec<&str>> = query(request, "fields").map(|fields| fields.split(',').collect());
        let wanted = |name: &str| self.messy || fields.as_ref().is_none_or(|fields| fields.contains(&name));
        let mut found: Vec<(u8, Value)> =
            keys.iter().filter_map(|key| Some((*key, self.item(*key, now, user, wanted)?))).collect();
        if self.messy {
            found.reverse();
        }
        let rows = match self.list {
            true => Value::Array(found.into_iter().map(|(_, item)| item).collect()),
            false => Value::Object(found.into_iter().map(|(key, item)| (key.to_string(), item)).collect()),
        };
        after(TAKES, if self.nested { json!({"n": 1, "rows": rows}) } else { rows }.to_string())
    }

    /// Whether a call of this user that began with its step and ends now may get this.
    fn check(&self, call: &Call, user: &str, got: &Value, began: u64, now: u64) -> Result<(), String> {
        let mut keys: Vec<u8> = Vec::new();
        for key in &call.keys[..if call.one { 1 } else { call.keys.len() }] {
            if !keys.contains(key) {
                keys.push(*key);
            }
        }
        if keys.iter().any(|key| self.poison.contains(key)) {
            return if got == "failed" { Ok(()) } else { Err("a poisoned key gave something".into()) };
        }
        if got == "failed" {
            return Err("it failed".into());
        }
        let found = |at: usize, key: u8| match (call.one, self.list) {
            (true, _) => Some(got).filter(|got| !got.is_null()),
            (false, true) => got.as_array().unwrap().iter().find(|item| item["id"] == key),
            (false, false) => got.as_object().unwrap().get(&key.to_string()).filter(|_| at < keys.len()),
        };
        let mut there = 0;
        for (at, key) in keys.iter().enumerate() {
            let item = found(at, *key);
            there += usize::from(item.is_some());
            self.check_item(call, *key, user, item, began, now).map_err(|problem| format!("key {key}: {problem}"))?;
        }
        if !call.one && self.list {
            let order: Vec<u64> = got.as_array().unwrap().iter().map(|item| item["id"].as_u64().unwrap()).collect();
            let expected: Vec<u64> = keys.iter().map(|key| u64::from(*key)).filter(|key| order.contains(key)).collect();
            if order != expected {
                return Err(format!("not in the order of the call: {order:?}"));
            }
        }
        match call.one || got.as_array().map_or_else(|| got.as_object().unwrap().len(), Vec::len) == there {
            true => Ok(()),
            false => Err("the answer holds more than requested".into()),
        }
    }

    fn check_item(
        &self,
        call: &Call,
        key: u8,
        user: &str,
        item: Option<&Value>,
        began: u64,
        now: u64,
    ) -> Result<(), String> {
        let known = self.items.get(&key);
        let Some(item) = item else {
            // It may exist only since now, or be cached as absent.
            let late = known.is_none_or(|(_, born)| *born + self.negative.max(TAKES) + TAKES > began);
            return if late { Ok(()) } else { Err("it is missing".into()) };
        };
        let Some((members, born)) = known.filter(|(_, born)| *born <= now) else { return Err("there is none".into()) };
        let wanted = |name: &str| call.fields.as_ref().is_none_or(|fields| fields.contains(&name));
        let mut expected: BTreeSet<&str> = members.iter().copied().filter(|name| wanted(name)).collect();
        let mut values = BTreeSet::new();
        for (name, value) in item.as_object().ok_or("it is no object")? {
            if self.list && name == "id" {
                continue;
            }
            if !expected.remove(name.as_str()) {
                return Err(format!("{name} was not requested"));
            }
            values.insert(value.as_str().ok_or("a member is no text")?);
        }
        if !expected.is_empty() {
            return Err(format!("it lacks {expected:?}"));
        }
        match values.into_iter().collect::<Vec<_>>().as_slice() {
            [] => Ok(()),
            [one] => {
                let (who, when) = one.split_once(' ').ok_or("odd")?;
                let when: u64 = when.parse().map_err(|_| "odd")?;
                match when + TTL + self.stale + TAKES >= began && when >= *born && when <= now && who == user {
                    true => Ok(()),
                    false => Err(format!("{user} gets the answer that {who} got at {when}, between {began} and {now}")),
                }
            }
            several => Err(format!("members of different times: {several:?}")),
        }
    }

    fn toml(&self) -> String {
        let matched = if self.list { "match = \"id\"," } else { "" };
        let items = if self.nested { "items = \"rows\"," } else { "" };
        format!(
            "[upstreams.u]\nurl = \"http://127.0.0.1:1\"\nquery_lists = \"comma\"\nretry = {{ budget = 1.0, floor = 1e6 }}\n\
             forward_headers = [\"x-user\"]\n[upstreams.u.operations.get_all]\npath = \"/x\"\nsingle_flight = {}\n\
             batch = {{ key = \"ids\", fields = \"fields\", {matched} {items} max_keys = {}, share = {} }}\n\
             cache = {{ ttl = \"{TTL}ms\", stale = \"{}ms\", negative = \"{}ms\" }}\n",
            self.single_flight, self.max_keys, self.share, self.stale, self.negative
        )
    }
}

const FLOW: &str = r#"
load("@upstreams", "u")

def one(call):
    if call["fields"] == None:
        return u.get_all(ids = call["ids"], default = "failed")
    return u.get_all(ids = call["ids"], fields = call["fields"], default = "failed")

def flow(req):
    return [one(call) for call in req.body]
"#;

async fn run(it: &Setup, user: &'static str, calls: &[Call]) -> Vec<Value> {
    let body: Vec<Value> = calls
        .iter()
        .map(|call| match call.one {
            true => json!({"ids": call.keys[0], "fields": call.fields}),
            false => json!({"ids": call.keys, "fields": call.fields}),
        })
        .collect();
    let mut incoming = it.incoming("/");
    incoming.method = http::Method::POST;
    incoming.headers.insert("x-user", http::HeaderValue::from_static(user));
    incoming.body = json!(body).to_string().into();
    let reply = it.flows.run(0, incoming).await;
    let body = reply.result.unwrap_or_else(|error| panic!("{error:?}")).body.concat();
    serde_json::from_slice(&body).unwrap()
}

fn now(it: &Setup) -> u64 {
    u64::try_from(it.elapsed()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn cached_items_equal_the_answers_of_the_upstream(backend in backend(), steps in proptest::collection::vec(step(), 1..8)) {
        let served = backend.clone();
        let result: Result<(), String> = paused(async {
            let begin = tokio::time::Instant::now();
            let time = move || u64::try_from(begin.elapsed().as_millis()).unwrap();
            // Requested keys of one user, and when.
            let log: Rc<RefCell<Vec<(u8, u64)>>> = Rc::default();
            let noted = log.clone();
            let it = setup_toml(&backend.toml(), FLOW, move |_, request| {
                if request.headers["x-user"] == "ann" {
                    noted.borrow_mut().extend(keys(request).into_iter().map(|key| (key, time())));
                }
                served.answer(request, time())
            });
            for (number, step) in steps.iter().enumerate() {
                tokio::time::sleep(Duration::from_millis(step.pause)).await;
                let began = now(&it);
                let both = futures_util::join!(run(&it, "ann", &step.calls), run(&it, "bob", &step.calls));
                for (user, got) in [("ann", both.0), ("bob", both.1)] {
                    for (call, got) in step.calls.iter().zip(&got) {
                        backend.check(call, user, got, began, now(&it))
                            .map_err(|problem| format!("step {number}, {call:?} of {user}: {problem}, in {got}"))?;
                    }
                }
                // Background refreshes have filled the cache, and fresh items are not fetched again.
                tokio::time::sleep(Duration::from_millis(100)).await;
                let known = |key: &u8| backend.items.get(key).is_some_and(|(_, born)| *born < began);
                if backend.poison.is_empty() && !backend.share && step.calls.iter().flat_map(|call| &call.keys).all(known) {
                    let before = log.borrow().len();
                    run(&it, "ann", &step.calls).await;
                    let log = log.borrow();
                    for (key, at) in &log[before..] {
                        let last = log[..before].iter().rev().find(|(other, _)| other == key);
                        if last.is_some_and(|(_, last)| last + TTL > *at) {
                            return Err(format!("step {number}: {key} is fetched at {at}, and was before: {log:?}"));
                        }
                    }
                }
            }
            Ok(())
        });
        prop_assert!(result.is_ok(), "{}", result.unwrap_err());
    }
}
