//! Rounds: which calls of a request are sent together, and when.
//!
//! A call that can merge is not sent where it is made. When no part of the flow can run and no answer is ready, the calls
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
use fanin_lang::HostRef;
use fanin_upstream::shared::{Leader, OperationMetrics, RequestKey};
use fanin_upstream::{CallContext, Request};
use tokio::time::{Instant, Sleep, sleep_until};

use super::FlowHost;
use crate::inflight::InFlight;
use crate::kinds::UpstreamObject;
use crate::merge::Work;
use crate::merge::batch::{BatchContext, send_batch};
use crate::merge::keyed::KeyedCall;
use crate::merge::requested_keys::RequestedKeys;
use crate::merge::work::{self, Shareable};

/// No call is held longer than this share of the time that it has left.
const HOLD_DIVISOR: u32 = 10;

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
    base_key: RequestKey,
    base: Request,
    calls: Vec<RoundCall>,
    /// When the first one's time is over.
    until: Instant,
    /// Calls that there were when it was first held.
    calls_at_first_hold: Option<usize>,
}

/// A call that waits for its round.
pub(super) struct RoundCall {
    pub(super) index: usize,
    /// What goes out for it.
    pub(super) requested: Rc<RequestedKeys>,
    pub(super) deadline: Instant,
    /// It leads a flight.
    pub(super) lead: Option<Leader>,
    pub(super) shareable: Option<Rc<Shareable>>,
    /// What is made of that, where items are kept.
    pub(super) keyed: Option<Rc<KeyedCall>>,
}

impl FlowHost {
    /// Puts a call among those that go together with it. `of` is what `base` is told by.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn add_to_round(
        &mut self,
        object: &HostRef,
        operation: usize,
        batch: &Batch,
        base: Request,
        base_key: RequestKey,
        held: RoundCall,
        linger: Option<Duration>,
    ) {
        let now = Instant::now();
        let left = held.deadline.saturating_duration_since(now);
        let until = now + linger.unwrap_or(batch.linger).min(left / HOLD_DIVISOR);
        // Without tasks beside the flow there is nobody to keep a batch open for others.
        if batch.share && self.worker.caller.spawns() {
            return self.join_shared_batch(object, operation, batch, base, base_key, held, until);
        }
        let groups = &mut self.rounds.get_or_insert_default().groups;
        let same = |group: &&mut Group| {
            group.operation == operation && group.object.same(object) && group.base_key == base_key
        };
        match groups.iter_mut().find(same) {
            Some(group) => {
                group.until = group.until.min(until);
                group.calls.push(held);
            }
            None => groups.push(Group {
                object: object.clone(),
                operation,
                base_key,
                base,
                calls: vec![held],
                until,
                calls_at_first_hold: None,
            }),
        }
    }

    /// Joins a batch of several requests. Its time is the operation's own, as it is nobody's alone.
    #[allow(clippy::too_many_arguments)]
    fn join_shared_batch(
        &mut self,
        object: &HostRef,
        operation: usize,
        batch: &Batch,
        base: Request,
        base_key: RequestKey,
        held: RoundCall,
        until: Instant,
    ) {
        let Some(upstream) = object.downcast::<UpstreamObject>() else { return };
        let shared = upstream.upstream.operation(operation);
        let batch_key = (Arc::as_ptr(shared).addr(), base_key.clone());
        let make = || BatchContext {
            caller: self.worker.caller.clone(),
            object: object.clone(),
            operation,
            base,
            base_key,
            call: work::context(
                &upstream.upstream,
                operation,
                upstream.operation(operation).1.timeout,
                self.request_started(),
            ),
            max_depth: self.limits().max_json_depth,
        };
        let work = self.worker.open.join(batch_key, held.requested.clone(), until, batch.max_keys, make);
        let name = upstream.upstream.name().clone();
        self.await_member(held, work, &name, true);
    }

    /// Waits for a call's part of a batch, which may have more time than the call.
    fn await_member(&mut self, held: RoundCall, work: Work, upstream: &Arc<str>, bounded: bool) {
        let work = match (held.shareable, held.lead) {
            (Some(shareable), Some(lead)) => shareable.lead_until(lead, work, held.deadline),
            (Some(shareable), None) => work::with_deadline(upstream, held.deadline, work::unshared(shareable, work)),
            (None, _) if bounded => work::with_deadline(upstream, held.deadline, work),
            (None, _) => work,
        };
        self.push_shared(held.index, work, held.keyed);
    }

    /// A call's work is under way; what it gives is put together with what was there, if anything was kept.
    pub(super) fn push_shared(&mut self, index: usize, work: Work, keyed: Option<Rc<KeyedCall>>) {
        let work = match keyed {
            Some(keyed) => Box::pin(keyed.finish(work)),
            None => work,
        };
        self.push(InFlight::shared(index, work));
    }

    /// Sends what is to be sent now. `suspended` says that parts of the flow wait.
    pub(super) fn send_round(&mut self, suspended: bool, context: &mut Context<'_>) -> Poll<bool> {
        let Some(rounds) = &mut self.rounds else { return Poll::Ready(false) };
        if rounds.groups.is_empty() {
            return Poll::Ready(false);
        }
        let now = Instant::now();
        let under_way = !self.inflight.is_empty();
        let mut groups = std::mem::take(&mut rounds.groups);
        let may_grow = |group: &Group| {
            now < group.until && (under_way && suspended || self.expects_more(group)) && !is_full(group)
        };
        let mut keep: Vec<bool> = groups.iter().map(may_grow).collect();
        // With nothing else under way nothing can come, unless what is sent now brings it.
        if !under_way && keep.iter().all(|keep| *keep) {
            keep.iter_mut().for_each(|keep| *keep = false);
        }
        let mut left = Vec::new();
        let mut sent = false;
        for (mut group, keep) in groups.drain(..).zip(keep) {
            if keep {
                if group.calls_at_first_hold.is_none() {
                    group.calls_at_first_hold = Some(group.calls.len());
                    add_metric(&group, |counts, calls| counts.held.fetch_add(calls, Relaxed));
                }
                left.push(group);
            } else {
                if group.calls_at_first_hold == Some(group.calls.len()) && now >= group.until {
                    add_metric(&group, |counts, calls| counts.held_in_vain.fetch_add(calls, Relaxed));
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
    fn expects_more(&self, group: &Group) -> bool {
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
            (true, _) | (_, None) => {
                work::context(&object.upstream, group.operation, operation.timeout, self.request_started())
            }
            (false, Some(deadline)) => CallContext {
                deadline,
                request_started: self.request_started(),
                timeout: Some(own.max(deadline - Instant::now())),
                safe: true,
                operation: u32::try_from(group.operation).ok(),
            },
        };
        let batch_context = BatchContext {
            caller: self.worker.caller.clone(),
            object: group.object.clone(),
            operation: group.operation,
            base: group.base,
            base_key: group.base_key,
            call: context,
            max_depth: self.limits().max_json_depth,
        };
        let works = send_batch(batch_context, group.calls.iter().map(|held| held.requested.clone()).collect());
        for (held, work) in group.calls.into_iter().zip(works) {
            let bounded = shared || Some(held.deadline) != last || first != last;
            self.await_member(held, work, &upstream, bounded);
        }
    }
}

fn is_full(group: &Group) -> bool {
    let batch =
        group.object.downcast::<UpstreamObject>().and_then(|object| object.operation(group.operation).1.batch.as_ref());
    batch.is_some_and(|batch| group.calls.iter().map(|held| held.requested.keys.len()).sum::<usize>() >= batch.max_keys)
}

fn add_metric(group: &Group, add: impl FnOnce(&OperationMetrics, u64) -> u64) {
    if let Some(object) = group.object.downcast::<UpstreamObject>() {
        add(&object.upstream.operation(group.operation).metrics, group.calls.len() as u64);
    }
}
