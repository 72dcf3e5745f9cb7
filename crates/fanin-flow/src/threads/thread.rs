//! What a thread of a pool does.

use std::cell::RefCell;
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
use crate::executor::Flow;
use crate::fair_scheduler::FairScheduler;
use crate::worker::Worker;

/// As much as a worker's thread has, so that what runs there runs here. Virtual memory: only what is touched is real.
const STACK: usize = 2 << 20;

/// Starts a thread.
pub(super) fn spawn(shared: &Arc<Shared>) -> io::Result<()> {
    let shared = shared.clone();
    Builder::new().name("fanin-threads".to_owned()).stack_size(STACK).spawn(move || serve(&shared)).map(drop)
}

fn serve(shared: &Shared) {
    let mut state = ThreadState::new(shared, false);
    let mut job = shared.first();
    while let Some(taken) = job {
        if state.worker.traced != taken.traced {
            state = ThreadState::new(shared, taken.traced);
        }
        if !state.run(shared, &taken) {
            state = ThreadState::new(shared, taken.traced);
        }
        drop(taken);
        job = shared.next();
    }
}

/// A thread's own part: the machine, and the way to the worker of the request that it runs.
struct ThreadState {
    worker: Rc<Worker>,
    caller: Rc<WorkerCaller>,
}

impl ThreadState {
    fn new(shared: &Shared, traced: bool) -> ThreadState {
        let caller = Rc::new(WorkerCaller::default());
        let worker = Worker {
            machine: RefCell::new(Machine::new()),
            scheduler: FairScheduler::default(),
            caller: caller.clone(),
            open: Rc::default(),
            // The watchdog looks after workers; a flow that computes here holds nobody else.
            activity: Box::new(|_| {}),
            log: shared.log.clone(),
            traced,
        };
        ThreadState { worker: Rc::new(worker), caller }
    }

    /// Runs a request to its reply. `false` if it panicked and may have left the machine in pieces.
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
        // When nobody listens any more, the flow will be told to end.
        let _ = messages.send(Message::Taken);
        self.caller.connect(Some(messages.clone()));
        let incoming = parts.request.into();
        let run = || {
            // Dropped with this closure, by a panic too: the request's worker decides whether the flow goes on without its client.
            let mut flow = Box::new(Flow::new(self.worker.clone(), job.route.clone(), incoming));
            let mut scoped = poll_fn(|context| fanin_upstream::poll_scope(|| Pin::new(&mut *flow).poll(context)));
            block_on(&wakeup, Pin::new(&mut scoped), job.ended())
        };
        let outcome = catch_unwind(AssertUnwindSafe(run));
        job.runs_on(None);
        self.caller.connect(None);
        let whole = outcome.is_ok();
        if let Some(outcome) = outcome.transpose() {
            let _ = messages.send(Message::Done(Box::new(outcome)));
        }
        whole
    }
}
