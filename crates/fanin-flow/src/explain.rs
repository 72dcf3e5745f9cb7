//! What a longer or shorter call would have changed: the flow runs again, in virtual time, with its calls answered as they were.
//!
//! Flows are deterministic: the same answers after the same times give the same calls and the same response. So the effect of a
//! change is not estimated from a graph of dependencies but observed, with batches, timeouts and fallbacks as they are. Only the time
//! that flows compute is left out, and what depends on other requests (permits, shared batches) is taken as it was.

use std::cell::{OnceCell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use fanin_lang::Machine;
use fanin_trace::{CallTrace, Effect, Sharing, mark_critical_path};
use fanin_upstream::{CallContext, CallError, ErrorKind, Request, Upstream};
use http::StatusCode;
use tokio::time::Instant;

use crate::call_record::{Detail, Outcome};
use crate::caller::{CallFuture, Caller};
use crate::executor::Flow;
use crate::fair_scheduler::FairScheduler;
use crate::flow_record::FlowRecord;
use crate::log::FailureLog;
use crate::playback::{By, Change, Playback, Recorded, VirtualClock};
use crate::worker::Worker;

/// Slack is exact to this.
const EXACT: Duration = Duration::from_micros(20);

/// An explained request.
#[derive(Debug)]
pub struct Explanation {
    /// Its calls, with their effects.
    pub calls: Vec<CallTrace>,
    /// How long the request took when it ran again, without computing and queueing.
    pub took: Duration,
    /// Why some or all effects are missing.
    pub unexplained: Option<String>,
}

/// Works out what a change of each call by `step` does, in at most about `budget` of computing time. Blocks: it belongs on a thread that
/// serves nothing.
#[must_use]
pub fn explain(record: &Arc<FlowRecord>, step: Duration, budget: Duration) -> Explanation {
    let mut calls = record.calls();
    let unexplained = |calls, why: &str| Explanation { calls, took: Duration::ZERO, unexplained: Some(why.to_owned()) };
    let Some(again) = Again::new(record.clone()) else {
        return unexplained(calls, "the request was not recorded in full");
    };
    if let Some(why) = again.unrepeatable {
        return unexplained(calls, why);
    }
    let Some(base) = again.run(None) else {
        return unexplained(
            calls,
            "the flow took another way when it ran again: it depends on more than its request and answers",
        );
    };
    adopt_times(&mut calls, &base);
    let end = std::time::Instant::now() + budget;
    let mut cut_off = None;
    let mut batches: Vec<(u32, Option<Effect>)> = Vec::new();
    for index in 0..calls.len() {
        // How long a call would have taken that timed out is not known.
        let timed_out = record.record.calls[index].outcome == Outcome::Failed(ErrorKind::Timeout.as_str());
        if calls[index].sent.is_none() || calls[index].ended.is_none() || timed_out {
            continue;
        }
        if let Sharing::Batch { batch, .. } = calls[index].sharing
            && let Some((_, known)) = batches.iter().find(|(other, _)| *other == batch)
        {
            calls[index].effect.clone_from(known);
            continue;
        }
        if std::time::Instant::now() > end {
            cut_off = Some(format!("only the first {index} of {} calls: there are too many", calls.len()));
            break;
        }
        let effect = again.effect(index, &base, step);
        if let Sharing::Batch { batch, .. } = calls[index].sharing {
            batches.push((batch, effect.clone()));
        }
        calls[index].effect = effect;
    }
    for call in &mut calls {
        if let Some(effect) = &call.effect {
            call.critical = effect.slack.is_some_and(|slack| slack <= EXACT);
        }
    }
    Explanation { calls, took: base.took, unexplained: cut_off }
}

/// How long the recorded request takes if one of its calls is longer or shorter. For tests of [`explain`].
#[doc(hidden)]
#[must_use]
pub fn replay(record: &Arc<FlowRecord>, changed: Option<(usize, i64)>) -> Option<(Duration, StatusCode, Vec<u8>)> {
    let change = changed.map(|(call, by)| {
        let micros = Duration::from_micros(by.unsigned_abs());
        Change { call, by: if by < 0 { By::Shorter(micros) } else { By::Longer(micros) } }
    });
    let run = Again::new(record.clone())?.run(change)?;
    Some((run.took, run.status, run.body.concat()))
}

/// When nothing computes, what a call awaited is certain.
fn adopt_times(calls: &mut [CallTrace], base: &Run) {
    for (call, exact) in calls.iter_mut().zip(&base.calls) {
        if call.line == exact.line && call.upstream == exact.upstream {
            call.awaited.clone_from(&exact.awaited);
        }
    }
    mark_critical_path(calls, base.last_ended);
}

/// A recorded flow that can run again.
struct Again {
    worker: Rc<Worker>,
    recorded: Rc<Recorded>,
    unrepeatable: Option<&'static str>,
}

/// How it ended.
struct Run {
    took: Duration,
    status: StatusCode,
    body: Vec<Bytes>,
    calls: Vec<CallTrace>,
    last_ended: Option<u32>,
}

impl Again {
    fn new(record: Arc<FlowRecord>) -> Option<Again> {
        let unrepeatable = record.record.full.as_ref()?.unrepeatable;
        let worker = Worker {
            machine: RefCell::new(Machine::new()),
            scheduler: FairScheduler::default(),
            caller: Rc::new(NoCaller),
            open: Rc::default(),
            activity: Box::new(|_| {}),
            log: Arc::new(FailureLog::new()),
            detail: Detail::Nothing,
            hub: OnceCell::new(),
            own: None,
        };
        Some(Again { worker: Rc::new(worker), recorded: Recorded::new(record)?, unrepeatable })
    }

    /// Runs the flow. `None` if it made another call than before, or waits for ever.
    fn run(&self, change: Option<Change>) -> Option<Run> {
        let record = &self.recorded.record;
        let full = record.record.full.as_ref()?;
        let start = Instant::now();
        let clock = VirtualClock::new(start);
        let mut incoming = full.request.incoming(start);
        incoming.detail = if change.is_none() { Detail::Calls } else { Detail::Nothing };
        let playback = Box::new(Playback::new(clock.clone(), self.recorded.clone(), change));
        let mut flow = Flow::with(self.worker.clone(), record.route.clone(), incoming, Some(playback));
        let mut context = Context::from_waker(Waker::noop());
        let reply = loop {
            if let Poll::Ready(reply) = Pin::new(&mut flow).poll(&mut context) {
                break Some(reply);
            }
            if !clock.advance() {
                return None;
            }
            if clock.elapsed() >= full.request.timeout {
                break None;
            }
        };
        if flow.host.playback().is_some_and(|playback| playback.has_diverged.get()) {
            return None;
        }
        let took = clock.elapsed();
        let Some(reply) = reply else {
            let status = StatusCode::GATEWAY_TIMEOUT;
            return Some(Run {
                took: full.request.timeout,
                status,
                body: Vec::new(),
                calls: Vec::new(),
                last_ended: None,
            });
        };
        let (calls, last_ended) = match &reply.record {
            Some(record) => (record.calls(), record.record.last_ended),
            None => (Vec::new(), None),
        };
        let (status, body) = match reply.result {
            Ok(success) => (success.status, success.body.pieces().map(<[Bytes]>::to_vec).unwrap_or_default()),
            Err(error) => (error.status, vec![Bytes::from(error.detail.into_owned())]),
        };
        Some(Run { took, status, body, calls, last_ended })
    }

    fn effect(&self, index: usize, base: &Run, step: Duration) -> Option<Effect> {
        let shorter = self.run(Some(Change { call: index, by: By::Shorter(step) }))?;
        let gain = base.took.saturating_sub(shorter.took);
        let is_noticed = |by: Duration| {
            // A change of the flow's way is one that is noticed.
            self.run(Some(Change { call: index, by: By::Longer(by) })).is_none_or(|run| {
                run.took > base.took || run.status != base.status || run.body.concat() != base.body.concat()
            })
        };
        let timeout = self.recorded.record.record.full.as_ref()?.request.timeout;
        if !is_noticed(timeout) {
            return Some(Effect { slack: None, gain });
        }
        // The longest that nobody notices is from `unnoticed` to just below `noticed`.
        let (mut unnoticed, mut noticed) = (Duration::ZERO, timeout);
        while noticed - unnoticed > EXACT {
            let middle = (unnoticed + noticed) / 2;
            if is_noticed(middle) { noticed = middle } else { unnoticed = middle }
        }
        Some(Effect { slack: Some(unnoticed), gain })
    }
}

/// A flow that runs again sends nothing.
struct NoCaller;

impl Caller for NoCaller {
    fn call(&self, upstream: &Arc<Upstream>, _request: Request, _context: CallContext) -> CallFuture {
        let error = CallError::cancelled(upstream.name());
        Box::pin(async move { Err(error) })
    }

    fn spawns(&self) -> bool {
        false
    }
}
