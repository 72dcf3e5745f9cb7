//! Calls of keyed operations whose items are kept: which keys go out, and what is made of what was there and what has come.

use std::rc::Rc;
use std::sync::Arc;

use fanin_config::Batch;
use fanin_lang::HostRef;
use fanin_upstream::ErrorKind;
use fanin_upstream::shared::{
    Body, CachedItem, Item, ItemCache, ItemLookup, OperationShared, ParsedAnswer, RefreshClaim, RequestKey,
    SharedResult,
};
use http::StatusCode;

use super::Work;
use super::batch::item_key;
use super::requested_keys::{Asked, Key};
use super::split::assemble;
use crate::kinds::UpstreamObject;

/// What the cache knows of a call.
pub(crate) enum Looked {
    /// All of it.
    Ready(ParsedAnswer),
    /// Not all of it: the rest goes out.
    Part(Rc<KeyedCall>),
}

/// Items to be fetched anew in the background, and the right to do so.
pub(crate) struct Refresh {
    pub(crate) asked: Rc<Asked>,
    pub(crate) claims: Vec<RefreshClaim>,
}

/// A call of which some keys go out.
pub(crate) struct KeyedCall {
    object: HostRef,
    operation: usize,
    shared: Arc<OperationShared>,
    of: RequestKey,
    asked: Rc<Asked>,
    /// What was there, for each key; empty if nothing was.
    have: Vec<Option<Item>>,
    /// The keys that were not there, with all fields that the request has for them.
    pub(crate) outgoing: Rc<Asked>,
}

/// Fields of several together; without a list all are wanted.
struct Union(Option<Vec<Box<str>>>);

impl Union {
    fn add(&mut self, more: Option<&[Box<str>]>) {
        match (&mut self.0, more) {
            (Some(all), Some(more)) => {
                for field in more {
                    if !all.contains(field) {
                        all.push(field.clone());
                    }
                }
            }
            (all, None) => *all = None,
            (None, Some(_)) => {}
        }
    }
}

/// A call, as it is told from others.
pub(crate) struct Told<'a> {
    pub(crate) object: &'a HostRef,
    /// The operation's place.
    pub(crate) operation: usize,
    pub(crate) shared: &'a Arc<OperationShared>,
    /// What calls must have in common to have items in common.
    pub(crate) of: &'a RequestKey,
    pub(crate) asked: Rc<Asked>,
}

impl Told<'_> {
    /// Looks for the items of a call. `refreshes` says that stale ones can be fetched anew in the background.
    pub(crate) fn look(self, items: &ItemCache, batch: &Batch, refreshes: bool) -> (Looked, Option<Refresh>) {
        let asked = &self.asked;
        let alone = asked.keys.len() == 1;
        let mut have: Vec<Option<Item>> = Vec::with_capacity(asked.keys.len());
        let mut missing: Vec<Key> = Vec::new();
        let mut wanted = Union(asked.fields.clone());
        let (mut stale, mut claims, mut refreshed) = (Vec::new(), Vec::new(), Union(Some(Vec::new())));
        for key in &asked.keys {
            let said = match items.lookup(item_key(self.of, batch, key), asked.fields.as_deref(), alone, refreshes) {
                ItemLookup::Fresh(said) => said,
                ItemLookup::Stale(said, fields, claim) => {
                    if let Some(claim) = claim {
                        stale.push(key.clone());
                        claims.push(claim);
                        refreshed.add(fields.as_deref());
                    }
                    said
                }
                ItemLookup::Miss(held) => {
                    if let Some(Some(held)) = held {
                        wanted.add(Some(&held));
                    }
                    have.push(None);
                    missing.push(key.clone());
                    continue;
                }
            };
            match said {
                CachedItem::Item(item) => have.push(Some(item)),
                // It is found only by a call for this key alone.
                CachedItem::Answer(ready) => return (Looked::Ready(ready.as_ref().clone()), None),
            }
        }
        let refresh = (!stale.is_empty())
            .then(|| Refresh { asked: Rc::new(Asked { keys: stale, one: false, fields: refreshed.0 }), claims });
        if missing.is_empty()
            && let Some(ready) = assemble(asked, batch, have.iter().flatten())
        {
            return (Looked::Ready(ready), refresh);
        }
        if missing.len() == asked.keys.len() {
            have.clear();
        }
        let outgoing = Asked { keys: missing, one: false, fields: wanted.0 };
        (Looked::Part(self.call(have, outgoing)), refresh)
    }

    /// The call of all that is asked for, whatever is known of it.
    pub(crate) fn anew(self) -> Rc<KeyedCall> {
        let outgoing = Asked { keys: self.asked.keys.clone(), one: false, fields: self.asked.fields.clone() };
        self.call(Vec::new(), outgoing)
    }

    fn call(self, have: Vec<Option<Item>>, outgoing: Asked) -> Rc<KeyedCall> {
        Rc::new(KeyedCall {
            object: self.object.clone(),
            operation: self.operation,
            shared: self.shared.clone(),
            of: self.of.clone(),
            asked: self.asked,
            have,
            outgoing: Rc::new(outgoing),
        })
    }
}

impl KeyedCall {
    fn parts(&self) -> Option<(&Batch, &ItemCache)> {
        let object = self.object.downcast::<UpstreamObject>()?;
        Some((object.operation(self.operation).1.batch.as_ref()?, self.shared.item_cache.as_ref()?))
    }

    /// The items of the keys that go out, if all of them have come meanwhile.
    pub(crate) fn again(&self) -> Option<ParsedAnswer> {
        let (batch, items) = self.parts()?;
        let fields = self.outgoing.fields.as_deref();
        let found = self.outgoing.keys.iter().map(|key| items.lookup_fresh(item_key(&self.of, batch, key), fields));
        let found = found.collect::<Option<Arc<[Item]>>>()?;
        let answer = found.first()?.answer.as_ref().clone();
        Some(ParsedAnswer { answer, body: Body::Items(found) })
    }

    /// What the call gets when its rest has come.
    pub(crate) async fn finish(self: Rc<Self>, work: Work) -> SharedResult {
        let outcome = work.await;
        let Some((batch, items)) = self.parts() else { return outcome };
        match outcome {
            Ok(ready) => match &ready.body {
                Body::Items(come) => Ok(self.assembled(batch, come.iter()).map_or(ready.clone(), Arc::new)),
                _ if fails(ready.answer.status) => Ok(self.saved(batch, items).map_or(ready, Arc::new)),
                _ => Ok(ready),
            },
            Err(error) if error.kind == ErrorKind::Cancelled => Err(error),
            Err(error) => self.saved(batch, items).map(Arc::new).ok_or(error),
        }
    }

    /// What was there and what has come, in the order of the call's keys.
    fn assembled<'a>(&'a self, batch: &Batch, mut come: impl Iterator<Item = &'a Item>) -> Option<ParsedAnswer> {
        if self.have.is_empty() {
            return assemble(&self.asked, batch, come);
        }
        let have = self.have.iter().map_while(|have| have.as_ref().or_else(|| come.next()));
        assemble(&self.asked, batch, have)
    }

    /// Old items in place of those that the upstream failed to give, if there are all of them.
    fn saved(&self, batch: &Batch, items: &ItemCache) -> Option<ParsedAnswer> {
        let fields = self.asked.fields.as_deref();
        let old = self.outgoing.keys.iter().map(|key| items.lookup_if_error(item_key(&self.of, batch, key), fields));
        let old = old.collect::<Option<Vec<Item>>>()?;
        items.count_used_on_error(old.len());
        self.assembled(batch, old.iter())
    }
}

/// Statuses that an old answer is better than (RFC 5861, 4).
pub(super) fn fails(status: StatusCode) -> bool {
    matches!(status.as_u16(), 500 | 502 | 503 | 504)
}
