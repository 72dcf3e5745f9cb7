//! Sends calls of operations with batches, single-flight or caches, and lookups in snapshots.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use fanin_config::Batch;
use fanin_lang::{Failure, HostRef};
use fanin_trace::Sharing;
use fanin_upstream::shared::{FlightRole, ItemCache, ParsedAnswer, RequestKey};
use fanin_upstream::{CallContext, CallError, Request};
use tokio::task::spawn_local;
use tokio::time::Instant;

use super::rounds::RoundCall;
use super::{CallState, FlowHost};
use crate::call::{Arguments, Merging};
use crate::call_record::Outcome;
use crate::inflight::InFlight;
use crate::kinds::UpstreamObject;
use crate::merge::batch::{BatchContext, send_batch};
use crate::merge::keyed::{ItemLookupResult, KeyedLookup, Refresh};
use crate::merge::requested_keys::RequestedKeys;
use crate::merge::split;
use crate::merge::work::{self, Shareable};

/// A call of an operation with an item cache.
struct ItemCall<'a> {
    index: usize,
    handle: &'a HostRef,
    /// The operation's index.
    at: usize,
    base: Request,
    deadline: Instant,
    linger: Option<Duration>,
}

impl FlowHost {
    /// Sends a call of an operation that merges, shares or caches, or looks up a snapshot.
    pub(super) fn send_merging(
        &mut self,
        index: usize,
        arguments: &Arguments,
        timeout: Option<Duration>,
        merging: Merging,
    ) {
        let started = match merging.operation {
            Some(operation) => self.start(index, arguments, operation, timeout, merging.linger),
            None => self.look_up(index, arguments, timeout),
        };
        if let Err(failure) = started {
            self.refuse(index, failure);
        }
    }

    /// The deadline of a call with this timeout, within the request's.
    pub(super) fn call_deadline(&self, index: usize, time: Duration) -> Instant {
        let deadline = if self.calls[index].required { self.deadline() } else { self.optional_deadline() };
        deadline.min(self.now() + time)
    }

    fn start(
        &mut self,
        index: usize,
        arguments: &Arguments,
        at: usize,
        timeout: Option<Duration>,
        linger: Option<Duration>,
    ) -> Result<(), Failure> {
        let handle = self.calls[index].object.clone();
        // Entries are made only for upstreams.
        let Some(object) = handle.downcast::<UpstreamObject>() else { return Ok(()) };
        let upstream = &object.upstream;
        let shared = upstream.operation(at);
        if self.playback().is_none() {
            shared.metrics.calls.fetch_add(1, Relaxed);
        }
        let (name, operation) = object.operation(at);
        let base =
            arguments.request_without(object, &operation.method, self.req.headers(), operation.batch.as_ref())?;
        let own_timeout = timeout.or(operation.timeout).unwrap_or(upstream.config().timeout);
        let deadline = self.call_deadline(index, own_timeout);
        self.record_sent(index, &base);
        let requested = match &operation.batch {
            None => None,
            Some(batch) => {
                let requested = Rc::new(RequestedKeys::read(&format!("{}.{name}", upstream.name()), batch, arguments)?);
                if requested.keys.is_empty() {
                    self.record_sharing(index, Sharing::Cache);
                    self.settle(index, &split::empty_answer(batch));
                    return Ok(());
                }
                Some((batch, requested))
            }
        };
        self.identify(index, || {
            RequestKey::with(&base, |key| {
                if let Some((_, requested)) = &requested {
                    requested.append_to_key(key);
                }
            })
        });
        if let Some(sharing) = self.recorded_sharing(index) {
            match (requested, sharing) {
                (Some((batch, requested)), Sharing::Batch { .. }) => {
                    let base_key = RequestKey::of(&base);
                    let held = RoundCall { index, requested, deadline, lead: None, shareable: None, keyed: None };
                    self.add_to_round(&handle, at, batch, base, base_key, held, linger);
                }
                _ => self.play_back(index, own_timeout),
            }
            return Ok(());
        }
        if let (Some((batch, requested)), Some(items)) = (&requested, &shared.item_cache) {
            let call = ItemCall { index, handle: &handle, at, base, deadline, linger };
            self.start_item_call(call, batch, items, requested.clone());
            return Ok(());
        }
        let mut shareable = None;
        let mut lead = None;
        if operation.cache.is_some() || operation.uses_single_flight() {
            let key = RequestKey::with(&base, |key| {
                if let Some((_, requested)) = &requested {
                    requested.append_to_key(key);
                }
            });
            let this = Rc::new(Shareable {
                upstream: upstream.clone(),
                shared: shared.clone(),
                key,
                ok: operation.ok.clone(),
                single_flight: operation.uses_single_flight(),
                can_spawn: self.worker.caller.spawns(),
                make_call: self.call_factory(
                    &handle,
                    at,
                    &base,
                    requested.as_ref().map(|(_, requested)| requested.clone()),
                    index,
                ),
                member: self.member(index),
                keyed: None,
            });
            // After an effect of this request, an answer from before it may be outdated.
            if !self.has_written_to(index) {
                if let Some(ready) = this.lookup() {
                    self.record_sharing(index, Sharing::Cache);
                    self.settle(index, &ready);
                    return Ok(());
                }
                if this.single_flight {
                    match this.join() {
                        FlightRole::Follower(follow) => {
                            self.record_sharing(index, Sharing::SingleFlight);
                            self.record_leader(index, follow.leader());
                            self.push(InFlight::shared(index, this.follow_until(follow, deadline)));
                            return Ok(());
                        }
                        FlightRole::Leader(first) => lead = Some(first),
                    }
                }
            }
            shareable = Some(this);
        }
        match requested {
            Some((batch, requested)) => {
                let base_key = RequestKey::of(&base);
                let held = RoundCall { index, requested, deadline, lead, shareable, keyed: None };
                self.add_to_round(&handle, at, batch, base, base_key, held, linger);
            }
            None => {
                let Some(shareable) = shareable else { return Ok(()) };
                let work = match lead {
                    Some(lead) => {
                        let work = (shareable.make_call)();
                        shareable.lead_until(lead, work, deadline)
                    }
                    None => {
                        let context = CallContext {
                            deadline,
                            request_started: self.request_started(),
                            timeout: Some(own_timeout),
                            safe: true,
                            operation: u32::try_from(at).ok(),
                            trace: self.call_parent(index),
                            attempts: self.attempt_log(index),
                        };
                        let call = work::call(
                            &self.worker.caller,
                            upstream,
                            base,
                            context,
                            operation,
                            self.limits().max_json_depth,
                        );
                        work::unshared(shareable, call)
                    }
                };
                self.push(InFlight::shared(index, work));
            }
        }
        Ok(())
    }

    /// Answers a call from the item cache, and requests the missing keys.
    fn start_item_call(&mut self, call: ItemCall<'_>, batch: &Batch, items: &ItemCache, requested: Rc<RequestedKeys>) {
        let ItemCall { index, handle, at, base, deadline, linger } = call;
        let Some(object) = handle.downcast::<UpstreamObject>() else { return };
        let (upstream, (_, operation)) = (&object.upstream, object.operation(at));
        let shared = upstream.operation(at);
        let base_key = RequestKey::of(&base);
        let can_spawn = self.worker.caller.spawns();
        let lookup = KeyedLookup { object: handle, operation: at, shared, base_key: &base_key, requested };
        // After an effect of this request, items from before it may be outdated.
        let written = self.has_written_to(index);
        let keyed = if written {
            lookup.fetch_all()
        } else {
            let (found, refresh) = lookup.lookup(items, batch, can_spawn);
            if let Some(Refresh { requested, claims }) = refresh {
                let start = self.call_factory(handle, at, &base, Some(requested), index);
                spawn_local(async move {
                    let _claims = claims;
                    // Reading the answer stores its items. After a failure the old items stay.
                    let _answer = start().await;
                });
            }
            match found {
                ItemLookupResult::Complete(ready) => {
                    self.record_sharing(index, Sharing::Cache);
                    return self.settle(index, &ready);
                }
                ItemLookupResult::Incomplete(keyed) => keyed,
            }
        };
        let requested = keyed.outgoing.clone();
        let (mut lead, mut shareable) = (None, None);
        if operation.uses_single_flight() && !written {
            let this = Rc::new(Shareable {
                upstream: upstream.clone(),
                shared: shared.clone(),
                key: RequestKey::with(&base, |key| requested.append_to_key(key)),
                ok: operation.ok.clone(),
                single_flight: true,
                can_spawn,
                make_call: self.call_factory(handle, at, &base, Some(requested.clone()), index),
                member: self.member(index),
                keyed: Some(keyed.clone()),
            });
            match this.join() {
                FlightRole::Follower(follow) => {
                    self.record_sharing(index, Sharing::SingleFlight);
                    self.record_leader(index, follow.leader());
                    let work = this.follow_until(follow, deadline);
                    return self.push_shared(index, work, Some(keyed));
                }
                FlightRole::Leader(first) => lead = Some(first),
            }
            shareable = Some(this);
        }
        let held = RoundCall { index, requested, deadline, lead, shareable, keyed: Some(keyed) };
        self.add_to_round(handle, at, batch, base, base_key, held, linger);
    }

    /// Makes the request that waiters of a flight share. May be called again if a flight is lost. `index` is the call that makes it.
    fn call_factory(
        &self,
        object: &HostRef,
        at: usize,
        base: &Request,
        requested: Option<Rc<RequestedKeys>>,
        index: usize,
    ) -> work::CallFactory {
        let (trace, attempts) = (self.call_parent(index), self.attempt_log(index));
        let (caller, object, base) = (self.worker.caller.clone(), object.clone(), base.clone());
        let (started, max_depth) = (self.request_started(), self.limits().max_json_depth);
        Box::new(move || {
            let Some(upstream) = object.downcast::<UpstreamObject>() else {
                return Box::pin(std::future::ready(Err(CallError::cancelled(&Arc::from("")))));
            };
            let (_, operation) = upstream.operation(at);
            let context = work::context(&upstream.upstream, at, operation.timeout, started);
            let context = CallContext { trace: trace.clone(), attempts: attempts.clone(), ..context };
            match &requested {
                None => work::call(&caller, &upstream.upstream, base.clone(), context, operation, max_depth),
                Some(requested) => {
                    let batch_context = BatchContext {
                        caller: caller.clone(),
                        object: object.clone(),
                        operation: at,
                        base: base.clone(),
                        base_key: RequestKey::of(&base),
                        call: context,
                        max_depth,
                        requests: Cell::new(0),
                    };
                    let cancelled = || CallError::cancelled(upstream.upstream.name());
                    // One call gives one result.
                    send_batch(batch_context, vec![requested.clone()])
                        .pop()
                        .unwrap_or_else(|| Box::pin(std::future::ready(Err(cancelled()))))
                }
            }
        })
    }

    /// Whether this request has sent an effect to the call's upstream.
    fn has_written_to(&self, index: usize) -> bool {
        let object = &self.calls[index].object;
        self.wrote && self.calls.iter().any(|entry| !entry.safe && entry.unsent.is_none() && entry.object.same(object))
    }

    /// Settles a call with a cached answer.
    pub(super) fn settle(&mut self, index: usize, ready: &ParsedAnswer) {
        self.complete(index, Ok((ready.answer.clone(), Ok(ready.body.clone()))));
    }

    pub(super) fn refuse(&mut self, index: usize, failure: Failure) {
        let position = self.position(self.calls[index].site);
        let entry = &mut self.calls[index];
        entry.state = CallState::Failed;
        entry.slot.settle(Err(failure.at(position)));
        self.record_ended(index, Outcome::NotSent);
    }
}
