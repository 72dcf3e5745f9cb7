//! A batch on its way: packed into requests, sent, taken apart; sent again in parts where its content seems to be the trouble.

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
use super::request::{union, united, with_keys};
use super::requested_keys::{Asked, Key};
use super::split::{Split, gather};
use crate::caller::Caller;
use crate::inflight::InFlight;
use crate::kinds::UpstreamObject;

/// What all requests of a batch have in common.
pub(crate) struct Launch {
    pub(crate) caller: Rc<dyn Caller>,
    pub(crate) object: HostRef,
    /// The operation's place.
    pub(crate) operation: usize,
    /// The request without keys and fields.
    pub(crate) base: Request,
    /// What it is told by.
    pub(crate) of: RequestKey,
    pub(crate) context: CallContext,
    /// Nesting that answers may have.
    pub(crate) max_depth: usize,
}

/// What came of a part's request.
#[derive(Clone)]
enum Piece {
    /// Items.
    Split(Rc<Split>),
    /// Another answer than one with items: some status, which each call judges by itself.
    Plain(Arc<ParsedAnswer>),
}

type Landed = Result<Piece, CallError>;
type Landing = Pin<Box<dyn Future<Output = Vec<Landed>>>>;
type Sent = Shared<Pin<Box<dyn Future<Output = Rc<[Landed]>>>>>;
/// The requests that hold a call's keys: the place of its part in each, and the part.
type Needed = SmallVec<[(Sent, usize, Part); 1]>;

impl Launch {
    fn object(&self) -> Option<(&UpstreamObject, &Operation, &Batch)> {
        let object = self.object.downcast::<UpstreamObject>()?;
        let (_, operation) = object.operation(self.operation);
        Some((object, operation, operation.batch.as_ref()?))
    }
}

/// Packs calls into as few requests as their keys allow, and gives each call its outcome. A request is sent when the first call
/// in it is polled; it ends when it has answered, or when no call is left that waits for it.
pub(crate) fn launch(launch: Launch, calls: Vec<Rc<Asked>>) -> Vec<Work> {
    let launch = Rc::new(launch);
    let Some((_, _, batch)) = launch.object() else { return Vec::new() };
    let packed = pack(&calls, batch.max_keys);
    let mut needed: Vec<Needed> = calls.iter().map(|_| SmallVec::new()).collect();
    for parts in packed {
        let landing = land(launch.clone(), parts.iter().map(|(_, part)| part.clone()).collect());
        let landing: Pin<Box<dyn Future<Output = Rc<[Landed]>>>> = Box::pin(landing.map(Rc::from));
        let sent = landing.shared();
        for (place, (number, part)) in parts.into_iter().enumerate() {
            needed[number].push((sent.clone(), place, part));
        }
    }
    let give = |(asked, needed)| -> Work { Box::pin(outcome(launch.clone(), asked, needed)) };
    calls.into_iter().zip(needed).map(give).collect()
}

/// Spreads calls over requests of at most `most` keys. A call is spread over several only if it has to be.
fn pack(calls: &[Rc<Asked>], most: usize) -> Vec<Vec<(usize, Part)>> {
    let whole = |asked: &Rc<Asked>| Part { asked: asked.clone(), some: None };
    if calls.iter().map(|asked| asked.keys.len()).sum::<usize>() <= most {
        return vec![calls.iter().enumerate().map(|(number, asked)| (number, whole(asked))).collect()];
    }
    let mut requests: Vec<Vec<(usize, Part)>> = Vec::new();
    let mut place: HashMap<&str, usize> = HashMap::new();
    let mut room = 0;
    for (number, asked) in calls.iter().enumerate() {
        let new = asked.keys.iter().filter(|key| !place.contains_key(&*key.text)).count();
        if new > room && new <= most {
            requests.push(Vec::new());
            room = most;
        }
        let mut mine: Vec<(usize, Vec<usize>)> = Vec::new();
        for (at, key) in asked.keys.iter().enumerate() {
            let request = *place.entry(&key.text).or_insert_with(|| {
                if room == 0 {
                    requests.push(Vec::new());
                    room = most;
                }
                room -= 1;
                requests.len() - 1
            });
            match mine.iter_mut().find(|(other, _)| *other == request) {
                Some((_, keys)) => keys.push(at),
                None => mine.push((request, vec![at])),
            }
        }
        for (request, keys) in mine {
            let part = match keys.len() == asked.keys.len() {
                true => whole(asked),
                false => Part { asked: asked.clone(), some: Some(keys.into()) },
            };
            requests[request].push((number, part));
        }
    }
    requests.retain(|parts| !parts.is_empty());
    requests
}

/// Sends one request and takes its answer apart, for each part in turn.
fn land(launch: Rc<Launch>, parts: Vec<Part>) -> Landing {
    Box::pin(async move {
        let Some((object, operation, batch)) = launch.object() else { return Vec::new() };
        let (keys, fields) = union(&parts, batch);
        let lists = object.upstream.config().query_lists;
        let request = match batch.rows {
            None => united(&launch.base, operation, batch, lists, &keys, fields.as_deref()),
            Some(_) => with_keys(&launch.base, operation, batch, &keys),
        };
        let shared = object.upstream.operation(launch.operation);
        let counts = &shared.metrics;
        counts.batch_calls.observe(parts.len());
        counts.batch_keys.observe(keys.len());
        let begun = Instant::now();
        let call = launch.caller.call(&object.upstream, request, launch.context);
        let (_, result) = InFlight::new(0, call, false, launch.max_depth).await;
        let (landed, content) = read(result, object, batch, &keys, counts);
        if let Some(items) = &shared.item_cache {
            store(items, &launch.of, batch, &keys, fields.as_deref(), &landed, begun);
        }
        if !content || parts.len() == 1 || !(object.upstream.may_send_again() && object.upstream.may_send_again()) {
            return vec![landed; parts.len()];
        }
        // What was asked for seems to be what failed: halves of it, so that only who asked for it fails.
        OperationMetrics::increment(&counts.batch_splits);
        let (first, second) = parts.split_at(parts.len() / 2);
        let halves = join(land(launch.clone(), first.to_vec()), land(launch.clone(), second.to_vec()));
        let (mut landed, rest) = halves.await;
        landed.extend(rest);
        landed
    })
}

/// Which item a key of a batch is, among those of its operation that are kept.
pub(super) fn item_key<'a>(of: &'a RequestKey, batch: &Batch, key: &'a Key) -> ItemKey<'a> {
    // Where all is text on the wire, `7` and `"7"` are one key.
    ItemKey { of, text: &key.text, quoted: batch.rows.is_some() && key.quoted }
}

/// Keeps what an answer has of each key, with all fields that the request had, whichever call asked for them.
fn store(
    items: &ItemCache,
    of: &RequestKey,
    batch: &Batch,
    keys: &[&Key],
    fields: Option<&[&str]>,
    landed: &Landed,
    begun: Instant,
) {
    let fields: Fields = fields.map(|fields| fields.iter().map(|field| Box::from(*field)).collect());
    match (landed, keys) {
        (Ok(Piece::Split(split)), _) => {
            // Who may be concerned by what nobody can tell has no item.
            let item = |key: &&'_ Key| split.item(batch, &key.text).ok();
            let said = keys.iter().filter_map(|key| Some((item_key(of, batch, key), item(key)?)));
            items.store(split.answer(), &fields, begun, said);
        }
        (Ok(Piece::Plain(ready)), [key]) => items.store_answer(item_key(of, batch, key), ready, &fields, begun),
        _ => {}
    }
}

/// What an answer is to all parts of its request, and whether it speaks against its content.
fn read(
    result: Result<(fanin_upstream::Answer, crate::inflight::Checked), CallError>,
    object: &UpstreamObject,
    batch: &Batch,
    keys: &[&Key],
    counts: &OperationMetrics,
) -> (Landed, bool) {
    let name = object.upstream.name();
    let (answer, checked) = match result {
        Ok(answered) => answered,
        Err(error) => {
            let content = matches!(error.kind, ErrorKind::TooLarge | ErrorKind::Decode);
            return (Err(error), content);
        }
    };
    if !answer.status.is_success() {
        let content = speaks_of_content(answer.status);
        // Of a failure nobody reads more than the status, but an answer that says so by `ok` may have a body.
        let body = checked.unwrap_or(Body::Text);
        return (Ok(Piece::Plain(Arc::new(ParsedAnswer { answer, body }))), content);
    }
    let split = match checked {
        Ok(Body::Json(doc)) => Split::read(answer.clone(), doc, batch),
        Ok(_) => Err("it is no JSON".to_owned()),
        Err(error) => Err(error.to_string()),
    };
    match split {
        Ok(mut split) => {
            counts.batch_strays.fetch_add(split.strays(keys) as u64, Relaxed);
            if batch.rows.is_some() {
                // What a statement gives was asked for by somebody, whatever its column says.
                split.suspect_strays(keys);
            }
            (Ok(Piece::Split(Rc::new(split))), false)
        }
        Err(problem) => (Err(CallError::decode(name, &answer, problem)), true),
    }
}

/// A 4xx that may be about one of the keys, not about who asks or how often.
fn speaks_of_content(status: StatusCode) -> bool {
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

/// What a call gets of its requests.
async fn outcome(launch: Rc<Launch>, asked: Rc<Asked>, needed: Needed) -> SharedResult {
    let Some((object, _, batch)) = launch.object() else { return Err(CallError::cancelled(&Arc::from("batch"))) };
    let landed = match needed.as_slice() {
        // By far the most are in one request.
        [(request, _, _)] => SmallVec::<[Rc<[Landed]>; 1]>::from_elem(request.clone().await, 1),
        several => join_all(several.iter().map(|(request, _, _)| request.clone())).await.into(),
    };
    let mut found: SmallVec<[(&Part, &Split); 1]> = SmallVec::new();
    for ((_, place, part), landed) in needed.iter().zip(&landed) {
        match landed.get(*place) {
            Some(Ok(Piece::Split(split))) => found.push((part, split)),
            Some(Ok(Piece::Plain(ready))) => return Ok(ready.clone()),
            Some(Err(error)) => return Err(error.clone()),
            None => return Err(CallError::cancelled(object.upstream.name())),
        }
    }
    let of = |key: &Key| match found.as_slice() {
        [(_, split)] => Some(*split),
        several => several.iter().find(|(part, _)| part.keys().any(|other| other == key)).map(|(_, split)| *split),
    };
    let ready = match object.upstream.operation(launch.operation).item_cache.is_some() {
        false => gather(&asked, batch, of),
        true => items(&asked, batch, of),
    };
    match ready {
        Ok(ready) => Ok(Arc::new(ready)),
        Err(problem) => {
            let name = object.upstream.name();
            Err(found[0].1.error(name, problem))
        }
    }
}

/// What is under each key of a call, for those who put it together with what they have.
fn items<'a>(asked: &Asked, batch: &Batch, splits: impl Fn(&Key) -> Option<&'a Split>) -> Result<ParsedAnswer, String> {
    let nobody = "internal: no answer for a key";
    let of = |key: &Key| splits(key).ok_or(nobody)?.item(batch, &key.text);
    let items = asked.keys.iter().map(of).collect::<Result<Arc<[Item]>, String>>()?;
    let answer = items.first().ok_or(nobody)?.answer.as_ref().clone();
    Ok(ParsedAnswer { answer, body: Body::Items(items) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(keys: std::ops::Range<usize>) -> Rc<Asked> {
        let keys = keys.map(|key| Key { text: key.to_string().into(), quoted: false }).collect();
        Rc::new(Asked { keys, one: false, fields: None })
    }

    /// For each request the calls in it and its keys.
    fn packed(calls: &[Rc<Asked>], most: usize) -> Vec<(Vec<usize>, usize)> {
        let requests = pack(calls, most);
        // Whatever the packing, each call finds each of its keys once.
        for (number, asked) in calls.iter().enumerate() {
            let parts = requests.iter().flatten().filter(|(other, _)| *other == number).map(|(_, part)| part);
            let mut keys: Vec<&str> = parts.flat_map(|part| part.keys().map(|key| &*key.text)).collect();
            let mut own: Vec<&str> = asked.keys.iter().map(|key| &*key.text).collect();
            keys.sort_unstable();
            own.sort_unstable();
            assert_eq!(keys, own);
        }
        let describe = |parts: &Vec<(usize, Part)>| {
            let parts: (Vec<usize>, Vec<Part>) = parts.iter().cloned().unzip();
            let keys = union(&parts.1, &Batch::new("ids")).0.len();
            assert!(keys <= most);
            (parts.0, keys)
        };
        requests.iter().map(describe).collect()
    }

    #[test]
    fn calls_share_requests_and_large_ones_are_split() {
        assert_eq!(packed(&[call(0..2), call(1..4)], 10), [(vec![0, 1], 4)]);
        assert_eq!(packed(&[call(0..3), call(0..3)], 3), [(vec![0, 1], 3)], "united, they fit");
        assert_eq!(packed(&[call(0..2), call(5..7)], 3), [(vec![0], 2), (vec![1], 2)], "no call is cut without need");
        assert_eq!(packed(&[call(0..7)], 3), [(vec![0], 3), (vec![0], 3), (vec![0], 1)]);
        assert_eq!(packed(&[call(0..7), call(6..8)], 3), [(vec![0], 3), (vec![0], 3), (vec![0, 1], 2)]);
    }
}
