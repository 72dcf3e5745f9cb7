//! The host of a running flow: sends its calls and settles their pending values.

mod host_interface;
mod lookup;
mod merging;
mod recording;
mod rounds;
mod sending;
mod streaming;

pub(crate) use streaming::{StreamOptions, StreamedAnswer};

use std::cell::RefCell;
use std::num::NonZero;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::Duration;

use fanin_config::{AnswerHeaders, FlowLimits, Shape};
use fanin_json::Doc;
use fanin_lang::{
    CallSite, Failure, Host, HostRef, Kind, PendingValue, Position, ProgramOrder, Value, Waiter, name_origin,
};
use fanin_upstream::shared::Body;
use fanin_upstream::{Answer, BodySlot, CallError, Fault};
use http::StatusCode;
use smallvec::SmallVec;
use tokio::time::Instant;

use crate::answer::{CallSource, UNREQUESTED_PART, text};
use crate::call::{Arguments, CallOptions, OnFailure};
use crate::call_record::{Detail, Outcome};
use crate::flow_record::{FlowRecord, Record};
use crate::full_record::FullRecord;
use crate::inflight::{Checked, InFlightCalls, without_body};
use crate::kinds::UpstreamObject;
use crate::partial::Missing;
use crate::playback::Playback;
use crate::progressive::{Framing, Progress};
use crate::request_object::RequestObject;
use crate::returns;
use crate::route::RouteFlow;
use crate::worker::Worker;

/// Indices of calls whose arguments may have arrived.
#[derive(Default)]
struct ReadyCalls(RefCell<Vec<u64>>);

impl Waiter for ReadyCalls {
    fn settled(&self, token: u64) {
        self.0.borrow_mut().push(token);
    }
}

/// One call of the flow. Small, because every call in flight has one.
struct Entry {
    object: HostRef,
    slot: PendingValue,
    source: Rc<CallSource>,
    /// Arguments and options until the call is sent, if its arguments are pending.
    unsent: Option<Box<(Arguments, CallOptions)>>,
    /// Boxed, because few calls have any.
    outcome_options: Option<Box<OutcomeOptions>>,
    order: ProgramOrder,
    site: CallSite,
    state: CallState,
    /// Its failure fails the flow.
    required: bool,
    safe: bool,
    /// A batch may serve it.
    batch: bool,
}

/// Options that decide on a call's outcome.
struct OutcomeOptions {
    on_failure: OnFailure,
    /// Statuses besides 2xx that count as success.
    ok: SmallVec<[u16; 2]>,
    /// The shape that the answer must have.
    returns: Option<Arc<Shape>>,
    /// Index of the operation, for messages.
    operation: Option<u32>,
    /// Where the body of a streamed answer is.
    slot: Option<Rc<BodySlot>>,
    /// How the messages of a streamed gRPC answer are told from each other, if the flow says so.
    format: Option<Framing>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallState {
    /// Not sent, or in flight.
    Pending,
    /// Settled with its answer.
    Answered,
    /// Failed, and the failure fails the flow.
    Failed,
    /// Failed, and optional or with a default.
    Missing,
    /// Not sent, because it needs an answer that is absent.
    Dependent,
}

/// What few flows have. In a box, because every suspended flow has the room for it.
#[derive(Default)]
struct Rare {
    record: Option<Record>,
    playback: Option<Box<Playback>>,
    progress: Option<Box<Progress>>,
}

/// The calls of one running flow.
pub(crate) struct FlowHost {
    pub(crate) worker: Rc<Worker>,
    pub(crate) route: Arc<RouteFlow>,
    pub(crate) req: Rc<RequestObject>,
    calls: Vec<Entry>,
    inflight: InFlightCalls,
    /// Allocated when the first call has pending arguments.
    ready_calls: Option<Rc<ReadyCalls>>,
    /// Calls that wait for their round, and events published; most requests have none.
    rounds: Option<Box<rounds::Rounds>>,
    /// Whether its calls are recorded. The record is made with the first.
    detail: Detail,
    /// Whether an effect has been sent.
    pub(crate) wrote: bool,
    /// Whether values of this flow wait to be dropped in time slices.
    pub(crate) deferred_drops: bool,
    /// Microseconds that the flow has computed, saturating.
    computed_us: u16,
    /// Since when calls have been in flight: microseconds since the request's start, plus one.
    busy_since: Option<NonZero<u32>>,
    /// Microseconds during which at least one call was in flight.
    upstream_us: u32,
    #[allow(clippy::box_collection, reason = "one word instead of three in every flow")]
    /// What few flows have.
    rare: Option<Box<Rare>>,
}

impl FlowHost {
    /// `full`: the flow is recorded in full. `playback`: it runs again.
    pub(crate) fn new(
        worker: Rc<Worker>,
        route: Arc<RouteFlow>,
        req: Rc<RequestObject>,
        detail: Detail,
        full: Option<Box<FullRecord>>,
        playback: Option<Box<Playback>>,
    ) -> FlowHost {
        let record = full.map(|full| Record { full: Some(full), ..Record::default() });
        let is_rare = record.is_some() || playback.is_some();
        FlowHost {
            rare: is_rare.then(|| Box::new(Rare { record, playback, progress: None })),
            detail,
            worker,
            route,
            req,
            calls: Vec::new(),
            inflight: InFlightCalls::None,
            ready_calls: None,
            rounds: None,
            wrote: false,
            deferred_drops: false,
            computed_us: 0,
            busy_since: None,
            upstream_us: 0,
        }
    }

    /// When the request arrived.
    fn request_started(&self) -> Instant {
        self.req.start()
    }

    /// The request's deadline.
    pub(crate) fn deadline(&self) -> Instant {
        self.req.deadline()
    }

    fn limits(&self) -> &FlowLimits {
        &self.route.limits
    }

    /// Adds a time slice; returns the computing time in all.
    pub(crate) fn add_compute_time(&mut self, turn: Duration) -> Duration {
        let micros = u16::try_from(turn.as_micros()).unwrap_or(u16::MAX);
        self.computed_us = self.computed_us.saturating_add(micros);
        Duration::from_micros(self.computed_us.into())
    }

    fn position(&self, site: CallSite) -> Position {
        self.route.program.position(site)
    }

    /// The deadline of optional calls: earlier than the request's, so that time is left to send a partial response.
    fn optional_deadline(&self) -> Instant {
        let (start, deadline) = (self.request_started(), self.deadline());
        let whole = deadline.saturating_duration_since(start);
        let reserve = (whole / 10).max(Duration::from_millis(5));
        deadline.checked_sub(reserve).unwrap_or(start)
    }

    /// Waits until a call ends, then settles all that have ended. `false` if no call is in flight. If none has ended, sends the
    /// round. `suspended`: fibers are suspended and may make further calls.
    pub(crate) fn poll_completions(&mut self, suspended: bool, context: &mut Context<'_>) -> Poll<bool> {
        let mut taken = false;
        loop {
            match self.inflight.poll_next(context) {
                Poll::Ready(Some((index, result))) => {
                    taken = true;
                    self.complete(index, result);
                }
                _ if taken => break,
                Poll::Pending if self.rounds.is_none() => return Poll::Pending,
                Poll::Ready(None) if self.rounds.is_none() => break,
                ended => match self.send_round(suspended, context) {
                    Poll::Ready(true) => {}
                    Poll::Ready(false) if ended.is_pending() => return Poll::Pending,
                    Poll::Ready(false) => break,
                    Poll::Pending => return Poll::Pending,
                },
            }
        }
        if self.inflight.is_empty() {
            self.note_idle();
        }
        Poll::Ready(taken)
    }

    fn note_idle(&mut self) {
        if let Some(since) = self.busy_since.take() {
            let micros = self.micros_of_poll().saturating_sub(since.get() - 1);
            self.upstream_us = self.upstream_us.saturating_add(micros);
        }
    }

    /// Microseconds since the request arrived, saturating after an hour.
    fn micros(&self) -> u32 {
        let elapsed = self.now().saturating_duration_since(self.request_started());
        u32::try_from(elapsed.as_micros()).unwrap_or(u32::MAX - 1)
    }

    fn complete(&mut self, index: usize, result: Result<(Answer, Checked), CallError>) {
        if self.keeps_answers() {
            self.record_answer(index, &result);
        }
        let entry = &mut self.calls[index];
        let (error, flow_error) = match result {
            Ok((answer, checked)) => {
                let status = answer.status;
                let accepted = answer.is_success() || entry.accepts(status);
                let checked = without_body(checked, status.is_success() && entry.has_shape());
                let unusable = match &checked {
                    _ if !accepted && answer.unrequested_part => Some(UNREQUESTED_PART.to_owned()),
                    _ if !accepted => None,
                    Err(error) => Some(error.to_string()),
                    Ok(body) => entry.mismatch(status, body),
                };
                let error = match unusable {
                    Some(problem) => Some(entry.source.unusable(&answer, problem)),
                    None => (!accepted).then(|| CallError::status(entry.source.upstream(), &answer)),
                };
                match (error, checked) {
                    (None, Ok(body)) => {
                        let value = match body {
                            _ if entry.slot().is_some() => streaming::value(&entry.source),
                            Body::Json(doc) => Value::json(doc),
                            Body::Empty => Value::None,
                            Body::Text => text(&answer),
                            part => {
                                entry.source.set_part();
                                lookup::value(part, entry.object.name())
                            }
                        };
                        entry.state = CallState::Answered;
                        if entry.batch {
                            entry.source.set_split();
                        }
                        entry.source.set_answer(answer);
                        entry.slot.settle_shared(Ok(value));
                        self.record_ended(index, Outcome::Status(status.as_u16()));
                        return;
                    }
                    (Some(error), _) => {
                        entry.source.set_answer(answer);
                        // 408 and 429 mean a busy upstream. Any other 4xx is a mistake of the flow, which `optional` does not hide.
                        let overloaded = matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS);
                        let own = error.fault == Fault::Client && status.is_client_error() && !overloaded;
                        (error, own)
                    }
                    // An unreadable body has become an error above.
                    (None, Err(_)) => return,
                }
            }
            Err(error) => (error, false),
        };
        let error = Arc::new(error);
        // The body of a refused answer is given up.
        drop(entry.slot().and_then(|slot| slot.take()));
        entry.source.set_error(error.clone());
        let kind = error.kind.as_str();
        let failure =
            Failure::new(Kind::Host, error.to_string()).at(self.route.program.position(entry.site)).with_payload(error);
        let instead = match entry.on_failure() {
            OnFailure::Absent if !flow_error => Some(None),
            OnFailure::Default(value) if !flow_error => Some(Some(value.clone())),
            _ => None,
        };
        match instead {
            Some(value) => {
                entry.state = CallState::Missing;
                entry.slot.settle_shared(Ok(value.unwrap_or_else(|| Value::Absent(Rc::new(failure)))));
            }
            None => {
                entry.state = CallState::Failed;
                entry.slot.settle(Err(failure));
            }
        }
        self.record_ended(index, Outcome::Failed(kind));
    }

    /// The program order of the call that `slot` belongs to, if it is a call of this flow or a part of its answer.
    pub(crate) fn program_order(&self, slot: &PendingValue) -> Option<ProgramOrder> {
        let root = slot.root();
        self.calls.iter().find(|entry| entry.slot.same(root)).map(|entry| entry.order.clone())
    }

    /// Whether a required call is on its way. One that awaits its arguments is not: if these are of a required call, that one is.
    pub(crate) fn awaits_required(&self) -> bool {
        self.calls.iter().any(|entry| entry.required && entry.state == CallState::Pending && entry.unsent.is_none())
    }

    /// Whether `slot` is an optional call of this flow, or a part of its answer.
    pub(crate) fn is_optional(&self, slot: &PendingValue) -> bool {
        let root = slot.root();
        self.calls.iter().any(|entry| !entry.required && entry.slot.same(root))
    }

    /// The failure with its origin: the answer that lacks something, and the line of the call.
    #[cold]
    pub(crate) fn with_origin(&self, mut failure: Failure, slot: Option<&PendingValue>) -> Failure {
        name_origin(&mut failure, |doc| Some((self.origin(doc)?, self.made(doc))));
        if failure.position.is_none()
            && let Some(root) = slot.map(PendingValue::root)
            && let Some(entry) = self.calls.iter().find(|entry| entry.slot.same(root))
        {
            failure.position = Some(self.position(entry.site));
        }
        failure
    }

    /// The whole answer, if `slot` is a call itself and the answer is its value. A default may stand in for an answer.
    pub(crate) fn answer_of(&self, slot: &PendingValue) -> Option<&Answer> {
        let entry = self.calls.iter().find(|entry| entry.slot.same(slot))?;
        if entry.state == CallState::Answered { entry.source.whole() } else { None }
    }

    /// What rules of its upstream say of the headers of an answer that is passed on.
    pub(crate) fn answer_rules(&self, slot: &PendingValue) -> Option<&AnswerHeaders> {
        let entry = self.calls.iter().find(|entry| entry.slot.same(slot))?;
        entry.object.downcast::<UpstreamObject>()?.upstream.config().answer_headers.as_ref()
    }

    /// The failures of a partial response: first the calls that failed, then those that were not sent because of them.
    pub(crate) fn missing(&self) -> impl Iterator<Item = Missing<'_>> {
        let with = |state| self.calls.iter().filter(move |entry| entry.state == state);
        let failed = with(CallState::Missing).map(|entry| {
            let kind = entry.source.error().map_or("absent", |error| error.kind.as_str());
            Missing { upstream: entry.object.name(), kind, because: None }
        });
        // A call that needs an item that does not exist has no error: nothing has failed.
        let dependents = with(CallState::Dependent).filter_map(|entry| {
            let cause = entry.source.error()?;
            Some(Missing { upstream: entry.object.name(), kind: "absent", because: Some(&cause.upstream) })
        });
        failed.chain(dependents)
    }

    pub(crate) fn any_missing(&self) -> bool {
        self.calls.iter().any(|entry| entry.state == CallState::Missing)
    }

    /// The progress of an answer in parts, once the first is made.
    pub(crate) fn progress(&self) -> Option<&Progress> {
        self.rare.as_ref()?.progress.as_deref()
    }

    /// Sets the progress.
    pub(crate) fn set_progress(&mut self, progress: Box<Progress>) {
        self.rare.get_or_insert_default().progress = Some(progress);
    }

    /// Takes the progress out for a moment.
    pub(crate) fn take_progress(&mut self) -> Option<Box<Progress>> {
        self.rare.as_mut()?.progress.take()
    }

    /// Cancels calls in flight. Returns the number of calls, the time with calls in flight, and the record.
    pub(crate) fn finish(&mut self) -> (u32, Duration, Option<Arc<FlowRecord>>) {
        self.note_idle();
        self.inflight = InFlightCalls::None;
        let calls = self.calls.len() as u32;
        if calls != self.route.calls.load(Relaxed) {
            self.route.calls.store(calls, Relaxed);
        }
        (calls, Duration::from_micros(self.upstream_us.into()), self.take_record())
    }
}

impl Entry {
    /// Whether this document is the call's answer.
    fn answered(&self, doc: &Doc) -> bool {
        match self.slot.outcome() {
            Some(Ok(Value::Json { doc: answer, .. })) => answer.same(doc),
            Some(Ok(Value::Frozen(parts))) => lookup::belong_to(&parts, doc),
            _ => false,
        }
    }

    /// How an answer differs from the shape that the call declares.
    fn mismatch(&self, status: StatusCode, body: &Body) -> Option<String> {
        let options = self.outcome_options.as_deref()?;
        let shape = options.returns.as_deref().filter(|_| status.is_success())?;
        let object = self.object.downcast::<UpstreamObject>()?;
        let name = options.operation.and_then(|at| object.upstream.operation_name(at));
        returns::mismatch(shape, body, name.map(|name| &**name))
    }

    fn has_shape(&self) -> bool {
        self.outcome_options.as_ref().is_some_and(|options| options.returns.is_some())
    }

    fn on_failure(&self) -> &OnFailure {
        self.outcome_options.as_ref().map_or(&OnFailure::Fail, |outcome_options| &outcome_options.on_failure)
    }

    /// Whether the call's `ok` lists this status.
    fn accepts(&self, status: StatusCode) -> bool {
        self.outcome_options.as_ref().is_some_and(|outcome_options| outcome_options.ok.contains(&status.as_u16()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_of_a_call_is_small() {
        assert!(size_of::<Entry>() <= 80, "{}", size_of::<Entry>());
    }
}
