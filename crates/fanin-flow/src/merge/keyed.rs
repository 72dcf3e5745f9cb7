//! Calls of operations with an item cache: requests the missing keys, and assembles cached and fetched items.

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
use super::requested_keys::{Key, RequestedKeys};
use super::split::assemble;
use crate::kinds::UpstreamObject;

/// Result of looking up a call's items in the cache.
pub(crate) enum ItemLookupResult {
    /// The whole answer.
    Complete(ParsedAnswer),
    /// The remaining keys have to be requested.
    Incomplete(Rc<KeyedCall>),
}

/// Stale items to refresh in the background, and the claims that keep others from doing so.
pub(crate) struct Refresh {
    pub(crate) requested: Rc<RequestedKeys>,
    pub(crate) claims: Vec<RefreshClaim>,
}

/// A call of which some keys are requested.
pub(crate) struct KeyedCall {
    object: HostRef,
    operation: usize,
    shared: Arc<OperationShared>,
    base_key: RequestKey,
    requested: Rc<RequestedKeys>,
    /// The cached item of each key; empty if none is cached.
    cached: Vec<Option<Item>>,
    /// The missing keys, with all fields to request.
    pub(crate) outgoing: Rc<RequestedKeys>,
}

/// Union of several lists of fields. `None` means all fields.
struct FieldUnion(Option<Vec<Box<str>>>);

impl FieldUnion {
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

/// A call to look up in the item cache.
pub(crate) struct KeyedLookup<'a> {
    pub(crate) object: &'a HostRef,
    /// The operation's index.
    pub(crate) operation: usize,
    pub(crate) shared: &'a Arc<OperationShared>,
    /// Calls with the same key share items.
    pub(crate) base_key: &'a RequestKey,
    pub(crate) requested: Rc<RequestedKeys>,
}

impl KeyedLookup<'_> {
    /// Looks up the items of a call. `refreshes`: stale ones can be refreshed in the background.
    pub(crate) fn lookup(
        self,
        items: &ItemCache,
        batch: &Batch,
        refreshes: bool,
    ) -> (ItemLookupResult, Option<Refresh>) {
        let requested = &self.requested;
        let single_key = requested.keys.len() == 1;
        let mut cached: Vec<Option<Item>> = Vec::with_capacity(requested.keys.len());
        let mut missing: Vec<Key> = Vec::new();
        let mut wanted = FieldUnion(requested.fields.clone());
        let (mut stale, mut claims, mut refreshed) = (Vec::new(), Vec::new(), FieldUnion(Some(Vec::new())));
        for key in &requested.keys {
            let found = match items.lookup(
                item_key(self.base_key, batch, key),
                requested.fields.as_deref(),
                single_key,
                refreshes,
            ) {
                ItemLookup::Fresh(found) => found,
                ItemLookup::Stale(found, fields, claim) => {
                    if let Some(claim) = claim {
                        stale.push(key.clone());
                        claims.push(claim);
                        refreshed.add(fields.as_deref());
                    }
                    found
                }
                ItemLookup::Miss(held) => {
                    if let Some(Some(held)) = held {
                        wanted.add(Some(&held));
                    }
                    cached.push(None);
                    missing.push(key.clone());
                    continue;
                }
            };
            match found {
                CachedItem::Item(item) => cached.push(Some(item)),
                // Found only if this is the call's only key.
                CachedItem::Answer(ready) => return (ItemLookupResult::Complete(ready.as_ref().clone()), None),
            }
        }
        let refresh = (!stale.is_empty()).then(|| Refresh {
            requested: Rc::new(RequestedKeys { keys: stale, single: false, fields: refreshed.0 }),
            claims,
        });
        if missing.is_empty()
            && let Some(ready) = assemble(requested, batch, cached.iter().flatten())
        {
            return (ItemLookupResult::Complete(ready), refresh);
        }
        if missing.len() == requested.keys.len() {
            cached.clear();
        }
        let outgoing = RequestedKeys { keys: missing, single: false, fields: wanted.0 };
        (ItemLookupResult::Incomplete(self.call(cached, outgoing)), refresh)
    }

    /// Requests all keys, without the cache.
    pub(crate) fn fetch_all(self) -> Rc<KeyedCall> {
        let outgoing =
            RequestedKeys { keys: self.requested.keys.clone(), single: false, fields: self.requested.fields.clone() };
        self.call(Vec::new(), outgoing)
    }

    fn call(self, cached: Vec<Option<Item>>, outgoing: RequestedKeys) -> Rc<KeyedCall> {
        Rc::new(KeyedCall {
            object: self.object.clone(),
            operation: self.operation,
            shared: self.shared.clone(),
            base_key: self.base_key.clone(),
            requested: self.requested,
            cached,
            outgoing: Rc::new(outgoing),
        })
    }
}

impl KeyedCall {
    fn parts(&self) -> Option<(&Batch, &ItemCache)> {
        let object = self.object.downcast::<UpstreamObject>()?;
        Some((object.operation(self.operation).1.batch.as_ref()?, self.shared.item_cache.as_ref()?))
    }

    /// The items of the missing keys, if all have been cached since.
    pub(crate) fn lookup_again(&self) -> Option<ParsedAnswer> {
        let (batch, items) = self.parts()?;
        let fields = self.outgoing.fields.as_deref();
        let found =
            self.outgoing.keys.iter().map(|key| items.lookup_fresh(item_key(&self.base_key, batch, key), fields));
        let found = found.collect::<Option<Arc<[Item]>>>()?;
        let answer = found.first()?.answer.as_ref().clone();
        Some(ParsedAnswer { answer, body: Body::Items(found) })
    }

    /// The call's answer, once the request of the missing keys has ended.
    pub(crate) async fn finish(self: Rc<Self>, work: Work) -> SharedResult {
        let outcome = work.await;
        let Some((batch, items)) = self.parts() else { return outcome };
        match outcome {
            Ok(ready) => match &ready.body {
                Body::Items(arrived) => Ok(self.assembled(batch, arrived.iter()).map_or(ready.clone(), Arc::new)),
                _ if is_server_failure(ready.answer.status) => {
                    Ok(self.assembled_from_stale(batch, items).map_or(ready, Arc::new))
                }
                _ => Ok(ready),
            },
            Err(error) if error.kind == ErrorKind::Cancelled => Err(error),
            Err(error) => self.assembled_from_stale(batch, items).map(Arc::new).ok_or(error),
        }
    }

    /// Cached and fetched items, in the order of the call's keys.
    fn assembled<'a>(&'a self, batch: &Batch, mut arrived: impl Iterator<Item = &'a Item>) -> Option<ParsedAnswer> {
        if self.cached.is_empty() {
            return assemble(&self.requested, batch, arrived);
        }
        let cached = self.cached.iter().map_while(|cached| cached.as_ref().or_else(|| arrived.next()));
        assemble(&self.requested, batch, cached)
    }

    /// Stale items in place of those that could not be fetched, if all are cached.
    fn assembled_from_stale(&self, batch: &Batch, items: &ItemCache) -> Option<ParsedAnswer> {
        let fields = self.requested.fields.as_deref();
        let old =
            self.outgoing.keys.iter().map(|key| items.lookup_if_error(item_key(&self.base_key, batch, key), fields));
        let old = old.collect::<Option<Vec<Item>>>()?;
        items.count_used_on_error(old.len());
        self.assembled(batch, old.iter())
    }
}

/// Statuses for which stale-if-error applies (RFC 5861, section 4).
pub(super) fn is_server_failure(status: StatusCode) -> bool {
    matches!(status.as_u16(), 500 | 502 | 503 | 504)
}
