//! A thread of a pool.

use std::cell::{OnceCell, RefCell};
use std::future::{Future, poll_fn};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::Builder;

use fanin_lang::Machine;

use super::block_on::{Wakeup, block_on};
use super::channel::{Job, Message, WorkerCaller};
use super::queue::Shared;
use crate::call_record::Detail;
use crate::executor::Flow;
use crate::fair_scheduler::FairScheduler;
use crate::flow_error::FlowError;
use crate::reply::{Pieces, ReplyBody};
use crate::worker::Worker;

/// The stack size of a worker's thread, so that the same flows can run. Only touched pages take memory.
const STACK: usize = 2 << 20;

/// Starts a thread.
pub(super) fn spawn(shared: &Arc<Shared>) -> io::Result<()> {
    let shared = shared.clone();
    Builder::new().name("fanin-threads".to_owned()).stack_size(STACK).spawn(move || serve(&shared)).map(drop)
}

fn serve(shared: &Shared) {
    let mut state = ThreadState::new(shared);
    let mut job = shared.first();
    while let Some(taken) = job {
        if !state.run(shared, &taken) {
            state = ThreadState::new(shared);
        }
        drop(taken);
        job = shared.next();
    }
}

/// The state of one thread: its machine, and the channel to the worker of the current request.
struct ThreadState {
    worker: Rc<Worker>,
    caller: Rc<WorkerCaller>,
}

impl ThreadState {
    fn new(shared: &Shared) -> ThreadState {
        let caller = Rc::new(WorkerCaller::default());
        let worker = Worker {
            machine: RefCell::new(Machine::new()),
            scheduler: FairScheduler::default(),
            caller: caller.clone(),
            open: Rc::default(),
            // No watchdog: a flow that computes here blocks no other request.
            activity: Box::new(|_| {}),
            log: shared.log.clone(),
            detail: Detail::Nothing,
            hub: OnceCell::new(),
            own: None,
        };
        ThreadState { worker: Rc::new(worker), caller }
    }

    /// Runs a request to its reply. `false` if it panicked, which may have left the machine in an invalid state.
    fn run(&self, shared: &Shared, job: &Job) -> bool {
        let Some(parts) = job.take() else { return true };
        if job.ended().load(Ordering::Acquire) {
            return true;
        }
        let _runtime = parts.runtime.enter();
        let messages = parts.messages;
        let wakeup = Wakeup::new(shared.quiescence.clone());
        job.runs_on(Some(&wakeup));
        shared.waits.record(job.queued.elapsed());
        // If the worker has dropped the request, `ended` stops the flow.
        let _ = messages.send(Message::Taken);
        self.caller.connect(Some(messages.clone()));
        let incoming = parts.request.into();
        let run = || {
            // Dropped with this closure. The request's worker decides whether a flow continues after a disconnect.
            let mut flow = Box::new(Flow::new(self.worker.clone(), job.route.clone(), incoming));
            let mut scoped = poll_fn(|context| fanin_upstream::poll_scope(|| Pin::new(&mut *flow).poll(context)));
            block_on(&wakeup, Pin::new(&mut scoped), job.ended())
        };
        let outcome = catch_unwind(AssertUnwindSafe(run));
        job.runs_on(None);
        self.caller.connect(None);
        let whole = outcome.is_ok();
        if let Some(outcome) = outcome.transpose() {
            let outcome = outcome.map(|reply| reply.map_body(whole_body));
            let _ = messages.send(Message::Done(Box::new(outcome)));
        }
        whole
    }
}

/// A stream stays on the thread that makes it, which has other requests to serve.
fn whole_body(body: ReplyBody) -> Result<Pieces, FlowError> {
    match body {
        ReplyBody::Pieces(pieces) => Ok(pieces),
        ReplyBody::Stream(_) | ReplyBody::Messages(_) | ReplyBody::Events(_) => {
            tracing::error!(
                "a flow on a thread of a pool returned a stream: only `executor = \"coroutines\"` can send it"
            );
            Err(FlowError::flow())
        }
    }
}
