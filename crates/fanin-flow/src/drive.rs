//! Runs one flow from its request to its reply.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use fanin_config::{FlowLimits, OnDisconnect};
use fanin_lang::{
    Deep, Failure, FunctionRef, Instance, Kind, Limit, Limits, Machine, Order, Program, Run, Slot, Usage, Value, deep,
};
use fanin_upstream::CallError;
use smallvec::SmallVec;
use tokio::time::Instant;

use crate::builtins::{Abort, ResponseObject};
use crate::caller::Caller;
use crate::host::FlowHost;
use crate::in_a_row::{self, InARow};
use crate::incoming::{BODY, ClientMistake, HEADERS, Incoming, QUERY, Req, ReqObject};
use crate::log::FailureLog;
use crate::merge::open::OpenBatches;
use crate::reply::{FlowError, Reply};
use crate::respond;
use crate::threads::{self, Pool};
use crate::turns::Turns;

/// Steps after which a flow looks at the time: 10 microseconds of arithmetic, some more where a step does more.
const LOOK: u64 = 3_000;
/// For so long a flow has its worker. Long against what it costs to go on with another one, short against what others notice.
const TURN: Duration = Duration::from_micros(200);

/// What a flow that has made fewer bytes leaves behind is dropped at once.
const SMALL: u64 = 256 << 10;

/// What all flows of a worker share.
pub(crate) struct Worker {
    pub(crate) machine: RefCell<Machine>,
    pub(crate) turns: Turns,
    pub(crate) caller: Rc<dyn Caller>,
    pub(crate) open: Rc<OpenBatches>,
    /// Told which route the worker runs, and `None` when it stops.
    pub(crate) activity: Box<dyn Fn(Option<usize>)>,
    pub(crate) log: Arc<FailureLog>,
    pub(crate) traced: bool,
}

/// A route's flow, ready to run.
pub(crate) struct RouteFlow {
    pub(crate) index: usize,
    pub(crate) name: String,
    /// File and function.
    pub(crate) flow: String,
    pub(crate) function: FunctionRef,
    pub(crate) limits: Arc<FlowLimits>,
    pub(crate) on_disconnect: OnDisconnect,
    pub(crate) errors: bool,
    /// Lines that wait many times in a row, of all routes.
    pub(crate) in_a_row: Arc<InARow>,
}

/// A running flow. When its client leaves and it is dropped, it goes on by itself if the route says so: a flow that has
/// begun to change something is not left half-way. Must be dropped where `spawn_local` works.
pub struct FlowFuture {
    run: Option<Pin<Box<dyn Future<Output = Reply>>>>,
    wrote: Rc<Cell<bool>>,
    on_disconnect: OnDisconnect,
}

impl FlowFuture {
    pub(crate) fn new(
        worker: Rc<Worker>,
        program: Program,
        route: Arc<RouteFlow>,
        mut incoming: Incoming,
    ) -> FlowFuture {
        let wrote = Rc::new(Cell::new(false));
        let on_disconnect = route.on_disconnect;
        let hold = incoming.hold.take();
        // Here and not in the future, which would carry the request's parts along and be copied with them.
        let req = Rc::new(Req::new(incoming, route.limits.max_json_depth));
        let run = Box::pin(run(worker, program, route, req, hold, wrote.clone()));
        FlowFuture { run: Some(run), wrote, on_disconnect }
    }

    /// The same on a thread of `pool`.
    pub(crate) fn on_thread(
        worker: Rc<Worker>,
        pool: Arc<Pool>,
        program: Program,
        route: Arc<RouteFlow>,
        incoming: Incoming,
    ) -> FlowFuture {
        let wrote = Rc::new(Cell::new(false));
        let on_disconnect = route.on_disconnect;
        let run = Box::pin(threads::run(worker, pool, program, route, incoming, wrote.clone()));
        FlowFuture { run: Some(run), wrote, on_disconnect }
    }

    /// Ends the flow, whatever its route says.
    pub(crate) fn cancel(&mut self) {
        self.run = None;
    }
}

impl Future for FlowFuture {
    type Output = Reply;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Reply> {
        match &mut self.run {
            Some(run) => {
                let reply = std::task::ready!(run.as_mut().poll(context));
                self.run = None;
                Poll::Ready(reply)
            }
            None => Poll::Pending,
        }
    }
}

impl Drop for FlowFuture {
    fn drop(&mut self) {
        let goes_on = match self.on_disconnect {
            OnDisconnect::Cancel => false,
            OnDisconnect::Finish => true,
            OnDisconnect::Effect => self.wrote.get(),
        };
        if let Some(run) = self.run.take()
            && goes_on
            && !std::thread::panicking()
            && tokio::runtime::Handle::try_current().is_ok()
        {
            tokio::task::spawn_local(run);
        }
    }
}

async fn run(
    worker: Rc<Worker>,
    program: Program,
    route: Arc<RouteFlow>,
    req: Rc<Req>,
    _hold: Option<Box<dyn Any>>,
    wrote: Rc<Cell<bool>>,
) -> Reply {
    let (start, deadline) = req.times();
    let limits = &route.limits;
    let mut host = FlowHost::new(
        program.clone(),
        req.clone(),
        (worker.caller.clone(), worker.open.clone()),
        limits.clone(),
        (start, deadline),
        wrote,
        worker.traced,
    );
    let bounds = Limits {
        steps: limits.max_steps,
        memory: limits.max_memory as u64,
        depth: limits.max_depth as u32,
        fibers: limits.max_fibers as u32,
        value: limits.max_value as u64,
    };
    let mut usage = Usage::default();
    let mut limit = None;
    let outcome = match Instance::new(&program, route.function, vec![Value::object(ReqObject(req))], bounds) {
        Ok(mut instance) => {
            let mut litter = Litter(false);
            let evaluated = evaluate(&worker, &route, &mut instance, &mut host, &mut litter, deadline).await;
            let (turns, site) = instance.waits_in_a_row();
            if turns >= in_a_row::MANY {
                route.in_a_row.note(&route.name, &program.position(site), turns);
            }
            let end = match evaluated {
                Ok(value) => finish(&mut host, value, &route).await,
                Err(end) => Err(end),
            };
            usage = instance.usage();
            if litter.0 || usage.memory > SMALL {
                drop_in_turns(&worker, instance, litter).await;
            }
            end
        }
        Err(failure) => Err(End::Failed(failure)),
    };
    let result = match outcome {
        Ok(success) => Ok(success),
        Err(End::Deadline) => Err(FlowError::deadline()),
        Err(End::Failed(failure)) => {
            let failure = host.named(*failure, None);
            limit = Limit::of(&failure);
            let error = to_error(&failure);
            worker.log.failure(&route.name, &program, &failure, &error);
            Err(error)
        }
    };
    let partial = (result.is_ok() && host.any_missing()).then(|| respond::missing_names(&host));
    let (calls, upstream, trace) = host.finish();
    Reply { result, calls, upstream, partial, usage, limit, trace }
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

async fn evaluate(
    worker: &Worker,
    route: &RouteFlow,
    instance: &mut Instance,
    host: &mut FlowHost,
    litter: &mut Litter,
    deadline: Instant,
) -> Result<Value, End> {
    let (mut computed, mut place) = (Duration::ZERO, None);
    let mut turn_began: Option<Instant> = None;
    loop {
        (worker.activity)(Some(route.index));
        let (turn, rest) = fanin_lang::drop_in_parts(|| instance.run(&mut worker.machine.borrow_mut(), host, LOOK));
        (worker.activity)(None);
        if rest {
            litter.0 = fanin_lang::drop_rest();
        }
        match turn {
            Run::Done(value) => return Ok(value),
            Run::Failed(failure) => return Err(End::Failed(failure)),
            Run::Yielded => {
                let now = Instant::now();
                if now >= deadline {
                    return Err(End::Deadline);
                }
                let turn = now.saturating_duration_since(*turn_began.get_or_insert(now));
                if turn < TURN {
                    continue;
                }
                computed += turn;
                drop(place.take());
                place = worker.turns.next(computed).await;
                turn_began = Some(Instant::now());
            }
            Run::Waiting => {
                place = None;
                turn_began = None;
                host.pump();
                if instance.is_ready() {
                    continue;
                }
                if !host.completions(true).await {
                    return Err(Failure::new(Kind::Host, "internal: the flow waits for nothing").into());
                }
            }
        }
    }
}

/// Frees what a flow has made, which may take as long as making it did. Not left to somebody else: who makes much has to free it
/// before its next request can make more.
async fn drop_in_turns(worker: &Worker, instance: Instance, mut litter: Litter) {
    litter.0 |= fanin_lang::drop_in_parts(|| drop(instance)).1;
    while litter.0 {
        let turn = worker.turns.next(Duration::MAX).await;
        litter.0 = fanin_lang::drop_rest();
        drop(turn);
    }
}

/// Whether the flow has left something to be dropped in parts. Drops it at once when the flow is cancelled.
struct Litter(bool);

impl Drop for Litter {
    fn drop(&mut self) {
        while self.0 {
            self.0 = fanin_lang::drop_rest();
        }
    }
}

/// Awaits together what the returned value still lacks, in the order of the program so that the same failure is reported
/// whatever came first, then writes it.
async fn finish(host: &mut FlowHost, value: Value, route: &RouteFlow) -> Result<crate::reply::Success, End> {
    host.pump();
    let mut calls: SmallVec<[(Order, Slot); 8]> = SmallVec::new();
    respond::slots(&value, &mut |slot| {
        if let Some(order) = host.order(slot) {
            calls.push((order, slot.clone()));
        }
    });
    calls.sort_by(|(a, _), (b, _)| a.cmp(b));
    for (_, slot) in &calls {
        let outcome = loop {
            if let Some(outcome) = slot.outcome() {
                break outcome;
            }
            settle_some(host).await?;
        };
        if let Err(failure) = outcome {
            return Err(host.named((*failure).clone(), Some(slot)).into());
        }
    }
    // What is left: values inside defaults and the like.
    loop {
        match deep(&value) {
            Deep::Ready | Deep::Absent(_) => break,
            Deep::Pending(_) => settle_some(host).await?,
            Deep::Failed(failure) => return Err(End::Failed(Box::new((*failure).clone()))),
            Deep::TooDeep => return Err(Failure::new(Kind::Limit, "the response is nested too deep").into()),
        }
    }
    respond::success(host, &value, route).map_err(End::from)
}

async fn settle_some(host: &mut FlowHost) -> Result<(), End> {
    if !host.completions(false).await {
        return Err(Failure::new(Kind::Host, "internal: the response waits for nothing").into());
    }
    host.pump();
    Ok(())
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

/// The parts of a `response(...)`, or the value itself as its body.
pub(crate) fn response(value: &Value) -> Option<ResponseObject> {
    match value {
        Value::Object(object) => object.downcast::<ResponseObject>().cloned(),
        _ => None,
    }
}
