//! The executor: runs one flow from its request to its reply.

mod parts;

use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use fanin_lang::value::ObjectRef;
use fanin_lang::{Failure, Instance, Kind, Limit, PendingValue, ProgramOrder, Readiness, Run, Value, readiness};
use fanin_upstream::CallError;
use smallvec::SmallVec;
use tokio::time::Instant;

use crate::builtins::Abort;
use crate::call_record::Detail;
use crate::client_error::ClientError;
use crate::fair_scheduler::{FIRST_SLICE, SLICE, TimeSlice};
use crate::flow_error::FlowError;
use crate::flow_host::FlowHost;
use crate::full_record::FullRecord;
use crate::incoming_request::IncomingRequest;
use crate::json_thread::Parsing;
use crate::partial;
use crate::playback::Playback;
use crate::progressive::Framing;
use crate::push::PushRefused;
use crate::refused_path::RefusedPath;
use crate::reply::{Reply, Success};
use crate::request_docs::{COOKIES, FORM};
use crate::request_object::{BODY, HEADERS, QUERY, RequestObject};
use crate::respond;
use crate::route::RouteFlow;
use crate::sequential_waits;
use crate::worker::Worker;

/// Steps between two looks at the clock: about 10 microseconds of arithmetic.
const STEPS_PER_RUN: u64 = 3_000;
/// The values of a flow that allocated fewer bytes are dropped at once, those of others in time slices.
const DROP_AT_ONCE: u64 = 256 << 10;

/// One flow from its request to its reply. A hand-written future, because thousands may be suspended at once and an `async fn`
/// takes more memory. Fields that few flows need are boxed.
pub(crate) struct Flow {
    pub(crate) host: FlowHost,
    /// Kept until the reply, because the response is made of its values.
    instance: Option<Instance>,
    stage: Stage,
    /// The request's permit, held until the flow has ended.
    _permit: Option<Box<dyn Any>>,
}

enum Stage {
    /// The function has not begun: the large body of the request is parsed on another thread.
    Parsing(Box<Parsing>),
    /// The function can run.
    Running,
    /// Every fiber is suspended until a call ends.
    Waiting,
    /// Other flows run. Ready with the next time slice.
    #[allow(clippy::redundant_allocation, reason = "one word instead of two in every suspended flow")]
    Yielded(Box<NextSlice>),
    /// The function has returned a value with pending parts.
    Returned(Box<Returned>),
    /// The function and all that it called have ended; the last parts of the answer are on their way.
    Finished,
    /// The function cannot be called.
    NotCallable(Box<Failure>),
    /// The reply is ready, and the flow's values are freed in time slices. The reply waits for this, so that clients of such a flow
    /// cannot allocate faster than it frees.
    Freeing(Box<Freeing>),
}

type NextSlice = Pin<Box<dyn Future<Output = TimeSlice>>>;

struct Freeing {
    reply: Option<Reply>,
    next: NextSlice,
}

/// What a function returned.
struct Returned {
    value: Value,
    /// Calls in it that may be pending, in reverse program order.
    awaited: SmallVec<[PendingValue; 6]>,
    /// It is answered in parts.
    framing: Option<Framing>,
}

impl Flow {
    pub(crate) fn new(worker: Rc<Worker>, route: Arc<RouteFlow>, incoming: IncomingRequest) -> Flow {
        Flow::with(worker, route, incoming, None)
    }

    /// The same; with `playback` it runs again as it was recorded.
    pub(crate) fn with(
        worker: Rc<Worker>,
        route: Arc<RouteFlow>,
        mut incoming: IncomingRequest,
        playback: Option<Box<Playback>>,
    ) -> Flow {
        let permit = incoming.permit.take();
        let detail = incoming.detail.max(worker.detail);
        let full = if detail >= Detail::Requests { FullRecord::begin(detail, &incoming) } else { None };
        let (is_full, again) = (full.as_ref().is_some_and(|full| full.keeps_answers), playback.is_some());
        let req = Rc::new(RequestObject::new(incoming, route.limits.max_json_depth));
        let args = vec![Value::Object(ObjectRef::shared(req.clone()))];
        let (mut instance, mut stage) = match Instance::new(&route.program, route.function, args, route.bounds.clone())
        {
            Ok(instance) => (Some(instance), Stage::Running),
            Err(failure) => (None, Stage::NotCallable(failure)),
        };
        if let Some(instance) = instance.as_mut().filter(|_| is_full) {
            instance.record_waits();
        }
        if req.has_large_body() && !again && route.large_bodies.are_read() && instance.is_some() {
            stage = Stage::Parsing(Box::new(req.parse_ahead()));
        }
        worker.scheduler.flow_started();
        Flow { host: FlowHost::new(worker, route, req, detail, full, playback), instance, stage, _permit: permit }
    }

    /// Runs until the flow is suspended, yields or ends.
    fn advance(&mut self, context: &mut Context<'_>) -> Poll<Result<Advance, NoResponse>> {
        // The current time slice, if the flow has used up its first one, and its start.
        let (mut slice, mut began) = (None, None);
        self.host.time_passed();
        loop {
            match &mut self.stage {
                Stage::Parsing(parsing) => {
                    // The thread ends only with the process; then the flow parses the body.
                    if let Some(Ok(doc)) = ready!((**parsing).as_mut().poll(context)) {
                        self.host.req.set_parsed(doc);
                    }
                    self.stage = Stage::Running;
                }
                Stage::Running => {
                    let Some(instance) = &mut self.instance else {
                        return Poll::Ready(Err(internal("the running flow has no instance")));
                    };
                    let worker = self.host.worker.clone();
                    (worker.activity)(Some(self.host.route.index));
                    let from = self.host.keeps_answers().then(|| self.host.now());
                    let run = || instance.run(&mut worker.machine.borrow_mut(), &mut self.host, STEPS_PER_RUN);
                    let (run, rest) = fanin_lang::drop_incrementally(run);
                    (worker.activity)(None);
                    if let Some(from) = from {
                        self.host.record_run(from, instance.take_waits());
                    }
                    if rest {
                        self.host.deferred_drops = fanin_lang::drop_remaining();
                    }
                    match run {
                        Run::Done(value) => {
                            drop(slice);
                            self.note_sequential_waits();
                            if self.is_sending() {
                                self.stage = Stage::Finished;
                                return Poll::Ready(Ok(Advance::Part));
                            }
                            let mut returned = self.collect_pending(value);
                            match self.finish(&mut returned, context) {
                                Poll::Ready(end) => return Poll::Ready(end.map(Advance::Answer)),
                                Poll::Pending => self.stage = Stage::Returned(Box::new(returned)),
                            }
                            return Poll::Pending;
                        }
                        Run::Failed(failure) => {
                            self.note_sequential_waits();
                            return Poll::Ready(Err(NoResponse::Failed(failure)));
                        }
                        Run::Yielded if self.host.playback().is_some() => {}
                        Run::Yielded => {
                            self.host.time_passed();
                            let now = Instant::now();
                            if now >= self.host.deadline() {
                                self.note_sequential_waits();
                                return Poll::Ready(Err(NoResponse::Deadline));
                            }
                            let elapsed = now.saturating_duration_since(*began.get_or_insert(now));
                            let length = if slice.is_some() { SLICE } else { FIRST_SLICE };
                            if elapsed >= length {
                                let computed = self.host.add_compute_time(elapsed);
                                if slice.is_none() {
                                    worker.scheduler.record(elapsed);
                                }
                                self.stage = Stage::Yielded(Box::new(next_slice(&worker, computed, slice.take())));
                            }
                        }
                        Run::Waiting => {
                            (slice, began) = (None, None);
                            self.host.send_ready_calls();
                            if !instance.is_ready() {
                                self.stage = Stage::Waiting;
                                if self.host.route.progressive
                                    && let Some(end) = self.part_while_waiting()
                                {
                                    return Poll::Ready(end);
                                }
                            }
                        }
                    }
                }
                Stage::Waiting => {
                    if !ready!(self.host.poll_completions(true, context)) {
                        return Poll::Ready(Err(internal("the flow is suspended without a call in flight")));
                    }
                    self.stage = Stage::Running;
                }
                Stage::Yielded(next) => {
                    slice = Some(ready!((**next).as_mut().poll(context)));
                    began = Some(Instant::now());
                    self.stage = Stage::Running;
                }
                Stage::Returned(_) => {
                    let Stage::Returned(mut returned) = std::mem::replace(&mut self.stage, Stage::Running) else {
                        continue;
                    };
                    let end = self.finish(&mut returned, context);
                    if end.is_pending() {
                        self.stage = Stage::Returned(returned);
                    }
                    return end.map(|end| end.map(Advance::Answer));
                }
                Stage::NotCallable(_) => match std::mem::replace(&mut self.stage, Stage::Running) {
                    Stage::NotCallable(failure) => return Poll::Ready(Err(NoResponse::Failed(failure))),
                    _ => continue,
                },
                Stage::Freeing(_) | Stage::Finished => {
                    return Poll::Ready(Err(internal("the flow was polled after its answer")));
                }
            }
        }
    }

    /// Reports a loop of the finished function that awaited something in each of its iterations.
    fn note_sequential_waits(&self) {
        let Some(instance) = &self.instance else { return };
        let (waits, site) = instance.sequential_waits();
        if waits >= sequential_waits::THRESHOLD && self.host.playback().is_none() {
            let route = &self.host.route;
            route.sequential_waits.record(&route.name, &route.program.position(site), waits);
        }
    }

    /// Collects the calls in a returned value, in program order, so that the reported failure does not depend on timing.
    fn collect_pending(&mut self, value: Value) -> Returned {
        self.host.send_ready_calls();
        let mut calls: SmallVec<[(ProgramOrder, PendingValue); 8]> = SmallVec::new();
        respond::pending_values(&value, &mut |slot| {
            if let Some(order) = self.host.program_order(slot) {
                calls.push((order, slot.clone()));
            }
        });
        calls.sort_by(|(a, _), (b, _)| b.cmp(a));
        let framing = self.framing().filter(|_| respond::is_splittable(&value));
        if framing.is_some() {
            calls.retain(|(_, slot)| !self.host.is_optional(slot));
        }
        Returned { value, awaited: calls.into_iter().map(|(_, slot)| slot).collect(), framing }
    }

    /// Awaits all pending parts of the returned value together, then writes it.
    fn finish(&mut self, returned: &mut Returned, context: &mut Context<'_>) -> Poll<Result<Success, NoResponse>> {
        while let Some(slot) = returned.awaited.last() {
            match slot.outcome() {
                Some(Ok(_)) => {
                    returned.awaited.pop();
                }
                Some(Err(failure)) => {
                    return Poll::Ready(Err(self.host.with_origin((*failure).clone(), Some(slot)).into()));
                }
                // What is left awaits optional calls. Its part comes late, as theirs.
                None if returned.framing.is_some() && !self.host.awaits_required() => break,
                None => ready!(self.await_completions(context))?,
            }
        }
        while let Some(framing) = returned.framing {
            match respond::first_part(&self.host, &returned.value, framing) {
                Err(failure) => return Poll::Ready(Err(failure.into())),
                Ok(Some((success, progress))) => {
                    self.host.set_progress(Box::new(progress));
                    self.stage = Stage::Finished;
                    return Poll::Ready(Ok(success));
                }
                Ok(None) => ready!(self.await_completions(context))?,
            }
        }
        // Pending values that are not calls, such as those inside defaults.
        loop {
            match readiness(&returned.value) {
                Readiness::Ready | Readiness::Absent(_) => break,
                Readiness::Pending(_) => ready!(self.await_completions(context))?,
                Readiness::Failed(failure) => {
                    return Poll::Ready(Err(NoResponse::Failed(Box::new((*failure).clone()))));
                }
                Readiness::TooDeep => {
                    let failure = Failure::new(Kind::Limit, "the response is nested too deep");
                    return Poll::Ready(Err(failure.into()));
                }
            }
        }
        Poll::Ready(respond::success(&self.host, &returned.value).map_err(NoResponse::from))
    }

    fn await_completions(&mut self, context: &mut Context<'_>) -> Poll<Result<(), NoResponse>> {
        if !ready!(self.host.poll_completions(false, context)) {
            return Poll::Ready(Err(internal("the response has a pending value without a call in flight")));
        }
        self.host.send_ready_calls();
        Poll::Ready(Ok(()))
    }

    fn reply(&mut self, outcome: Result<Success, NoResponse>) -> Reply {
        let usage = self.instance.as_ref().map(Instance::usage).unwrap_or_default();
        let mut limit = None;
        let result = match outcome {
            Ok(success) => Ok(success),
            Err(NoResponse::Deadline) => Err(FlowError::deadline()),
            Err(NoResponse::Failed(failure)) => {
                let failure = self.host.with_origin(*failure, None);
                let (error, by) = failed(&self.host, &failure);
                limit = by;
                Err(error)
            }
        };
        let partial = (result.is_ok() && self.host.any_missing()).then(|| partial::failed_names(self.host.missing()));
        let req = &self.host.req;
        if req.has_large_body() && self.host.playback().is_none() {
            self.host.route.large_bodies.record(req.body_was_read());
        }
        let (calls, upstream, record) = self.host.finish();
        Reply { result, calls, upstream, partial, usage, limit, record }
    }
}

impl Future for Flow {
    type Output = Reply;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Reply> {
        let this = &mut *self;
        if !matches!(this.stage, Stage::Freeing(_)) {
            let outcome = match ready!(this.advance(context)) {
                Ok(Advance::Answer(success)) if this.is_sending() => return Poll::Ready(Flow::first_reply(success)),
                Ok(Advance::Answer(success)) => Ok(success),
                Ok(Advance::Part) => Err(internal("a part came before the first")),
                Err(error) => Err(error),
            };
            let reply = this.reply(outcome);
            if this.host.deferred_drops || reply.usage.memory > DROP_AT_ONCE {
                let instance = this.instance.take();
                this.host.deferred_drops |= fanin_lang::drop_incrementally(|| drop(instance)).1;
            }
            if !this.host.deferred_drops || this.host.playback().is_some() {
                return Poll::Ready(reply);
            }
            let next = next_slice(&this.host.worker, Duration::MAX, None);
            this.stage = Stage::Freeing(Box::new(Freeing { reply: Some(reply), next }));
        }
        while let Stage::Freeing(freeing) = &mut this.stage {
            let slice = ready!(freeing.next.as_mut().poll(context));
            let began = Instant::now();
            while this.host.deferred_drops && began.elapsed() < SLICE {
                this.host.deferred_drops = fanin_lang::drop_remaining();
            }
            drop(slice);
            if this.host.deferred_drops {
                freeing.next = next_slice(&this.host.worker, Duration::MAX, None);
            } else if let Some(reply) = freeing.reply.take() {
                return Poll::Ready(reply);
            } else {
                break;
            }
        }
        // Polled after the reply.
        Poll::Pending
    }
}

impl Drop for Flow {
    /// Drops the rest of a cancelled flow's values at once.
    fn drop(&mut self) {
        while self.host.deferred_drops {
            self.host.deferred_drops = fanin_lang::drop_remaining();
        }
        self.host.worker.scheduler.flow_ended();
    }
}

fn next_slice(worker: &Worker, computed: Duration, previous: Option<TimeSlice>) -> NextSlice {
    let scheduler = worker.scheduler.clone();
    Box::pin(async move { scheduler.next_slice(computed, previous).await })
}

/// How far a flow has come.
enum Advance {
    /// It is answered, at least in part.
    Answer(Success),
    /// A later part of its answer may have come.
    Part,
}

/// Why there is no response.
pub(crate) enum NoResponse {
    Failed(Box<Failure>),
    Deadline,
}

impl From<Failure> for NoResponse {
    fn from(failure: Failure) -> NoResponse {
        NoResponse::Failed(Box::new(failure))
    }
}

#[cold]
fn internal(problem: &str) -> NoResponse {
    Failure::new(Kind::Host, format!("internal error: {problem}")).into()
}

/// Logs a failure. The error that the client receives, and the limit that stopped the flow.
fn failed(host: &FlowHost, failure: &Failure) -> (FlowError, Option<Limit>) {
    let error = to_error(failure, &host.req);
    let route = &host.route;
    if host.playback().is_none() {
        let ids = (host.req.trace_id(), host.req.known_id());
        host.worker.log.failure(&route.name, &route.program, ids, failure, &error);
    }
    (error, Limit::of(failure))
}

/// The error that the client receives for a failure.
fn to_error(failure: &Failure, req: &RequestObject) -> FlowError {
    // Whatever fails then, the client broke its own body off.
    if let Some(error) = req.upload_failure() {
        return error;
    }
    if let Some(payload) = &failure.payload {
        if let Some(error) = payload.downcast_ref::<CallError>() {
            return FlowError::call(error);
        }
        if let Some(abort) = payload.downcast_ref::<Abort>() {
            return FlowError::abort(abort.status, abort.message.clone(), abort.rpc.clone().map(Box::new));
        }
        if let Some(refused) = payload.downcast_ref::<PushRefused>() {
            return refused.to_error();
        }
        if let Some(error) = payload.downcast_ref::<ClientError>() {
            return FlowError::client(error.0.clone());
        }
        if let Some(value) = payload.downcast_ref::<RefusedPath>().and_then(|refused| req.unsafe_value(refused)) {
            return FlowError::client(format!("the request has {value:?}, which cannot be a part of a path"));
        }
    }
    let is_missing = matches!(failure.kind, Kind::Key | Kind::Index | Kind::Type);
    if is_missing && [QUERY, HEADERS, BODY, COOKIES, FORM].iter().any(|part| failure.message.starts_with(part)) {
        return FlowError::client(failure.message.clone());
    }
    FlowError::flow()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suspended_flow_fits_its_size_class() {
        // Each is in a box of its own, and the allocator has size classes of 320 and 384 bytes.
        assert!(size_of::<Flow>() <= 320, "{}", size_of::<Flow>());
    }
}
