//! The machine's host: makes a running flow's calls and settles their slots.

mod host_interface;
mod lookup;
mod merging;
mod rounds;

use std::cell::RefCell;
use std::num::NonZero;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::Duration;

use fanin_config::FlowLimits;
use fanin_json::Doc;
use fanin_lang::{
    CallSite, Failure, Host, HostRef, Kind, PendingValue, Position, ProgramOrder, Value, Waiter, name_origin,
};
use fanin_upstream::shared::Body;
use fanin_upstream::{Answer, CallContext, CallError, Fault};
use http::{Method, StatusCode};
use smallvec::SmallVec;
use tokio::time::Instant;

use crate::answer::CallSource;
use crate::call::{Arguments, Need, OnFailure, Terms};
use crate::inflight::{Calls, Checked, InFlight};
use crate::kinds::UpstreamObject;
use crate::request_object::Req;
use crate::route::RouteFlow;
use crate::trace::CallTrace;
use crate::worker::Worker;

/// Tokens of calls whose arguments may be there now.
#[derive(Default)]
struct Woken(RefCell<Vec<u64>>);

impl Waiter for Woken {
    fn settled(&self, token: u64) {
        self.0.borrow_mut().push(token);
    }
}

/// One call of the request: what is left of it once it is sent.
struct Entry {
    object: HostRef,
    slot: PendingValue,
    source: Rc<CallSource>,
    /// Until it is sent, if that is not at once.
    unsent: Option<Box<(Arguments, Terms)>>,
    /// What few calls say.
    said: Option<Box<Said>>,
    order: ProgramOrder,
    site: CallSite,
    end: End,
    /// Its failure is the flow's.
    required: bool,
    safe: bool,
    /// It may be served by a batch.
    batch: bool,
}

/// What few calls say of how they may end.
struct Said {
    on_failure: OnFailure,
    /// Statuses that are answers.
    ok: SmallVec<[u16; 2]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// Not yet.
    Open,
    /// The answer is there.
    Answered,
    /// It failed, and its failure is the flow's.
    Failed,
    /// It was optional and failed, or needed one that did.
    Missing,
}

/// One running flow's calls.
pub(crate) struct FlowHost {
    pub(crate) worker: Rc<Worker>,
    pub(crate) route: Arc<RouteFlow>,
    req: Rc<Req>,
    calls: Vec<Entry>,
    inflight: Calls,
    /// Made when a call waits for its arguments.
    woken: Option<Rc<Woken>>,
    /// Calls that wait to be sent together; most requests have none.
    rounds: Option<Box<rounds::Rounds>>,
    /// Set once a call that may change something has been sent.
    pub(crate) wrote: bool,
    /// The flow has left something to be dropped in parts.
    pub(crate) litter: bool,
    /// Microseconds that the flow has computed in turns, up to the type's bound: more makes no difference.
    computed: u16,
    /// Microseconds since the request came, and one: since when calls have been under way.
    busy_since: Option<NonZero<u32>>,
    /// Microseconds.
    busy: u32,
    #[allow(clippy::box_collection, reason = "thin: few flows are traced")]
    traces: Option<Box<Vec<CallTrace>>>,
}

impl FlowHost {
    pub(crate) fn new(worker: Rc<Worker>, route: Arc<RouteFlow>, req: Rc<Req>) -> FlowHost {
        FlowHost {
            traces: worker.traced.then(Box::default),
            worker,
            route,
            req,
            calls: Vec::new(),
            inflight: Calls::None,
            woken: None,
            rounds: None,
            wrote: false,
            litter: false,
            computed: 0,
            busy_since: None,
            busy: 0,
        }
    }

    /// When the request came.
    fn began(&self) -> Instant {
        self.req.start()
    }

    /// When the request must have ended.
    pub(crate) fn deadline(&self) -> Instant {
        self.req.deadline()
    }

    fn limits(&self) -> &FlowLimits {
        &self.route.limits
    }

    /// The flow has computed for another turn; gives how long in all.
    pub(crate) fn computed(&mut self, turn: Duration) -> Duration {
        let micros = u16::try_from(turn.as_micros()).unwrap_or(u16::MAX);
        self.computed = self.computed.saturating_add(micros);
        Duration::from_micros(self.computed.into())
    }

    fn position(&self, site: CallSite) -> Position {
        self.route.program.position(site)
    }

    /// When optional calls must have settled: before the deadline, so that a partial answer is still in time.
    fn optional_deadline(&self) -> Instant {
        let (start, deadline) = (self.began(), self.deadline());
        let whole = deadline.saturating_duration_since(start);
        let reserve = (whole / 10).max(Duration::from_millis(5));
        deadline.checked_sub(reserve).unwrap_or(start)
    }

    /// Sends calls whose arguments have arrived.
    pub(crate) fn pump(&mut self) {
        loop {
            let Some(woken) = &self.woken else { return };
            let tokens = std::mem::take(&mut *woken.0.borrow_mut());
            if tokens.is_empty() {
                return;
            }
            for token in tokens {
                self.advance(token as usize);
            }
        }
    }

    /// Sends a call, or has it wait for what it needs.
    fn advance(&mut self, index: usize) {
        let Some(entry) = self.calls.get_mut(index) else { return };
        let Some(unsent) = &entry.unsent else { return };
        match unsent.0.need() {
            Need::Waits(slot) => slot.on_settled(self.woken.get_or_insert_default().clone(), index as u64),
            Need::Failed(failure) => {
                // It is another's failure, so `optional` of this call does not cover it.
                entry.unsent = None;
                entry.end = End::Failed;
                let slot = entry.slot.clone();
                let failure = self.named((*failure).clone(), Some(&slot));
                slot.settle(Err(failure));
                self.trace(index, |trace, _| trace.outcome = "not sent".to_owned());
            }
            Need::Absent(failure) => {
                entry.unsent = None;
                entry.end = End::Missing;
                let value = match entry.on_failure() {
                    OnFailure::Default(value) => value.clone(),
                    _ => Value::Absent(failure),
                };
                entry.slot.settle_shared(Ok(value));
                self.trace(index, |trace, _| trace.outcome = "absent".to_owned());
            }
            Need::Ready => {
                if let Some(unsent) = entry.unsent.take() {
                    self.send(index, &unsent.0, &unsent.1);
                }
            }
        }
    }

    fn send(&mut self, index: usize, arguments: &Arguments, terms: &Terms) {
        if let Some(merging) = &terms.merging {
            return self.send_merging(index, arguments, terms.timeout, **merging);
        }
        let entry = &mut self.calls[index];
        // Entries are made only for upstreams.
        let Some(object) = entry.object.downcast::<UpstreamObject>() else { return };
        let request = match arguments.request(object, &terms.method, self.req.headers()) {
            Ok(request) => request,
            Err(failure) => {
                entry.end = End::Failed;
                entry.slot.settle(Err(failure.at(self.route.program.position(entry.site))));
                self.trace(index, |trace, _| trace.outcome = "not sent".to_owned());
                return;
            }
        };
        let required = entry.required;
        let context = CallContext {
            deadline: if required { self.deadline() } else { self.optional_deadline() },
            request_started: self.began(),
            timeout: terms.timeout,
            safe: terms.safe,
            operation: terms.operation,
        };
        if !terms.safe {
            self.wrote = true;
        }
        if self.traces.is_some() {
            let target = format!("{} {}", request.method, request.path_and_query);
            self.trace(index, |trace, now| {
                trace.target = target;
                trace.sent = Some(now);
            });
        }
        let Some(object) = self.calls[index].object.downcast::<UpstreamObject>() else { return };
        let future = self.worker.caller.call(&object.upstream, request, context);
        let call = InFlight::new(index, future, terms.method == Method::HEAD, self.limits().max_json_depth);
        self.push(call);
    }

    fn push(&mut self, call: InFlight) {
        if self.inflight.is_empty() {
            self.busy_since = NonZero::new(self.micros().saturating_add(1));
        }
        self.inflight.push(call);
    }

    /// Waits until a call ends, then takes all that have ended. `false` if none is under way. When nothing is ready, calls
    /// that were made to be sent together are; `suspended` says that parts of the flow wait and may make more.
    pub(crate) fn completions(&mut self, suspended: bool, context: &mut Context<'_>) -> Poll<bool> {
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
                ended => match self.round(suspended, context) {
                    Poll::Ready(true) => {}
                    Poll::Ready(false) if ended.is_pending() => return Poll::Pending,
                    Poll::Ready(false) => break,
                    Poll::Pending => return Poll::Pending,
                },
            }
        }
        if self.inflight.is_empty() {
            self.rest();
        }
        Poll::Ready(taken)
    }

    fn rest(&mut self) {
        if let Some(since) = self.busy_since.take() {
            let micros = self.micros().saturating_sub(since.get() - 1);
            self.busy = self.busy.saturating_add(micros);
        }
    }

    /// Microseconds since the request came, up to an hour: an upper bound is the type's.
    fn micros(&self) -> u32 {
        u32::try_from(self.began().elapsed().as_micros()).unwrap_or(u32::MAX)
    }

    fn complete(&mut self, index: usize, result: Result<(Answer, Checked), CallError>) {
        let entry = &mut self.calls[index];
        let (error, own_mistake) = match result {
            Ok((answer, checked)) => {
                let status = answer.status;
                let fine = status.is_success() || entry.takes(status);
                let error = match (&checked, fine) {
                    (_, false) => Some(CallError::status(entry.source.upstream(), &answer)),
                    (Err(error), true) => Some(CallError::decode(entry.source.upstream(), &answer, error.to_string())),
                    (Ok(_), true) => None,
                };
                match (error, checked) {
                    (None, Ok(body)) => {
                        let value = match body {
                            Body::Json(doc) => Value::json(doc),
                            Body::Empty => Value::None,
                            Body::Text => text(&answer),
                            part => {
                                entry.source.set_part();
                                lookup::value(part, entry.object.name())
                            }
                        };
                        entry.end = End::Answered;
                        if entry.batch {
                            entry.source.set_split();
                        }
                        entry.source.set_answer(answer);
                        entry.slot.settle_shared(Ok(value));
                        self.trace(index, |trace, now| {
                            trace.ended = Some(now);
                            trace.outcome = status.as_u16().to_string();
                        });
                        return;
                    }
                    (Some(error), _) => {
                        entry.source.set_answer(answer);
                        // 408 and 429 are a busy upstream's words; every other 4xx says that the flow asked wrongly.
                        let trouble = matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS);
                        let own = error.fault == Fault::Client && status.is_client_error() && !trouble;
                        (error, own)
                    }
                    // An unreadable body is an error above.
                    (None, Err(_)) => return,
                }
            }
            Err(error) => (error, false),
        };
        let error = Arc::new(error);
        entry.source.set_error(error.clone());
        let kind = error.kind.as_str();
        let failure =
            Failure::new(Kind::Host, error.to_string()).at(self.route.program.position(entry.site)).with_payload(error);
        let instead = match entry.on_failure() {
            OnFailure::Absent if !own_mistake => Some(None),
            OnFailure::Default(value) if !own_mistake => Some(Some(value.clone())),
            _ => None,
        };
        match instead {
            Some(value) => {
                entry.end = End::Missing;
                entry.slot.settle_shared(Ok(value.unwrap_or_else(|| Value::Absent(Rc::new(failure)))));
            }
            None => {
                entry.end = End::Failed;
                entry.slot.settle(Err(failure));
            }
        }
        self.trace(index, |trace, now| {
            trace.ended = Some(now);
            trace.outcome = kind.to_owned();
        });
    }

    fn trace(&mut self, index: usize, change: impl FnOnce(&mut CallTrace, Duration)) {
        if let Some(trace) = self.traces.as_mut().and_then(|traces| traces.get_mut(index)) {
            change(trace, self.req.start().elapsed());
        }
    }

    /// The place of a call in program order, if `slot` is one of this request's calls or a part of its answer.
    pub(crate) fn order(&self, slot: &PendingValue) -> Option<ProgramOrder> {
        let root = slot.root();
        self.calls.iter().find(|entry| entry.slot.same(root)).map(|entry| entry.order.clone())
    }

    /// The failure with all that is known of where it comes from: the answer that lacks something, the line of the call.
    #[cold]
    pub(crate) fn named(&self, mut failure: Failure, slot: Option<&PendingValue>) -> Failure {
        name_origin(&mut failure, |doc| Some((self.origin(doc)?, self.made(doc))));
        if failure.position.is_none()
            && let Some(root) = slot.map(PendingValue::root)
            && let Some(entry) = self.calls.iter().find(|entry| entry.slot.same(root))
        {
            failure.position = Some(self.position(entry.site));
        }
        failure
    }

    /// The answer behind a slot that is a call's itself.
    pub(crate) fn answer_of(&self, slot: &PendingValue) -> Option<&Answer> {
        self.calls.iter().find(|entry| entry.slot.same(slot))?.source.whole()
    }

    /// Names and kinds of what is missing from the response.
    pub(crate) fn missing(&self) -> impl Iterator<Item = (&str, &str)> {
        self.calls.iter().filter(|entry| entry.end == End::Missing).map(|entry| {
            let kind = entry.source.error().map_or("absent", |error| error.kind.as_str());
            (entry.object.name(), kind)
        })
    }

    pub(crate) fn any_missing(&self) -> bool {
        self.calls.iter().any(|entry| entry.end == End::Missing)
    }

    /// Ends what is still under way and gives what the calls took.
    pub(crate) fn finish(&mut self) -> (u32, Duration, Vec<CallTrace>) {
        self.rest();
        self.inflight = Calls::None;
        let calls = self.calls.len() as u32;
        if calls != self.route.calls.load(Relaxed) {
            self.route.calls.store(calls, Relaxed);
        }
        (calls, Duration::from_micros(self.busy.into()), self.traces.take().map_or_else(Vec::new, |traces| *traces))
    }
}

/// The text of an answer that is not JSON. Bytes that are no text can still be had from the upstream's own side, not here.
fn text(answer: &Answer) -> Value {
    Value::str(&String::from_utf8_lossy(&answer.body))
}

impl Entry {
    /// Whether a document is this call's answer.
    fn answered(&self, doc: &Doc) -> bool {
        match self.slot.outcome() {
            Some(Ok(Value::Json { doc: answer, .. })) => answer.same(doc),
            Some(Ok(Value::Frozen(parts))) => lookup::is_of(&parts, doc),
            _ => false,
        }
    }

    fn on_failure(&self) -> &OnFailure {
        self.said.as_ref().map_or(&OnFailure::Fail, |said| &said.on_failure)
    }

    /// Whether it says that an answer with this status is one.
    fn takes(&self, status: StatusCode) -> bool {
        self.said.as_ref().is_some_and(|said| said.ok.contains(&status.as_u16()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_is_under_way_is_small() {
        assert!(size_of::<Entry>() <= 80, "{}", size_of::<Entry>());
    }
}
