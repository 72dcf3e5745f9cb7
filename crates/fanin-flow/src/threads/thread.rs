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

use super::block_on::{Bell, block_on};
use super::channel::{Job, LinkCaller, Message};
use super::queue::Shared;
use crate::executor::Flow;
use crate::fair_scheduler::Turns;
use crate::worker::Worker;

/// As much as a worker's thread has, so that what runs there runs here. Virtual memory: only what is touched is real.
const STACK: usize = 2 << 20;

/// Starts a thread.
pub(super) fn spawn(shared: &Arc<Shared>) -> io::Result<()> {
    let shared = shared.clone();
    Builder::new().name("fanin-threads".to_owned()).stack_size(STACK).spawn(move || serve(&shared)).map(drop)
}

fn serve(shared: &Shared) {
    let mut seat = Seat::new(shared, false);
    let mut job = shared.first();
    while let Some(taken) = job {
        if seat.worker.traced != taken.traced {
            seat = Seat::new(shared, taken.traced);
        }
        if !seat.run(shared, &taken) {
            seat = Seat::new(shared, taken.traced);
        }
        drop(taken);
        job = shared.next();
    }
}

/// A thread's own part: the machine, and the way to the worker of the request that it runs.
struct Seat {
    worker: Rc<Worker>,
    caller: Rc<LinkCaller>,
}

impl Seat {
    fn new(shared: &Shared, traced: bool) -> Seat {
        let caller = Rc::new(LinkCaller::default());
        let worker = Worker {
            machine: RefCell::new(Machine::new()),
            turns: Turns::default(),
            caller: caller.clone(),
            open: Rc::default(),
            // The watchdog looks after workers; a flow that computes here holds nobody else.
            activity: Box::new(|_| {}),
            log: shared.log.clone(),
            traced,
        };
        Seat { worker: Rc::new(worker), caller }
    }

    /// Runs a request to its reply. `false` if it panicked and may have left the machine in pieces.
    fn run(&self, shared: &Shared, job: &Job) -> bool {
        let Some(parts) = job.take() else { return true };
        if job.ended().load(Ordering::Acquire) {
            return true;
        }
        let _clock = parts.clock.enter();
        let messages = parts.messages;
        let bell = Bell::new(shared.motion.clone());
        job.runs_on(Some(&bell));
        shared.waits.record(job.queued.elapsed());
        // When nobody listens any more, the flow will be told to end.
        let _ = messages.send(Message::Taken);
        self.caller.connect(Some(messages.clone()));
        let incoming = parts.request.into();
        let run = || {
            // Dropped with this closure, by a panic too: the request's worker decides whether the flow goes on without its client.
            let mut flow = Box::new(Flow::new(self.worker.clone(), job.route.clone(), incoming));
            let mut scoped = poll_fn(|context| fanin_upstream::poll_scope(|| Pin::new(&mut *flow).poll(context)));
            block_on(&bell, Pin::new(&mut scoped), job.ended())
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
