//! Calls that merge, share or look up: what becomes of them between the flow and the wire.
//!
//! Rounds: a call that can merge is not sent where it is made. When no part of the flow can run and no answer is ready, the calls
//! made so far are sent together. They are held a little longer, at most for their `linger`, while the flow has a partner for
//! them on the way: a call of the same operation that waits for its arguments, or a suspended part of the flow that an answer
//! under way may wake.

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::Duration;

use fanin_config::Batch;
use fanin_lang::value::Frozen;
use fanin_lang::value::frozen::FrozenMap;
use fanin_lang::{Failure, FrozenValue, HostRef, Kind, Value};
use fanin_upstream::shared::{Body, Counts, Joined, Lead, Ready, SharedKey};
use fanin_upstream::{Answer, CallContext, CallError, Request};
use tokio::time::{Instant, Sleep, sleep_until};

use super::{End, FlowHost, OnFailure};
use crate::call::{Arguments, Merging, text, wrong};
use crate::inflight::InFlight;
use crate::merge::asked::Asked;
use crate::merge::batch::{Launch, launch};
use crate::merge::work::{self, Shareable};
use crate::merge::{Work, split};
use crate::upstream::UpstreamObject;

/// No call is held longer than this share of the time that it has left.
const LONGEST_HOLD: u32 = 10;

/// Calls of a request that wait to be sent together.
#[derive(Default)]
pub(crate) struct Rounds {
    groups: Vec<Group>,
    timer: Option<Pin<Box<Sleep>>>,
}

/// Calls that fit into one batch.
struct Group {
    object: HostRef,
    operation: usize,
    /// What they must have in common.
    of: SharedKey,
    base: Request,
    calls: Vec<Held>,
    /// When the first one's time is over.
    until: Instant,
    /// Calls that there were when it was first held.
    held: Option<usize>,
}

struct Held {
    index: usize,
    asked: Rc<Asked>,
    deadline: Instant,
    /// It leads a flight.
    lead: Option<Lead>,
    shareable: Option<Rc<Shareable>>,
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
    fn call_deadline(&self, index: usize, time: Duration) -> Instant {
        let required = matches!(self.calls[index].on_failure, OnFailure::Fail);
        let deadline = if required { self.deadline() } else { self.optional_deadline() };
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
        shared.counts.calls.fetch_add(1, Relaxed);
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
        let mut shareable = None;
        let mut lead = None;
        if operation.cache.is_some() || operation.shares_flights() {
            let key = SharedKey::with(&base, |key| {
                if let Some((_, asked)) = &asked {
                    asked.identify(key);
                }
            });
            let this = Rc::new(Shareable {
                upstream: upstream.clone(),
                shared: shared.clone(),
                key,
                ok: operation.ok.clone(),
                flights: operation.shares_flights(),
                spawns: self.worker.caller.spawns(),
                start: self.starter(&handle, at, &base, asked.as_ref().map(|(_, asked)| asked.clone())),
            });
            // What was read before this request's own write must not be taken for what there is after it.
            if !self.has_written_to(index) {
                if let Some(ready) = this.look() {
                    self.settle(index, &ready);
                    return Ok(());
                }
                if this.flights {
                    match this.join() {
                        Joined::Follow(follow) => {
                            self.push(InFlight::shared(index, this.followed(follow, deadline)));
                            return Ok(());
                        }
                        Joined::Lead(first) => lead = Some(first),
                    }
                }
            }
            shareable = Some(this);
        }
        match asked {
            Some((batch, asked)) => {
                let held = Held { index, asked, deadline, lead, shareable };
                self.hold(&handle, at, batch, base, held, linger);
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

    fn hold(
        &mut self,
        object: &HostRef,
        operation: usize,
        batch: &Batch,
        base: Request,
        held: Held,
        linger: Option<Duration>,
    ) {
        let now = Instant::now();
        let left = held.deadline.saturating_duration_since(now);
        let until = now + linger.unwrap_or(batch.linger).min(left / LONGEST_HOLD);
        let of = SharedKey::of(&base);
        // Without tasks beside the flow there is nobody to keep a batch open for others.
        if batch.share && self.worker.caller.spawns() {
            return self.share(object, operation, batch, base, of, held, until);
        }
        let groups = &mut self.rounds.get_or_insert_default().groups;
        let same = |group: &&mut Group| group.operation == operation && group.object.same(object) && group.of == of;
        match groups.iter_mut().find(same) {
            Some(group) => {
                group.until = group.until.min(until);
                group.calls.push(held);
            }
            None => {
                groups.push(Group { object: object.clone(), operation, of, base, calls: vec![held], until, held: None })
            }
        }
    }

    /// Joins a batch of several requests. Its time is the operation's own, as it is nobody's alone.
    #[allow(clippy::too_many_arguments)]
    fn share(
        &mut self,
        object: &HostRef,
        operation: usize,
        batch: &Batch,
        base: Request,
        of: SharedKey,
        held: Held,
        until: Instant,
    ) {
        let Some(upstream) = object.downcast::<UpstreamObject>() else { return };
        let shared = upstream.upstream.operation(operation);
        let make = || Launch {
            caller: self.worker.caller.clone(),
            object: object.clone(),
            operation,
            base,
            context: work::context(
                &upstream.upstream,
                operation,
                upstream.operation(operation).1.timeout,
                self.began(),
            ),
            max_depth: self.limits().max_json_depth,
        };
        let of = (Arc::as_ptr(shared).addr(), of);
        let work = self.worker.open.join(of, held.asked.clone(), until, batch.max_keys, make);
        let name = upstream.upstream.name().clone();
        self.await_member(held, work, &name, true);
    }

    /// Waits for a call's part of a batch, which may have more time than the call.
    fn await_member(&mut self, held: Held, work: Work, upstream: &Arc<str>, bounded: bool) {
        let work = match (held.shareable, held.lead) {
            (Some(shareable), Some(lead)) => shareable.led(lead, work, held.deadline),
            (Some(shareable), None) => work::until(upstream, held.deadline, work::alone(shareable, work)),
            (None, _) if bounded => work::until(upstream, held.deadline, work),
            (None, _) => work,
        };
        self.push(InFlight::shared(held.index, work));
    }

    /// Sends what is to be sent now. `suspended` says that parts of the flow wait.
    pub(super) fn round(&mut self, suspended: bool, context: &mut Context<'_>) -> Poll<bool> {
        let Some(rounds) = &mut self.rounds else { return Poll::Ready(false) };
        if rounds.groups.is_empty() {
            return Poll::Ready(false);
        }
        let now = Instant::now();
        let under_way = !self.inflight.is_empty();
        let mut groups = std::mem::take(&mut rounds.groups);
        let may_come =
            |group: &Group| now < group.until && (under_way && suspended || self.expects(group)) && !is_full(group);
        let mut keep: Vec<bool> = groups.iter().map(may_come).collect();
        // With nothing else under way nothing can come, unless what is sent now brings it.
        if !under_way && keep.iter().all(|keep| *keep) {
            keep.iter_mut().for_each(|keep| *keep = false);
        }
        let mut left = Vec::new();
        let mut sent = false;
        for (mut group, keep) in groups.drain(..).zip(keep) {
            if keep {
                if group.held.is_none() {
                    group.held = Some(group.calls.len());
                    count(&group, |counts, calls| counts.held.fetch_add(calls, Relaxed));
                }
                left.push(group);
            } else {
                if group.held == Some(group.calls.len()) && now >= group.until {
                    count(&group, |counts, calls| counts.held_in_vain.fetch_add(calls, Relaxed));
                }
                self.send_group(group);
                sent = true;
            }
        }
        let next = left.iter().map(|group| group.until).min();
        let Some(rounds) = &mut self.rounds else { return Poll::Ready(sent) };
        rounds.groups = left;
        let Some(next) = next.filter(|_| !sent) else { return Poll::Ready(sent) };
        let timer = match &mut rounds.timer {
            Some(timer) => {
                timer.as_mut().reset(next);
                timer
            }
            none => none.insert(Box::pin(sleep_until(next))),
        };
        match timer.as_mut().poll(context) {
            // Its time is over: around again.
            Poll::Ready(()) => Poll::Ready(true),
            Poll::Pending => Poll::Pending,
        }
    }

    /// Whether a call of the same operation waits for its arguments.
    fn expects(&self, group: &Group) -> bool {
        self.calls.iter().any(|entry| {
            let Some(unsent) = &entry.unsent else { return false };
            entry.object.same(&group.object)
                && unsent.1.merging.as_ref().is_some_and(|merging| merging.operation == Some(group.operation))
        })
    }

    fn send_group(&mut self, group: Group) {
        let Some(object) = group.object.downcast::<UpstreamObject>() else { return };
        let upstream = object.upstream.name().clone();
        let (_, operation) = object.operation(group.operation);
        let own = operation.timeout.unwrap_or(object.upstream.config().timeout);
        let shared = group.calls.iter().any(|held| held.lead.is_some());
        let last = group.calls.iter().map(|held| held.deadline).max();
        let first = group.calls.iter().map(|held| held.deadline).min();
        let context = match (shared, last) {
            // Others may wait for it too, longer than this request.
            (true, _) | (_, None) => work::context(&object.upstream, group.operation, operation.timeout, self.began()),
            (false, Some(deadline)) => CallContext {
                deadline,
                request_started: self.began(),
                timeout: Some(own.max(deadline - Instant::now())),
                safe: true,
                operation: u32::try_from(group.operation).ok(),
            },
        };
        let with = Launch {
            caller: self.worker.caller.clone(),
            object: group.object.clone(),
            operation: group.operation,
            base: group.base,
            context,
            max_depth: self.limits().max_json_depth,
        };
        let works = launch(with, group.calls.iter().map(|held| held.asked.clone()).collect());
        for (held, work) in group.calls.into_iter().zip(works) {
            let bounded = shared || Some(held.deadline) != last || first != last;
            self.await_member(held, work, &upstream, bounded);
        }
    }

    /// `masks.lookup(key)` and `masks.table()`.
    fn look_up(&mut self, index: usize, arguments: &Arguments, timeout: Option<Duration>) -> Result<(), Failure> {
        let object = self.calls[index].object.clone();
        let Some(object) = object.downcast::<UpstreamObject>() else { return Ok(()) };
        let Some(snapshot) = object.upstream.snapshot().cloned() else { return Ok(()) };
        let key = match arguments.key() {
            Value::None => None,
            key => {
                let name = object.upstream.name();
                Some(text(key).ok_or_else(|| wrong(format!("the key of {name}.lookup must be a text or a number")))?)
            }
        };
        let find = |table: &fanin_upstream::shared::Table, key: Option<&str>| {
            let node = match key {
                None => Some(table.rows()),
                Some(key) => table.get(key),
            };
            let body = node.map_or(Body::Absent, |node| Body::Part { doc: table.doc().clone(), at: node.at() });
            let answer = Answer {
                status: http::StatusCode::OK,
                headers: http::HeaderMap::new().into(),
                body: bytes::Bytes::new(),
                elapsed: Duration::ZERO,
            };
            Ready { answer, body }
        };
        if let Some(table) = snapshot.table() {
            self.settle(index, &find(&table, key.as_deref()));
            return Ok(());
        }
        let deadline = self.call_deadline(index, timeout.unwrap_or(object.upstream.config().timeout));
        let (name, key) = (object.upstream.name().clone(), key.map(|key| key.into_owned()));
        self.push(InFlight::shared(
            index,
            Box::pin(async move {
                let table = snapshot.wait(&name, deadline).await?;
                Ok(Arc::new(find(&table, key.as_deref())))
            }),
        ));
        Ok(())
    }

    /// Gives a call its answer at once.
    fn settle(&mut self, index: usize, ready: &Ready) {
        self.complete(index, Ok((ready.answer.clone(), Ok(ready.body.clone()))));
    }

    fn refuse(&mut self, index: usize, failure: Failure) {
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

fn is_full(group: &Group) -> bool {
    let batch =
        group.object.downcast::<UpstreamObject>().and_then(|object| object.operation(group.operation).1.batch.as_ref());
    batch.is_some_and(|batch| group.calls.iter().map(|held| held.asked.keys.len()).sum::<usize>() >= batch.max_keys)
}

fn count(group: &Group, add: impl FnOnce(&Counts, u64) -> u64) {
    if let Some(object) = group.object.downcast::<UpstreamObject>() {
        add(&object.upstream.operation(group.operation).counts, group.calls.len() as u64);
    }
}

/// A shared answer's value, if it is neither a whole document nor a text.
pub(super) fn value(body: Body, upstream: &str) -> Value {
    match body {
        Body::Empty | Body::Text => Value::None,
        Body::Json(doc) => Value::json(doc),
        Body::Part { doc, at } => Value::Json { at, doc },
        Body::List { doc, at } => {
            let items = at.iter().map(|at| FrozenValue::Json { at: *at, doc: doc.clone() });
            Value::Frozen(Arc::new(Frozen::List(items.collect())))
        }
        Body::Entries { doc, at } => {
            let entries = at.iter().map(|(key, value)| {
                let name = doc.node(*key).as_str().unwrap_or_default().as_ref().into();
                (FrozenValue::Str(name), FrozenValue::Json { at: *value, doc: doc.clone() })
            });
            Value::Frozen(Arc::new(Frozen::Dict(FrozenMap::new(entries.collect()))))
        }
        Body::Absent => {
            Value::Absent(Rc::new(Failure::new(Kind::Key, format!("{upstream} has nothing under this key"))))
        }
    }
}

/// Whether the parts that [`value`] made are of this document.
pub(super) fn is_of(parts: &Frozen, doc: &fanin_json::Doc) -> bool {
    let first = match parts {
        Frozen::List(items) => items.first(),
        Frozen::Dict(map) => map.entries().first().map(|(_, value)| value),
        _ => None,
    };
    matches!(first, Some(FrozenValue::Json { doc: of, .. }) if of.same(doc))
}
