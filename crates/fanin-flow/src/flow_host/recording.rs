//! Records the calls of a flow, and answers those of a flow that runs again.

use std::sync::Arc;
use std::time::Duration;

use fanin_lang::{CallSite, HostCall, HostRef, PendingValue};
use fanin_trace::{Sharing, Slice};
use fanin_upstream::shared::{Body, Member, Members, ParsedAnswer, RequestKey, SharedResult};
use fanin_upstream::{Answer, AttemptLog, CallError, Request};
use tokio::time::Instant;

use super::FlowHost;
use crate::call_record::{CallRecord, Detail, Outcome};
use crate::flow_record::{FlowRecord, Record, Sharers};
use crate::full_record::{FlowWait, FullCall, FullRecord, Identity};
use crate::inflight::{Checked, InFlight};
use crate::playback::Playback;

impl FlowHost {
    /// The time as the flow sees it.
    #[inline]
    pub(crate) fn now(&self) -> Instant {
        match self.playback() {
            None => Instant::now(),
            Some(playback) => playback.clock.now(),
        }
    }

    /// Set if the flow runs again.
    #[inline]
    pub(crate) fn playback(&self) -> Option<&Playback> {
        self.rare.as_ref()?.playback.as_deref()
    }

    #[inline]
    fn recorded(&mut self) -> Option<&mut Record> {
        self.rare.as_mut()?.record.as_mut()
    }

    #[inline]
    fn full(&mut self) -> Option<&mut FullRecord> {
        self.recorded()?.full.as_deref_mut()
    }

    /// The flow cannot be run again.
    pub(crate) fn is_unrepeatable(&mut self, why: &'static str) {
        if let Some(full) = self.full() {
            full.unrepeatable = Some(why);
        }
    }

    /// The flow is polled, or a part of its computation is over: time has passed.
    #[inline]
    pub(crate) fn time_passed(&mut self) {
        if let Some(record) = self.recorded() {
            record.polled_at = None;
        }
    }

    /// As [`micros`](FlowHost::micros). A record of no more than the times of calls reads the clock once in a poll.
    #[inline]
    pub(super) fn micros_of_poll(&mut self) -> u32 {
        let times_only = self.detail <= Detail::Calls;
        match self.recorded().and_then(|record| record.polled_at) {
            Some(at) if times_only => at,
            _ => self.read_micros(),
        }
    }

    /// As [`micros`](FlowHost::micros), and the time of this poll from now on.
    fn read_micros(&mut self) -> u32 {
        let micros = self.micros();
        if let Some(record) = self.recorded() {
            record.polled_at = Some(micros);
        }
        micros
    }

    /// The flow has made a call.
    pub(super) fn record_made(&mut self, call: &HostCall<'_>, operation: Option<u32>, required: bool) {
        let (made, start) = (self.micros_of_poll(), self.request_started());
        let expected = self.route.calls.load(std::sync::atomic::Ordering::Relaxed).max(1) as usize;
        let record = self.rare.get_or_insert_default().record.get_or_insert_default();
        if record.calls.capacity() == 0 {
            record.calls.reserve_exact(expected);
        }
        record.polled_at = Some(made);
        record.calls.push(CallRecord::new(call.call_site, operation, made, record.last_ended, required));
        if let Some(full) = &mut record.full {
            full.calls.push(FullCall::default());
        }
        if self.detail >= Detail::Paths {
            record.paths.push(None);
            record.attempts.push(Arc::new(match self.detail {
                Detail::Recording => AttemptLog::keeping_exchanges(),
                Detail::Full => AttemptLog::with_kernel_times(),
                _ => AttemptLog::default(),
            }));
            record.start = Some(start);
        }
    }

    #[inline]
    fn update(&mut self, index: usize, change: impl FnOnce(&mut CallRecord)) {
        if let Some(call) = self.recorded().and_then(|record| record.calls.get_mut(index)) {
            change(call);
        }
    }

    /// Where the attempts of a call are noted.
    pub(super) fn attempt_log(&self, index: usize) -> Option<Arc<AttemptLog>> {
        self.rare.as_ref()?.record.as_ref()?.attempts.get(index).cloned()
    }

    /// A call is sent, or would be if it shared nothing.
    #[inline]
    pub(super) fn record_sent(&mut self, index: usize, request: &Request) {
        if !self.is_recorded() {
            return;
        }
        let now = self.micros_of_poll();
        let Some(record) = self.recorded() else { return };
        let last_ended = record.last_ended;
        if let Some(call) = record.calls.get_mut(index) {
            if now > call.made && last_ended.is_some() {
                call.awaited = last_ended.unwrap_or(call.awaited);
            }
            call.sent = now;
        }
        if let Some(path) = record.paths.get_mut(index) {
            *path = Some((request.method.clone(), request.path_and_query.as_str().into()));
        }
    }

    /// Says which request a call makes, so that it is found again when the flow runs again.
    #[inline]
    pub(super) fn identify(&mut self, index: usize, request: impl FnOnce() -> RequestKey) {
        if self.playback().is_none() && !self.is_fully_recorded() {
            return;
        }
        let identity = Identity { site: self.calls[index].site, request: request() };
        if let Some(playback) = self.playback() {
            playback.assign(index, identity.clone());
        }
        if let Some(call) = self.full().and_then(|full| full.calls.get_mut(index)) {
            call.identity = Some(identity);
        }
    }

    /// A call is served without a request of its own.
    #[inline]
    pub(super) fn record_sharing(&mut self, index: usize, sharing: Sharing) {
        if self.is_recorded() {
            let now = self.micros();
            self.update(index, |call| {
                call.sharing = sharing;
                call.sent = call.sent.min(now);
            });
        }
    }

    /// A call as others name it, if it is recorded.
    #[inline]
    pub(super) fn member(&self, index: usize) -> Option<Member> {
        if !self.is_recorded() {
            return None;
        }
        let call = u32::try_from(index).unwrap_or(u32::MAX);
        let span = self.req.trace().map(|trace| (trace.id(), trace.attempt(call, 0)));
        Some(Member { request: self.req.number(), call, span })
    }

    /// A call awaits the request of another one.
    pub(super) fn record_leader(&mut self, index: usize, leader: Option<Member>) {
        if let (Some(record), Some(leader)) = (self.recorded(), leader) {
            record.sharers.push((index as u32, Sharers::Leader(leader)));
        }
    }

    /// A call has joined a batch of several requests.
    pub(super) fn record_members(&mut self, index: usize, members: Option<Arc<Members>>) {
        if let (Some(record), Some(members)) = (self.recorded(), members) {
            record.sharers.push((index as u32, Sharers::Batch(members)));
        }
    }

    /// These calls are sent as one batch.
    pub(super) fn record_batch(&mut self, indices: impl ExactSizeIterator<Item = usize>) {
        if !self.is_recorded() {
            return;
        }
        let (now, calls) = (self.micros(), indices.len() as u32);
        let Some(record) = self.recorded() else { return };
        record.batches += 1;
        let batch = record.batches;
        for index in indices {
            self.update(index, |call| {
                call.sharing = Sharing::Batch { batch, calls };
                call.sent = now;
            });
        }
    }

    /// A call has ended, or will never be sent.
    #[inline]
    pub(super) fn record_ended(&mut self, index: usize, outcome: Outcome) {
        if !self.is_recorded() {
            return;
        }
        let now = self.read_micros();
        let Some(record) = self.recorded() else { return };
        let Some(call) = record.calls.get_mut(index) else { return };
        call.outcome = outcome;
        if !matches!(outcome, Outcome::NotSent | Outcome::Absent) {
            call.ended = now;
            record.last_ended = Some(index as u32);
        }
    }

    #[inline]
    fn is_recorded(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.record.is_some())
    }

    #[inline]
    pub(crate) fn is_fully_recorded(&self) -> bool {
        self.rare.as_ref().and_then(|rare| rare.record.as_ref()).is_some_and(|record| record.full.is_some())
    }

    /// Whether the answers of its calls are kept.
    #[inline]
    pub(crate) fn keeps_answers(&self) -> bool {
        let record = self.rare.as_ref().and_then(|rare| rare.record.as_ref());
        record.and_then(|record| record.full.as_ref()).is_some_and(|full| full.keeps_answers)
    }

    /// Keeps what a call was answered, before it is looked at.
    #[cold]
    pub(super) fn record_answer(&mut self, index: usize, result: &Result<(Answer, Checked), CallError>) {
        let kept: SharedResult = match result {
            Ok((answer, Ok(body))) => {
                let ready = ParsedAnswer { answer: answer.clone(), body: body.clone() };
                // A part would keep the document of a batch or a snapshot alive.
                let is_part = matches!(body, Body::Part { .. } | Body::List { .. } | Body::Entries { .. });
                Ok(Arc::new(if is_part { ready.detached() } else { ready }))
            }
            // Only the status of an answer counts whose body cannot be read.
            Ok((answer, Err(_))) if !answer.status.is_success() => {
                Ok(Arc::new(ParsedAnswer { answer: answer.clone(), body: Body::Empty }))
            }
            Ok((answer, Err(problem))) => Err(self.calls[index].source.unreadable(answer, problem.to_string())),
            Err(error) => Err(error.clone()),
        };
        if let Some(full) = self.full() {
            full.answered(index, kept);
        }
    }

    /// The flow computed from `from` until now, and began to wait at these places.
    #[cold]
    pub(crate) fn record_run(&mut self, from: Instant, waits: Vec<(CallSite, PendingValue)>) {
        let start = self.request_started();
        let now = self.now();
        let waits: Vec<FlowWait> = waits
            .into_iter()
            .filter_map(|(site, pending)| {
                let call = self.calls.iter().position(|entry| entry.slot.same(pending.root()))? as u32;
                Some(FlowWait { site, call, from: now.saturating_duration_since(start) })
            })
            .collect();
        if let Some(full) = self.full() {
            let since = |time: Instant| time.saturating_duration_since(start);
            full.slices.push(Slice { from: since(from), to: since(now) });
            full.waits.extend(waits);
        }
    }

    /// The record of the flow, which has ended.
    pub(super) fn take_record(&mut self) -> Option<Arc<FlowRecord>> {
        let mut record = self.rare.as_mut()?.record.take()?;
        record.full.take_if(|full| !full.may_be_kept());
        let objects = self.calls.iter().map(|entry| entry.object.clone()).collect();
        Some(Arc::new(FlowRecord {
            request: self.req.number(),
            route: self.route.clone(),
            record,
            objects,
            before: None,
        }))
    }

    /// Answers a call of a flow that runs again as its record says. `time` is how long it may take.
    #[cold]
    pub(super) fn play_back(&mut self, index: usize, time: Duration) {
        let deadline = self.call_deadline(index, time);
        let entry = &self.calls[index];
        let upstream = entry.source.upstream().clone();
        let Some(playback) = self.playback() else { return };
        let work: crate::merge::Work = match playback.find(index) {
            Some(recorded) => Box::pin(playback.answer(recorded, &upstream, deadline)),
            None => Box::pin(std::future::pending()),
        };
        self.push(InFlight::shared(index, work));
    }

    /// What a call of a flow that runs again shared when it was recorded. `None` if the flow does not run again.
    pub(super) fn recorded_sharing(&self, index: usize) -> Option<Sharing> {
        let playback = self.playback()?;
        Some(playback.find(index).map_or(Sharing::Alone, |recorded| playback.sharing(recorded)))
    }

    /// The upstream's own timeout, or that of the call.
    pub(super) fn time_of(object: &HostRef, operation: Option<u32>, timeout: Option<Duration>) -> Duration {
        let Some(object) = object.downcast::<crate::kinds::UpstreamObject>() else { return Duration::ZERO };
        let of_operation = operation.and_then(|at| object.operation(at as usize).1.timeout);
        timeout.or(of_operation).unwrap_or(object.upstream.config().timeout)
    }
}
