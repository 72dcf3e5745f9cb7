//! The record of a flow's calls, and how it is shown.

use std::sync::Arc;
use std::time::Duration;

use fanin_lang::{CallSite, HostRef};
use fanin_trace::{Attempt, CallTrace, SharedWith, Slice, Wait, mark_critical_path};
use fanin_tracecontext::{SpanId, TraceId};
use fanin_upstream::shared::{Member, Members};
use fanin_upstream::{AttemptLog, LoggedAttempt};
use http::Method;
use tokio::time::Instant;

use crate::call_record::{CallRecord, NONE};
use crate::full_record::FullRecord;
use crate::kinds::UpstreamObject;
use crate::route::RouteFlow;

/// The calls of a flow while it runs.
#[derive(Default)]
pub(crate) struct Record {
    pub(crate) calls: Vec<CallRecord>,
    /// The call that ended last, which is what the flow goes on after.
    pub(crate) last_ended: Option<u32>,
    /// When the request arrived, if attempts are recorded.
    pub(crate) start: Option<Instant>,
    /// The time of this poll of the flow, once it is known: microseconds since the request's start.
    pub(crate) polled_at: Option<u32>,
    /// Batches sent so far.
    pub(crate) batches: u32,
    /// With which other calls some of them share a request, by their index.
    pub(crate) sharers: Vec<(u32, Sharers)>,
    /// Method and path with query of each call, if they are recorded.
    pub(crate) paths: Vec<Option<(Method, Box<str>)>>,
    /// The attempts of each call, if paths are recorded.
    pub(crate) attempts: Vec<Arc<AttemptLog>>,
    pub(crate) full: Option<Box<FullRecord>>,
}

impl Record {
    /// Whether it has nothing besides its calls.
    pub(crate) fn holds_calls_only(&self) -> bool {
        let Record { calls: _, last_ended: _, start: _, polled_at: _, batches: _, sharers, paths, attempts, full } =
            self;
        sharers.is_empty() && paths.is_empty() && attempts.is_empty() && full.is_none()
    }
}

/// With whom a call shares a request.
pub(crate) enum Sharers {
    /// It awaits the request of this one.
    Leader(Member),
    /// The batch that it is in.
    Batch(Arc<Members>),
}

/// The record of a flow that has ended. Texts are made when somebody looks at it.
pub struct FlowRecord {
    /// The request's number.
    pub(crate) request: u64,
    pub(crate) route: Arc<RouteFlow>,
    pub(crate) record: Record,
    /// The upstream of each call.
    pub(crate) objects: Vec<HostRef>,
    /// The record of the flow that ran before this one, if both are for a recording.
    pub(crate) before: Option<Arc<FlowRecord>>,
}

impl FlowRecord {
    /// Whether it has all that an explanation needs.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.record.full.as_ref().is_some_and(|full| full.keeps_answers)
    }

    /// Number of its calls.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "a flow without calls has no record")]
    pub fn len(&self) -> usize {
        self.record.calls.len()
    }

    /// Bytes of the answers that it keeps.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.record.full.as_ref().map_or(0, |full| full.bytes)
    }

    /// The calls, in the order in which the flow made them, with the critical path as far as the times tell.
    #[must_use]
    pub fn calls(&self) -> Vec<CallTrace> {
        let each = self.record.calls.iter().zip(&self.objects).enumerate();
        let mut calls: Vec<CallTrace> = each.map(|(index, (call, object))| self.call(index, call, object)).collect();
        mark_critical_path(&mut calls, self.record.last_ended);
        calls
    }

    /// Path and query of the request, if the record is a full one.
    #[must_use]
    pub fn target(&self) -> Option<String> {
        Some(self.record.full.as_ref()?.request.uri.to_string())
    }

    /// When the flow computed, if the record is a full one.
    #[must_use]
    pub fn slices(&self) -> Vec<Slice> {
        self.record.full.as_ref().map_or_else(Vec::new, |full| full.slices.clone())
    }

    /// Where the flow waited, if the record is a full one.
    #[must_use]
    pub fn waits(&self) -> Vec<Wait> {
        let waits = self.record.full.iter().flat_map(|full| &full.waits);
        waits.map(|wait| Wait { line: line(&self.route, wait.site), call: wait.call, from: wait.from }).collect()
    }

    /// The calls with which a call shares a request: the one that makes it first. Without itself.
    fn sharers(&self, index: usize) -> Vec<Member> {
        let found = self.record.sharers.iter().find(|(call, _)| *call as usize == index);
        let mut all = match found {
            None => Vec::new(),
            Some((_, Sharers::Leader(leader))) => vec![*leader],
            Some((_, Sharers::Batch(members))) => members.all(),
        };
        all.retain(|member| (member.request, member.call as usize) != (self.request, index));
        all
    }

    /// The span of the call that made the request that this call has shared, if that was another call in a trace.
    #[must_use]
    pub fn made_by(&self, index: usize) -> Option<(TraceId, SpanId)> {
        let (_, sharers) = self.record.sharers.iter().find(|(call, _)| *call as usize == index)?;
        let maker = match sharers {
            Sharers::Leader(leader) => *leader,
            Sharers::Batch(members) => *members.all().first()?,
        };
        maker.span.filter(|_| (maker.request, maker.call as usize) != (self.request, index))
    }

    fn attempts(&self, log: &AttemptLog) -> Vec<Attempt> {
        let since = |time: Instant| time.saturating_duration_since(self.record.start.unwrap_or(time));
        let logged = log.attempts();
        let is_hedge = |at: usize, one: &LoggedAttempt| {
            logged[..at].iter().any(|before| before.ended.is_none_or(|ended| ended > one.begun))
        };
        let kind = |at: usize, one: &LoggedAttempt| match one.number {
            0 => "first",
            _ if is_hedge(at, one) => "hedge",
            _ => "retry",
        };
        let each = logged.iter().enumerate().map(|(at, one)| Attempt {
            kind: kind(at, one).to_owned(),
            number: one.traced,
            begun: since(one.begun),
            waited: one.begun.saturating_duration_since(one.wanted),
            ended: one.ended.map(since),
            unread: one.unread,
            endpoint: one.endpoint.clone(),
            outcome: one.outcome.clone(),
        });
        each.collect()
    }

    fn shared_with(&self, member: Member) -> SharedWith {
        let other = (member.request != self.request).then(|| format!("{:016x}", member.request));
        SharedWith { request: other, call: member.call }
    }

    fn call(&self, index: usize, call: &CallRecord, object: &HostRef) -> CallTrace {
        let time = |micros: u32| (micros != NONE).then(|| Duration::from_micros(micros.into()));
        let full = self.record.full.as_deref();
        let operation = object
            .downcast::<UpstreamObject>()
            .filter(|_| call.operation != NONE)
            .and_then(|object| object.upstream.operation_name(call.operation).cloned());
        CallTrace {
            upstream: object.name().into(),
            operation,
            target: match self.record.paths.get(index) {
                Some(Some((method, path))) => format!("{method} {path}"),
                _ => String::new(),
            },
            line: line(&self.route, call.site),
            made: Duration::from_micros(call.made.into()),
            sent: time(call.sent),
            ended: time(call.ended),
            outcome: call.outcome.describe(),
            required: call.required,
            sharing: call.sharing,
            shared_with: self.sharers(index).into_iter().map(|member| self.shared_with(member)).collect(),
            awaited: (call.awaited != NONE).then_some(call.awaited).into_iter().collect(),
            read_at: full
                .and_then(|full| full.waits.iter().find(|wait| wait.call as usize == index))
                .map(|wait| line(&self.route, wait.site)),
            critical: false,
            effect: None,
            attempts: self.record.attempts.get(index).map_or_else(Vec::new, |log| self.attempts(log)),
        }
    }
}

impl std::fmt::Debug for FlowRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FlowRecord").field("route", &self.route.name).field("calls", &self.record.calls).finish()
    }
}

/// File and line.
pub(crate) fn line(route: &RouteFlow, site: CallSite) -> String {
    let position = route.program.position(site);
    format!("{}:{}", position.file, position.line)
}
