//! Runs one flow from its request to its reply.

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
use crate::fair_scheduler::{FIRST, TURN, Turn};
use crate::flow_host::FlowHost;
use crate::reply::{FlowError, Reply, Success};
use crate::request_object::{BODY, ClientMistake, HEADERS, IncomingRequest, QUERY, Req};
use crate::respond;
use crate::route::RouteFlow;
use crate::sequential_waits;
use crate::worker::Worker;

/// Steps after which a flow looks at the time: 10 microseconds of arithmetic, some more where a step does more.
const LOOK: u64 = 3_000;
/// What a flow that has made fewer bytes leaves behind is dropped at once.
const SMALL: u64 = 256 << 10;

/// One flow from its request to its reply. Written out, and not an `async fn`, because thousands of them may wait at a time: it
/// holds nothing twice, and what few flows need is on the heap.
pub(crate) struct Flow {
    pub(crate) host: FlowHost,
    /// Until the reply, also when the function has returned: what it made is taken apart with it.
    instance: Option<Instance>,
    stage: Stage,
    /// Kept until the flow has ended.
    _permit: Option<Box<dyn Any>>,
}

enum Stage {
    /// The function can run.
    Runs,
    /// Nothing can run until a call ends.
    Waits,
    /// Others have their turn.
    #[allow(clippy::redundant_allocation, reason = "thin: a flow that waits is small, and few compute for long")]
    Yields(Box<NextTurn>),
    /// The function has returned, and what it returned is not all there.
    Returned(Box<Returned>),
    /// The function cannot be called.
    Refused(Box<Failure>),
    /// All is done, and what the flow has made is freed, which may take as long as making it did. Not left to somebody else: who
    /// makes much has to free it before its next request can make more.
    Frees(Box<Frees>),
}

type NextTurn = Pin<Box<dyn Future<Output = Turn>>>;

struct Frees {
    reply: Option<Reply>,
    turn: NextTurn,
}

/// What a function returned.
struct Returned {
    value: Value,
    /// Answers in it that may not be there yet, the first in program order last.
    awaited: SmallVec<[PendingValue; 6]>,
}

impl Flow {
    pub(crate) fn new(worker: Rc<Worker>, route: Arc<RouteFlow>, mut incoming: IncomingRequest) -> Flow {
        let permit = incoming.permit.take();
        let req = Rc::new(Req::new(incoming, route.limits.max_json_depth));
        let args = vec![Value::Object(ObjectRef::shared(req.clone()))];
        let (instance, stage) = match Instance::new(&route.program, route.function, args, route.bounds.clone()) {
            Ok(instance) => (Some(instance), Stage::Runs),
            Err(failure) => (None, Stage::Refused(failure)),
        };
        worker.turns.begin();
        Flow { host: FlowHost::new(worker, route, req), instance, stage, _permit: permit }
    }

    /// Runs until something must be waited for.
    fn go(&mut self, context: &mut Context<'_>) -> Poll<Result<Success, End>> {
        // The turn that it has, if it computes for long, and since when.
        let (mut place, mut began) = (None, None);
        loop {
            match &mut self.stage {
                Stage::Runs => {
                    let Some(instance) = &mut self.instance else { return Poll::Ready(Err(nothing("runs"))) };
                    let worker = self.host.worker.clone();
                    (worker.activity)(Some(self.host.route.index));
                    let run = || instance.run(&mut worker.machine.borrow_mut(), &mut self.host, LOOK);
                    let (run, rest) = fanin_lang::drop_incrementally(run);
                    (worker.activity)(None);
                    if rest {
                        self.host.litter = fanin_lang::drop_remaining();
                    }
                    match run {
                        Run::Done(value) => {
                            drop(place);
                            self.note_waits();
                            let mut returned = self.returned(value);
                            match self.finish(&mut returned, context) {
                                Poll::Ready(end) => return Poll::Ready(end),
                                Poll::Pending => self.stage = Stage::Returned(Box::new(returned)),
                            }
                            return Poll::Pending;
                        }
                        Run::Failed(failure) => {
                            self.note_waits();
                            return Poll::Ready(Err(End::Failed(failure)));
                        }
                        Run::Yielded => {
                            let now = Instant::now();
                            if now >= self.host.deadline() {
                                self.note_waits();
                                return Poll::Ready(Err(End::Deadline));
                            }
                            let turn = now.saturating_duration_since(*began.get_or_insert(now));
                            let lasts = if place.is_some() { TURN } else { FIRST };
                            if turn >= lasts {
                                let computed = self.host.computed(turn);
                                if place.is_none() {
                                    worker.turns.took(turn);
                                }
                                self.stage = Stage::Yields(Box::new(next_turn(&worker, computed, place.take())));
                            }
                        }
                        Run::Waiting => {
                            (place, began) = (None, None);
                            self.host.pump();
                            if !instance.is_ready() {
                                self.stage = Stage::Waits;
                            }
                        }
                    }
                }
                Stage::Waits => {
                    if !ready!(self.host.completions(true, context)) {
                        return Poll::Ready(Err(nothing("the flow waits for")));
                    }
                    self.stage = Stage::Runs;
                }
                Stage::Yields(turn) => {
                    place = Some(ready!((**turn).as_mut().poll(context)));
                    began = Some(Instant::now());
                    self.stage = Stage::Runs;
                }
                Stage::Returned(_) => {
                    let Stage::Returned(mut returned) = std::mem::replace(&mut self.stage, Stage::Runs) else {
                        continue;
                    };
                    let end = self.finish(&mut returned, context);
                    if end.is_pending() {
                        self.stage = Stage::Returned(returned);
                    }
                    return end;
                }
                Stage::Refused(_) => match std::mem::replace(&mut self.stage, Stage::Runs) {
                    Stage::Refused(failure) => return Poll::Ready(Err(End::Failed(failure))),
                    _ => continue,
                },
                Stage::Frees(_) => return Poll::Ready(Err(nothing("the reply waits for"))),
            }
        }
    }

    /// The function has come to its end: a loop in it may have waited in each of its turns.
    fn note_waits(&self) {
        let Some(instance) = &self.instance else { return };
        let (turns, site) = instance.sequential_waits();
        if turns >= sequential_waits::MANY {
            let route = &self.host.route;
            route.in_a_row.note(&route.name, &route.program.position(site), turns);
        }
    }

    /// Looks up what a returned value may lack, in the order of the program so that the same failure is reported whatever came
    /// first.
    fn returned(&mut self, value: Value) -> Returned {
        self.host.pump();
        let mut calls: SmallVec<[(ProgramOrder, PendingValue); 8]> = SmallVec::new();
        respond::slots(&value, &mut |slot| {
            if let Some(order) = self.host.order(slot) {
                calls.push((order, slot.clone()));
            }
        });
        calls.sort_by(|(a, _), (b, _)| b.cmp(a));
        Returned { value, awaited: calls.into_iter().map(|(_, slot)| slot).collect() }
    }

    /// Awaits together what the returned value still lacks, then writes it.
    fn finish(&mut self, returned: &mut Returned, context: &mut Context<'_>) -> Poll<Result<Success, End>> {
        while let Some(slot) = returned.awaited.last() {
            match slot.outcome() {
                Some(Ok(_)) => {
                    returned.awaited.pop();
                }
                Some(Err(failure)) => {
                    return Poll::Ready(Err(self.host.named((*failure).clone(), Some(slot)).into()));
                }
                None => ready!(self.settle_some(context))?,
            }
        }
        // What is left: values inside defaults and the like.
        loop {
            match readiness(&returned.value) {
                Readiness::Ready | Readiness::Absent(_) => break,
                Readiness::Pending(_) => ready!(self.settle_some(context))?,
                Readiness::Failed(failure) => return Poll::Ready(Err(End::Failed(Box::new((*failure).clone())))),
                Readiness::TooDeep => {
                    let failure = Failure::new(Kind::Limit, "the response is nested too deep");
                    return Poll::Ready(Err(failure.into()));
                }
            }
        }
        Poll::Ready(respond::success(&self.host, &returned.value).map_err(End::from))
    }

    fn settle_some(&mut self, context: &mut Context<'_>) -> Poll<Result<(), End>> {
        if !ready!(self.host.completions(false, context)) {
            return Poll::Ready(Err(nothing("the response waits for")));
        }
        self.host.pump();
        Poll::Ready(Ok(()))
    }

    fn reply(&mut self, outcome: Result<Success, End>) -> Reply {
        let usage = self.instance.as_ref().map(Instance::usage).unwrap_or_default();
        let mut limit = None;
        let result = match outcome {
            Ok(success) => Ok(success),
            Err(End::Deadline) => Err(FlowError::deadline()),
            Err(End::Failed(failure)) => {
                let failure = self.host.named(*failure, None);
                limit = Limit::of(&failure);
                let error = to_error(&failure);
                let route = &self.host.route;
                self.host.worker.log.failure(&route.name, &route.program, &failure, &error);
                Err(error)
            }
        };
        let partial = (result.is_ok() && self.host.any_missing()).then(|| respond::missing_names(&self.host));
        let (calls, upstream, trace) = self.host.finish();
        Reply { result, calls, upstream, partial, usage, limit, trace }
    }
}

impl Future for Flow {
    type Output = Reply;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Reply> {
        let this = &mut *self;
        if !matches!(this.stage, Stage::Frees(_)) {
            let outcome = ready!(this.go(context));
            let reply = this.reply(outcome);
            if this.host.litter || reply.usage.memory > SMALL {
                let instance = this.instance.take();
                this.host.litter |= fanin_lang::drop_incrementally(|| drop(instance)).1;
            }
            if !this.host.litter {
                return Poll::Ready(reply);
            }
            let turn = next_turn(&this.host.worker, Duration::MAX, None);
            this.stage = Stage::Frees(Box::new(Frees { reply: Some(reply), turn }));
        }
        while let Stage::Frees(frees) = &mut this.stage {
            let turn = ready!(frees.turn.as_mut().poll(context));
            let began = Instant::now();
            while this.host.litter && began.elapsed() < TURN {
                this.host.litter = fanin_lang::drop_remaining();
            }
            drop(turn);
            if this.host.litter {
                frees.turn = next_turn(&this.host.worker, Duration::MAX, None);
            } else if let Some(reply) = frees.reply.take() {
                return Poll::Ready(reply);
            } else {
                break;
            }
        }
        // The reply has been given.
        Poll::Pending
    }
}

impl Drop for Flow {
    /// What a flow that is cancelled has left to be dropped in parts is dropped at once.
    fn drop(&mut self) {
        while self.host.litter {
            self.host.litter = fanin_lang::drop_remaining();
        }
        self.host.worker.turns.end();
    }
}

fn next_turn(worker: &Worker, computed: Duration, before: Option<Turn>) -> NextTurn {
    let turns = worker.turns.clone();
    Box::pin(async move { turns.next(computed, before).await })
}

/// Why there is no response.
pub(crate) enum End {
    Failed(Box<Failure>),
    Deadline,
}

impl From<Failure> for End {
    fn from(failure: Failure) -> End {
        End::Failed(Box::new(failure))
    }
}

#[cold]
fn nothing(what: &str) -> End {
    Failure::new(Kind::Host, format!("internal: {what} nothing")).into()
}

/// What the client gets to know of a failure.
fn to_error(failure: &Failure) -> FlowError {
    if let Some(payload) = &failure.payload {
        if let Some(error) = payload.downcast_ref::<CallError>() {
            return FlowError::call(error);
        }
        if let Some(abort) = payload.downcast_ref::<Abort>() {
            return FlowError::abort(abort.status, abort.message.clone());
        }
        if let Some(mistake) = payload.downcast_ref::<ClientMistake>() {
            return FlowError::client(mistake.0.clone());
        }
    }
    let lacks = matches!(failure.kind, Kind::Key | Kind::Index | Kind::Type);
    if lacks && [QUERY, HEADERS, BODY].iter().any(|part| failure.message.starts_with(part)) {
        return FlowError::client(failure.message.clone());
    }
    FlowError::flow()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_that_waits_is_small() {
        // Each waits in a box of its own, and an allocator has sizes for 320 and 384 bytes.
        assert!(size_of::<Flow>() <= 320, "{}", size_of::<Flow>());
    }
}
