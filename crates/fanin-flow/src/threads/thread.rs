//! What a thread of a pool does.

use std::cell::RefCell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::Builder;

use fanin_lang::Machine;

use super::block::{Bell, block_on};
use super::link::{Job, LinkCaller, Message};
use super::pool::Shared;
use crate::drive::{FlowFuture, Worker};
use crate::turns::Turns;

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
            let flow = FlowFuture::new(self.worker.clone(), job.route.clone(), incoming);
            block_on(&bell, Pin::new(&mut Ends(flow).0), job.ended())
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

/// A flow that ends with its owner, by a panic too: the request's worker has decided whether it goes on without its client, and
/// here there is nowhere to go on.
struct Ends(FlowFuture);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.cancel();
    }
}
