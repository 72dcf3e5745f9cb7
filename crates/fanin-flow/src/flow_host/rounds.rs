//! Rounds: which calls of a request are sent together, and when.
//!
//! A call that can merge is not sent when the flow makes it. When every fiber is suspended and no answer is ready, the calls made so
//! far are sent together. They are held longer, at most for their `linger`, while the flow may add to the batch: a call of the
//! same operation awaits its arguments, or an answer in flight may resume a fiber.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::Duration;

use fanin_config::Batch;
use fanin_lang::HostRef;
use fanin_trace::Sharing;
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

/// A call is held for at most its remaining time divided by this.
const HOLD_DIVISOR: u32 = 10;

/// Calls of a request that wait for their round, and what else few requests have.
#[derive(Default)]
pub(crate) struct Rounds {
    /// Events published. They count as calls.
    pub(super) published: usize,
    groups: Vec<Group>,
    timer: Option<Pin<Box<Sleep>>>,
}

/// Calls that fit into one batch.
struct Group {
    object: HostRef,
    operation: usize,
    /// Key of `base`. Calls with the same key can share a batch.
    base_key: RequestKey,
    base: Request,
    calls: Vec<RoundCall>,
    /// The earliest end of a call's linger.
    until: Instant,
    /// Number of calls when the group was first held.
    calls_at_first_hold: Option<usize>,
}

/// A call that waits for its round.
pub(super) struct RoundCall {
    pub(super) index: usize,
    /// The keys to request.
    pub(super) requested: Rc<RequestedKeys>,
    pub(super) deadline: Instant,
    /// Set if the call leads a flight.
    pub(super) lead: Option<Leader>,
    pub(super) shareable: Option<Rc<Shareable>>,
    /// Set if the operation has an item cache.
    pub(super) keyed: Option<Rc<KeyedCall>>,
}

impl FlowHost {
    /// Adds a call to the group of those that it can be batched with.
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
        let now = self.now();
        let left = held.deadline.saturating_duration_since(now);
        let until = now + linger.unwrap_or(batch.linger).min(left / HOLD_DIVISOR);
        // A batch of several requests needs a task that outlives this flow.
        if batch.share && self.worker.caller.spawns() && self.playback().is_none() {
            self.record_sharing(held.index, Sharing::SharedBatch);
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

    /// Joins a batch of several requests. It has the operation's timeout.
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
            call: CallContext {
                trace: self.call_parent(held.index),
                attempts: self.attempt_log(held.index),
                ..work::context(
                    &upstream.upstream,
                    operation,
                    upstream.operation(operation).1.timeout,
                    self.request_started(),
                )
            },
            max_depth: self.limits().max_json_depth,
            requests: Cell::new(0),
        };
        let (requested, call) = (held.requested.clone(), self.member(held.index));
        let (work, members) = self.worker.open.join(batch_key, requested, until, batch.max_keys, call, make);
        self.record_members(held.index, members);
        let name = upstream.upstream.name().clone();
        self.await_member(held, work, &name, true);
    }

    /// Awaits a call's part of a batch. `bounded`: the batch's deadline may be later than the call's.
    fn await_member(&mut self, held: RoundCall, work: Work, upstream: &Arc<str>, bounded: bool) {
        let work = match (held.shareable, held.lead) {
            (Some(shareable), Some(lead)) => shareable.lead_until(lead, work, held.deadline),
            (Some(shareable), None) => work::with_deadline(upstream, held.deadline, work::unshared(shareable, work)),
            (None, _) if bounded => work::with_deadline(upstream, held.deadline, work),
            (None, _) => work,
        };
        self.push_shared(held.index, work, held.keyed);
    }

    /// Adds shared work to the calls in flight. Its items are assembled with the cached ones.
    pub(super) fn push_shared(&mut self, index: usize, work: Work, keyed: Option<Rc<KeyedCall>>) {
        let work = match keyed {
            Some(keyed) => Box::pin(keyed.finish(work)),
            None => work,
        };
        self.push(InFlight::shared(index, work));
    }

    /// Sends the groups that no further call can join. `true` if something was sent or a linger has ended. `suspended`: fibers are
    /// suspended and may make further calls.
    pub(super) fn send_round(&mut self, suspended: bool, context: &mut Context<'_>) -> Poll<bool> {
        if self.rounds.as_ref().is_none_or(|rounds| rounds.groups.is_empty()) {
            return Poll::Ready(false);
        }
        let now = self.now();
        let under_way = !self.inflight.is_empty();
        let Some(rounds) = &mut self.rounds else { return Poll::Ready(false) };
        let mut groups = std::mem::take(&mut rounds.groups);
        let may_grow = |group: &Group| {
            now < group.until && (under_way && suspended || self.expects_more(group)) && !is_full(group)
        };
        let mut keep: Vec<bool> = groups.iter().map(may_grow).collect();
        // Without a call in flight no further call can come, unless sending one of these groups brings it.
        if !under_way && keep.iter().all(|keep| *keep) {
            keep.iter_mut().for_each(|keep| *keep = false);
        }
        let mut left = Vec::new();
        let mut sent = false;
        for (mut group, keep) in groups.drain(..).zip(keep) {
            if keep {
                if group.calls_at_first_hold.is_none() {
                    group.calls_at_first_hold = Some(group.calls.len());
                    self.add_metric(&group, |counts, calls| counts.held.fetch_add(calls, Relaxed));
                }
                left.push(group);
            } else {
                if group.calls_at_first_hold == Some(group.calls.len()) && now >= group.until {
                    self.add_metric(&group, |counts, calls| counts.held_in_vain.fetch_add(calls, Relaxed));
                }
                self.send_group(group);
                sent = true;
            }
        }
        let next = left.iter().map(|group| group.until).min();
        let Some(rounds) = &mut self.rounds else { return Poll::Ready(sent) };
        rounds.groups = left;
        let Some(next) = next.filter(|_| !sent) else { return Poll::Ready(sent) };
        if let Some(playback) = self.playback() {
            playback.clock.wake_at_instant(next, context.waker());
            return Poll::Pending;
        }
        let Some(rounds) = &mut self.rounds else { return Poll::Ready(sent) };
        let timer = match &mut rounds.timer {
            Some(timer) => {
                timer.as_mut().reset(next);
                timer
            }
            none => none.insert(Box::pin(sleep_until(next))),
        };
        match timer.as_mut().poll(context) {
            // A linger has ended: the caller sends the round again.
            Poll::Ready(()) => Poll::Ready(true),
            Poll::Pending => Poll::Pending,
        }
    }

    /// Whether a call of the same operation awaits its arguments.
    fn expects_more(&self, group: &Group) -> bool {
        self.calls.iter().any(|entry| {
            let Some(unsent) = &entry.unsent else { return false };
            entry.object.same(&group.object)
                && unsent.1.merging.as_ref().is_some_and(|merging| merging.operation == Some(group.operation))
        })
    }

    fn add_metric(&self, group: &Group, add: impl FnOnce(&OperationMetrics, u64) -> u64) {
        if let Some(object) = group.object.downcast::<UpstreamObject>()
            && self.playback().is_none()
        {
            add(&object.upstream.operation(group.operation).metrics, group.calls.len() as u64);
        }
    }

    /// Answers a group of a flow that runs again.
    fn play_back_group(&mut self, group: &Group) {
        let time = FlowHost::time_of(&group.object, u32::try_from(group.operation).ok(), None);
        for held in &group.calls {
            self.play_back(held.index, held.deadline.saturating_duration_since(self.now()).max(time));
        }
    }

    fn send_group(&mut self, group: Group) {
        self.record_batch(group.calls.iter().map(|held| held.index));
        if self.playback().is_some() {
            return self.play_back_group(&group);
        }
        let Some(object) = group.object.downcast::<UpstreamObject>() else { return };
        let upstream = object.upstream.name().clone();
        let (_, operation) = object.operation(group.operation);
        let own_timeout = operation.timeout.unwrap_or(object.upstream.config().timeout);
        let shared = group.calls.iter().any(|held| held.lead.is_some());
        let last = group.calls.iter().map(|held| held.deadline).max();
        let first = group.calls.iter().map(|held| held.deadline).min();
        // The first call makes the request.
        let sender = group.calls.first().map(|held| held.index);
        let trace = sender.and_then(|index| self.call_parent(index));
        let attempts = sender.and_then(|index| self.attempt_log(index));
        let context = match (shared, last) {
            // Followers may wait longer than this request.
            (true, _) | (_, None) => {
                let started = self.request_started();
                CallContext {
                    trace,
                    attempts,
                    ..work::context(&object.upstream, group.operation, operation.timeout, started)
                }
            }
            (false, Some(deadline)) => CallContext {
                deadline,
                request_started: self.request_started(),
                timeout: Some(own_timeout.max(deadline - Instant::now())),
                safe: true,
                operation: u32::try_from(group.operation).ok(),
                trace,
                attempts,
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
            requests: Cell::new(0),
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
