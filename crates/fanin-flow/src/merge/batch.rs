//! Batches: packs calls into requests, sends them and splits the answers. A batch that fails because of its keys is sent again in
//! halves.

use std::cell::Cell;
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use fanin_config::{Batch, Operation};
use fanin_lang::HostRef;
use fanin_upstream::shared::{
    Body, Fields, Item, ItemCache, ItemKey, OperationMetrics, ParsedAnswer, RequestKey, SharedResult,
};
use fanin_upstream::{CallContext, CallError, ErrorKind, Request};
use futures_util::FutureExt;
use futures_util::future::{Shared, join, join_all};
use http::StatusCode;
use smallvec::SmallVec;
use tokio::time::Instant;

use super::Work;
use super::part::Part;
use super::request::{request_for_keys, statement_for_keys, union};
use super::requested_keys::{Key, RequestedKeys};
use super::split::{Split, gather};
use crate::answer::{BodyRule, UNREQUESTED_PART};
use crate::caller::Caller;
use crate::inflight::InFlight;
use crate::kinds::UpstreamObject;
use crate::returns;

/// What the requests of a batch have in common.
pub(crate) struct BatchContext {
    pub(crate) caller: Rc<dyn Caller>,
    pub(crate) object: HostRef,
    /// The operation's index.
    pub(crate) operation: usize,
    /// The request without keys and fields.
    pub(crate) base: Request,
    /// Key of `base`.
    pub(crate) base_key: RequestKey,
    pub(crate) call: CallContext,
    /// Maximal nesting of answers.
    pub(crate) max_depth: usize,
    /// Requests sent.
    pub(crate) requests: Cell<u32>,
}

/// Attempts of one request of a batch that have numbers of their own in the trace.
const ATTEMPTS_PER_REQUEST: u32 = 64;

/// The answer to a part's request.
#[derive(Clone)]
enum PartAnswer {
    /// Its items by key.
    Split(Rc<Split>),
    /// An answer with an error status, which each call judges by its own `ok`.
    Plain(Arc<ParsedAnswer>),
}

type PartResult = Result<PartAnswer, CallError>;
type ResultsFuture = Pin<Box<dyn Future<Output = Vec<PartResult>>>>;
type SharedResults = Shared<Pin<Box<dyn Future<Output = Rc<[PartResult]>>>>>;
/// The requests that hold a call's keys, with the index of its part in each, and the part.
type CallParts = SmallVec<[(SharedResults, usize, Part); 1]>;

impl BatchContext {
    fn object(&self) -> Option<(&UpstreamObject, &Operation, &Batch)> {
        let object = self.object.downcast::<UpstreamObject>()?;
        let (_, operation) = object.operation(self.operation);
        Some((object, operation, operation.batch.as_ref()?))
    }
}

/// Packs calls into as few requests as `max_keys` allows, and returns the work of each call. A request is sent when its first call is
/// polled, and cancelled when its last call is dropped.
pub(crate) fn send_batch(context: BatchContext, calls: Vec<Rc<RequestedKeys>>) -> Vec<Work> {
    let context = Rc::new(context);
    let Some((_, _, batch)) = context.object() else { return Vec::new() };
    let packed = pack(&calls, batch.max_keys);
    let mut call_parts: Vec<CallParts> = calls.iter().map(|_| SmallVec::new()).collect();
    for parts in packed {
        let results = send_request(context.clone(), parts.iter().map(|(_, part)| part.clone()).collect());
        let results: Pin<Box<dyn Future<Output = Rc<[PartResult]>>>> = Box::pin(results.map(Rc::from));
        let sent = results.shared();
        for (index, (number, part)) in parts.into_iter().enumerate() {
            call_parts[number].push((sent.clone(), index, part));
        }
    }
    let give = |(requested, call_parts)| -> Work { Box::pin(outcome(context.clone(), requested, call_parts)) };
    calls.into_iter().zip(call_parts).map(give).collect()
}

/// Distributes calls over requests of at most `max_keys` keys. Only a call that fits no request is spread over several.
fn pack(calls: &[Rc<RequestedKeys>], max_keys: usize) -> Vec<Vec<(usize, Part)>> {
    let whole = |requested: &Rc<RequestedKeys>| Part { requested: requested.clone(), subset: None };
    if calls.iter().map(|requested| requested.keys.len()).sum::<usize>() <= max_keys {
        return vec![calls.iter().enumerate().map(|(number, requested)| (number, whole(requested))).collect()];
    }
    let mut requests: Vec<Vec<(usize, Part)>> = Vec::new();
    let mut request_of: HashMap<&str, usize> = HashMap::new();
    let mut room = 0;
    for (number, requested) in calls.iter().enumerate() {
        let new = requested.keys.iter().filter(|key| !request_of.contains_key(&*key.text)).count();
        if new > room && new <= max_keys {
            requests.push(Vec::new());
            room = max_keys;
        }
        let mut keys_by_request: Vec<(usize, Vec<usize>)> = Vec::new();
        for (at, key) in requested.keys.iter().enumerate() {
            let request = *request_of.entry(&key.text).or_insert_with(|| {
                if room == 0 {
                    requests.push(Vec::new());
                    room = max_keys;
                }
                room -= 1;
                requests.len() - 1
            });
            match keys_by_request.iter_mut().find(|(other, _)| *other == request) {
                Some((_, keys)) => keys.push(at),
                None => keys_by_request.push((request, vec![at])),
            }
        }
        for (request, keys) in keys_by_request {
            let part = match keys.len() == requested.keys.len() {
                true => whole(requested),
                false => Part { requested: requested.clone(), subset: Some(keys.into()) },
            };
            requests[request].push((number, part));
        }
    }
    requests.retain(|parts| !parts.is_empty());
    requests
}

/// Sends one request and returns its answer for each part.
fn send_request(context: Rc<BatchContext>, parts: Vec<Part>) -> ResultsFuture {
    Box::pin(async move {
        let Some((object, operation, batch)) = context.object() else { return Vec::new() };
        let (keys, fields) = union(&parts, batch);
        let lists = object.upstream.config().query_lists;
        let request = match batch.rows {
            None => request_for_keys(&context.base, operation, batch, lists, &keys, fields.as_deref()),
            Some(_) => statement_for_keys(&context.base, operation, batch, &keys),
        };
        let shared = object.upstream.operation(context.operation);
        let counts = &shared.metrics;
        counts.batch_calls.observe(parts.len());
        counts.batch_keys.observe(keys.len());
        let started = Instant::now();
        let mut call = context.call.clone();
        if let Some(trace) = &mut call.trace {
            trace.first = context.requests.replace(context.requests.get() + 1) * ATTEMPTS_PER_REQUEST;
        }
        let call = context.caller.call(&object.upstream, request, call);
        let (_, result) = InFlight::new(0, call, BodyRule::Required, context.max_depth).await;
        let (results, blames_keys) = read_answer(result, &context, &keys, counts);
        if let Some(items) = &shared.item_cache {
            store(items, &context.base_key, batch, &keys, fields.as_deref(), &results, started);
        }
        if !blames_keys || parts.len() == 1 || !(object.upstream.may_send_again() && object.upstream.may_send_again()) {
            return vec![results; parts.len()];
        }
        // A key seems to be the cause. Send both halves, so that only calls with that key fail. Each retry takes from the budget.
        OperationMetrics::increment(&counts.batch_splits);
        let (first, second) = parts.split_at(parts.len() / 2);
        let halves =
            join(send_request(context.clone(), first.to_vec()), send_request(context.clone(), second.to_vec()));
        let (mut results, rest) = halves.await;
        results.extend(rest);
        results
    })
}

/// The item cache's key for a key of a batch.
pub(super) fn item_key<'a>(base_key: &'a RequestKey, batch: &Batch, key: &'a Key) -> ItemKey<'a> {
    // `7` and `"7"` are the same key in a URL, but not in a statement.
    ItemKey { of: base_key, text: &key.text, quoted: batch.rows.is_some() && key.quoted }
}

/// Caches an answer's item for each key, with all fields of the request.
fn store(
    items: &ItemCache,
    base_key: &RequestKey,
    batch: &Batch,
    keys: &[&Key],
    fields: Option<&[&str]>,
    results: &PartResult,
    started: Instant,
) {
    let fields: Fields = fields.map(|fields| fields.iter().map(|field| Box::from(*field)).collect());
    match (results, keys) {
        (Ok(PartAnswer::Split(split)), _) => {
            // A key whose item may be among the unattributed ones is not cached.
            let item = |key: &&'_ Key| split.item(batch, &key.text).ok();
            let found = keys.iter().filter_map(|key| Some((item_key(base_key, batch, key), item(key)?)));
            items.store(split.answer(), &fields, started, found);
        }
        (Ok(PartAnswer::Plain(ready)), [key]) => {
            items.store_answer(item_key(base_key, batch, key), ready, &fields, started)
        }
        _ => {}
    }
}

/// The answer for all parts of its request, and whether its failure may concern one of the keys.
fn read_answer(
    result: Result<(fanin_upstream::Answer, crate::inflight::Checked), CallError>,
    context: &BatchContext,
    keys: &[&Key],
    counts: &OperationMetrics,
) -> (PartResult, bool) {
    let Some((object, operation, batch)) = context.object() else {
        return (Err(CallError::cancelled(&Arc::from("batch"))), false);
    };
    let (answer, checked) = match result {
        Ok(answered) => answered,
        Err(error) => {
            let blames_keys = matches!(error.kind, ErrorKind::TooLarge | ErrorKind::Decode);
            return (Err(error), blames_keys);
        }
    };
    if answer.unrequested_part && !operation.ok.contains(&answer.status) {
        return (Err(object.upstream.unusable(&answer, UNREQUESTED_PART)), false);
    }
    if !answer.status.is_success() {
        let blames_keys = may_concern_keys(answer.status);
        // An invalid body of a failure is ignored. A status listed in `ok` may have a body.
        let body = checked.unwrap_or(Body::Text);
        return (Ok(PartAnswer::Plain(Arc::new(ParsedAnswer { answer, body }))), blames_keys);
    }
    let problem = match (&operation.returns, &checked) {
        (Some(shape), Ok(body)) => returns::mismatch(shape, body, Some(object.operation(context.operation).0)),
        _ => None,
    };
    let split = match checked {
        _ if problem.is_some() => Err(problem.unwrap_or_default()),
        Ok(Body::Json(doc)) => Split::read(answer.clone(), doc, batch),
        Ok(_) => Err("the answer is not JSON".to_owned()),
        Err(error) => Err(error.to_string()),
    };
    match split {
        Ok(mut split) => {
            counts.batch_strays.fetch_add(split.strays(keys) as u64, Relaxed);
            if batch.rows.is_some() {
                // Every row of a statement belongs to a requested key, even if the column's value differs (collations).
                split.count_strays_as_unattributed(keys);
            }
            (Ok(PartAnswer::Split(Rc::new(split))), false)
        }
        Err(problem) => (Err(object.upstream.unusable(&answer, problem)), true),
    }
}

/// Whether a status may concern one of the keys, not the caller or its rate.
fn may_concern_keys(status: StatusCode) -> bool {
    status.is_client_error()
        && !matches!(
            status,
            StatusCode::UNAUTHORIZED
                | StatusCode::FORBIDDEN
                | StatusCode::METHOD_NOT_ALLOWED
                | StatusCode::PROXY_AUTHENTICATION_REQUIRED
                | StatusCode::REQUEST_TIMEOUT
                | StatusCode::TOO_EARLY
                | StatusCode::TOO_MANY_REQUESTS
        )
}

/// The outcome of a call from those of its requests.
async fn outcome(context: Rc<BatchContext>, requested: Rc<RequestedKeys>, call_parts: CallParts) -> SharedResult {
    let Some((object, _, batch)) = context.object() else { return Err(CallError::cancelled(&Arc::from("batch"))) };
    let results = match call_parts.as_slice() {
        // Most calls are in one request.
        [(request, _, _)] => SmallVec::<[Rc<[PartResult]>; 1]>::from_elem(request.clone().await, 1),
        several => join_all(several.iter().map(|(request, _, _)| request.clone())).await.into(),
    };
    let mut found: SmallVec<[(&Part, &Split); 1]> = SmallVec::new();
    for ((_, index, part), results) in call_parts.iter().zip(&results) {
        match results.get(*index) {
            Some(Ok(PartAnswer::Split(split))) => found.push((part, split)),
            Some(Ok(PartAnswer::Plain(ready))) => return Ok(ready.clone()),
            Some(Err(error)) => return Err(error.clone()),
            None => return Err(CallError::cancelled(object.upstream.name())),
        }
    }
    let of = |key: &Key| match found.as_slice() {
        [(_, split)] => Some(*split),
        several => several.iter().find(|(part, _)| part.keys().any(|other| other == key)).map(|(_, split)| *split),
    };
    let ready = match object.upstream.operation(context.operation).item_cache.is_some() {
        false => gather(&requested, batch, of),
        true => items(&requested, batch, of),
    };
    match ready {
        Ok(ready) => Ok(Arc::new(ready)),
        Err(problem) => {
            let name = object.upstream.name();
            Err(found[0].1.error(name, problem))
        }
    }
}

/// The items of a call's keys, to be assembled with cached ones.
fn items<'a>(
    requested: &RequestedKeys,
    batch: &Batch,
    splits: impl Fn(&Key) -> Option<&'a Split>,
) -> Result<ParsedAnswer, String> {
    let no_answer = "internal error: no answer for a key";
    let of = |key: &Key| splits(key).ok_or(no_answer)?.item(batch, &key.text);
    let items = requested.keys.iter().map(of).collect::<Result<Arc<[Item]>, String>>()?;
    let answer = items.first().ok_or(no_answer)?.answer.as_ref().clone();
    Ok(ParsedAnswer { answer, body: Body::Items(items) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(keys: std::ops::Range<usize>) -> Rc<RequestedKeys> {
        let keys = keys.map(|key| Key { text: key.to_string().into(), quoted: false }).collect();
        Rc::new(RequestedKeys { keys, single: false, fields: None })
    }

    /// For each request, its calls and its number of keys.
    fn packed(calls: &[Rc<RequestedKeys>], max_keys: usize) -> Vec<(Vec<usize>, usize)> {
        let requests = pack(calls, max_keys);
        // Each call finds each of its keys once.
        for (number, requested) in calls.iter().enumerate() {
            let parts = requests.iter().flatten().filter(|(other, _)| *other == number).map(|(_, part)| part);
            let mut keys: Vec<&str> = parts.flat_map(|part| part.keys().map(|key| &*key.text)).collect();
            let mut own: Vec<&str> = requested.keys.iter().map(|key| &*key.text).collect();
            keys.sort_unstable();
            own.sort_unstable();
            assert_eq!(keys, own);
        }
        let describe = |parts: &Vec<(usize, Part)>| {
            let parts: (Vec<usize>, Vec<Part>) = parts.iter().cloned().unzip();
            let keys = union(&parts.1, &Batch::new("ids")).0.len();
            assert!(keys <= max_keys);
            (parts.0, keys)
        };
        requests.iter().map(describe).collect()
    }

    #[test]
    fn calls_share_requests_and_large_ones_are_split() {
        assert_eq!(packed(&[call(0..2), call(1..4)], 10), [(vec![0, 1], 4)]);
        assert_eq!(packed(&[call(0..3), call(0..3)], 3), [(vec![0, 1], 3)], "united, they fit");
        assert_eq!(packed(&[call(0..2), call(5..7)], 3), [(vec![0], 2), (vec![1], 2)], "calls that fit are not split");
        assert_eq!(packed(&[call(0..7)], 3), [(vec![0], 3), (vec![0], 3), (vec![0], 1)]);
        assert_eq!(packed(&[call(0..7), call(6..8)], 3), [(vec![0], 3), (vec![0], 3), (vec![0, 1], 2)]);
    }
}
