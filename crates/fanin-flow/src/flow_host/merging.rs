//! Calls that merge, share or look up: what becomes of them between the flow and the wire.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use fanin_config::Batch;
use fanin_lang::{Failure, HostRef};
use fanin_upstream::shared::{FlightRole, ItemCache, ParsedAnswer, RequestKey};
use fanin_upstream::{CallContext, CallError, Request};
use tokio::task::spawn_local;
use tokio::time::Instant;

use super::rounds::Held;
use super::{End, FlowHost};
use crate::call::{Arguments, Merging};
use crate::inflight::InFlight;
use crate::kinds::UpstreamObject;
use crate::merge::batch::{Launch, launch};
use crate::merge::keyed::{Looked, Refresh, Told};
use crate::merge::requested_keys::Asked;
use crate::merge::split;
use crate::merge::work::{self, Shareable};

/// A call whose items are kept each by itself.
struct Kept<'a> {
    index: usize,
    handle: &'a HostRef,
    /// The operation's place.
    at: usize,
    base: Request,
    deadline: Instant,
    linger: Option<Duration>,
}

impl FlowHost {
    /// Sends a call of an operation that merges, shares or caches, or looks into a snapshot.
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

    /// The deadline of a call that may take `time`, by the time that the request has.
    pub(super) fn call_deadline(&self, index: usize, time: Duration) -> Instant {
        let deadline = if self.calls[index].required { self.deadline() } else { self.optional_deadline() };
        deadline.min(Instant::now() + time)
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
        shared.metrics.calls.fetch_add(1, Relaxed);
        let (name, operation) = object.operation(at);
        let base =
            arguments.request_without(object, &operation.method, self.req.headers(), operation.batch.as_ref())?;
        let own = timeout.or(operation.timeout).unwrap_or(upstream.config().timeout);
        let deadline = self.call_deadline(index, own);
        self.traced(index, &base);
        let asked = match &operation.batch {
            None => None,
            Some(batch) => {
                let asked = Rc::new(Asked::read(&format!("{}.{name}", upstream.name()), batch, arguments)?);
                if asked.keys.is_empty() {
                    self.settle(index, &split::nothing(batch));
                    return Ok(());
                }
                Some((batch, asked))
            }
        };
        if let (Some((batch, asked)), Some(items)) = (&asked, &shared.item_cache) {
            let call = Kept { index, handle: &handle, at, base, deadline, linger };
            self.start_kept(call, batch, items, asked.clone());
            return Ok(());
        }
        let mut shareable = None;
        let mut lead = None;
        if operation.cache.is_some() || operation.uses_single_flight() {
            let key = RequestKey::with(&base, |key| {
                if let Some((_, asked)) = &asked {
                    asked.identify(key);
                }
            });
            let this = Rc::new(Shareable {
                upstream: upstream.clone(),
                shared: shared.clone(),
                key,
                ok: operation.ok.clone(),
                flights: operation.uses_single_flight(),
                spawns: self.worker.caller.spawns(),
                start: self.starter(&handle, at, &base, asked.as_ref().map(|(_, asked)| asked.clone())),
                keyed: None,
            });
            // What was read before this request's own write must not be taken for what there is after it.
            if !self.has_written_to(index) {
                if let Some(ready) = this.look() {
                    self.settle(index, &ready);
                    return Ok(());
                }
                if this.flights {
                    match this.join() {
                        FlightRole::Follower(follow) => {
                            self.push(InFlight::shared(index, this.followed(follow, deadline)));
                            return Ok(());
                        }
                        FlightRole::Leader(first) => lead = Some(first),
                    }
                }
            }
            shareable = Some(this);
        }
        match asked {
            Some((batch, asked)) => {
                let of = RequestKey::of(&base);
                let held = Held { index, asked, deadline, lead, shareable, keyed: None };
                self.hold(&handle, at, batch, base, of, held, linger);
            }
            None => {
                let Some(shareable) = shareable else { return Ok(()) };
                let work = match lead {
                    Some(lead) => {
                        let work = (shareable.start)();
                        shareable.led(lead, work, deadline)
                    }
                    None => {
                        let context = CallContext {
                            deadline,
                            request_started: self.began(),
                            timeout: Some(own),
                            safe: true,
                            operation: u32::try_from(at).ok(),
                        };
                        let call = work::call(
                            &self.worker.caller,
                            upstream,
                            base,
                            context,
                            &operation.ok,
                            self.limits().max_json_depth,
                        );
                        work::alone(shareable, call)
                    }
                };
                self.push(InFlight::shared(index, work));
            }
        }
        Ok(())
    }

    /// Sends what is not kept of a call whose items are kept each by itself.
    fn start_kept(&mut self, call: Kept<'_>, batch: &Batch, items: &ItemCache, asked: Rc<Asked>) {
        let Kept { index, handle, at, base, deadline, linger } = call;
        let Some(object) = handle.downcast::<UpstreamObject>() else { return };
        let (upstream, (_, operation)) = (&object.upstream, object.operation(at));
        let shared = upstream.operation(at);
        let of = RequestKey::of(&base);
        let spawns = self.worker.caller.spawns();
        let told = Told { object: handle, operation: at, shared, of: &of, asked };
        // What was read before this request's own write must not be taken for what there is after it.
        let written = self.has_written_to(index);
        let keyed = if written {
            told.anew()
        } else {
            let (looked, refresh) = told.look(items, batch, spawns);
            if let Some(Refresh { asked, claims }) = refresh {
                let start = self.starter(handle, at, &base, Some(asked));
                spawn_local(async move {
                    let _in_time_for_another = claims;
                    // What it gives is kept where the answer is read; a failure leaves the old items as they are.
                    let _given = start().await;
                });
            }
            match looked {
                Looked::Ready(ready) => return self.settle(index, &ready),
                Looked::Part(keyed) => keyed,
            }
        };
        let asked = keyed.outgoing.clone();
        let (mut lead, mut shareable) = (None, None);
        if operation.uses_single_flight() && !written {
            let this = Rc::new(Shareable {
                upstream: upstream.clone(),
                shared: shared.clone(),
                key: RequestKey::with(&base, |key| asked.identify(key)),
                ok: operation.ok.clone(),
                flights: true,
                spawns,
                start: self.starter(handle, at, &base, Some(asked.clone())),
                keyed: Some(keyed.clone()),
            });
            match this.join() {
                FlightRole::Follower(follow) => {
                    let work = this.followed(follow, deadline);
                    return self.push_shared(index, work, Some(keyed));
                }
                FlightRole::Leader(first) => lead = Some(first),
            }
            shareable = Some(this);
        }
        let held = Held { index, asked, deadline, lead, shareable, keyed: Some(keyed) };
        self.hold(handle, at, batch, base, of, held, linger);
    }

    /// Makes the call for everybody, as often as need be.
    fn starter(&self, object: &HostRef, at: usize, base: &Request, asked: Option<Rc<Asked>>) -> work::Start {
        let (caller, object, base) = (self.worker.caller.clone(), object.clone(), base.clone());
        let (started, max_depth) = (self.began(), self.limits().max_json_depth);
        Box::new(move || {
            let Some(upstream) = object.downcast::<UpstreamObject>() else {
                return Box::pin(std::future::ready(Err(CallError::cancelled(&Arc::from("")))));
            };
            let (_, operation) = upstream.operation(at);
            let context = work::context(&upstream.upstream, at, operation.timeout, started);
            match &asked {
                None => work::call(&caller, &upstream.upstream, base.clone(), context, &operation.ok, max_depth),
                Some(asked) => {
                    let with = Launch {
                        caller: caller.clone(),
                        object: object.clone(),
                        operation: at,
                        base: base.clone(),
                        of: RequestKey::of(&base),
                        context,
                        max_depth,
                    };
                    let cancelled = || CallError::cancelled(upstream.upstream.name());
                    // One call in, one work out.
                    launch(with, vec![asked.clone()])
                        .pop()
                        .unwrap_or_else(|| Box::pin(std::future::ready(Err(cancelled()))))
                }
            }
        })
    }

    /// Whether this request has sent something to the call's upstream that may have changed it.
    fn has_written_to(&self, index: usize) -> bool {
        let object = &self.calls[index].object;
        self.wrote && self.calls.iter().any(|entry| !entry.safe && entry.unsent.is_none() && entry.object.same(object))
    }

    /// Gives a call its answer at once.
    pub(super) fn settle(&mut self, index: usize, ready: &ParsedAnswer) {
        self.complete(index, Ok((ready.answer.clone(), Ok(ready.body.clone()))));
    }

    pub(super) fn refuse(&mut self, index: usize, failure: Failure) {
        let position = self.position(self.calls[index].site);
        let entry = &mut self.calls[index];
        entry.end = End::Failed;
        entry.slot.settle(Err(failure.at(position)));
        self.trace(index, |trace, _| trace.outcome = "not sent".to_owned());
    }

    fn traced(&mut self, index: usize, request: &Request) {
        if self.traces.is_some() {
            let target = format!("{} {}", request.method, request.path_and_query);
            self.trace(index, |trace, now| {
                trace.target = target;
                trace.sent = Some(now);
            });
        }
    }
}
