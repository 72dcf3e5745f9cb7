//! What all connections and requests of a worker share.

use std::cell::{Cell, RefCell};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use fanin_tls::Handshakes;
use slab::Slab;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::run_queue::RunQueue;
use super::worker_generation::WorkerGeneration;
use crate::access_log::WorkerLog;
use crate::client::Clients;
use crate::coarse_timeout::CoarseTimeouts;
use crate::connection::{ConnectionState, ResponseBatch};
use crate::heartbeat::Heartbeat;
use crate::http_date::HttpDate;
use crate::memory_budget::Memory;
use crate::metrics::{Metrics, WorkerStats};
use crate::{Application, RequestId};

/// How late a request's own timeouts may be noticed.
const REQUEST_TICK: Duration = Duration::from_millis(10);

/// One worker.
pub(crate) struct WorkerState<A: Application> {
    generation: RefCell<Rc<WorkerGeneration<A>>>,
    pub(crate) heartbeat: Arc<Heartbeat>,
    pub(crate) stats: Arc<WorkerStats>,
    pub(crate) log: RefCell<WorkerLog>,
    /// Timeouts of requests.
    pub(crate) timeouts: Rc<CoarseTimeouts>,
    pub(crate) connections: RefCell<Slab<Rc<ConnectionState>>>,
    /// Wakes the housekeeping when the first connection is accepted.
    pub(crate) first_connection: Notify,
    /// Requests that wait for this worker.
    pub(crate) run_queue: Rc<RunQueue>,
    /// The memory budget, of the process.
    pub(crate) memory: Arc<Memory>,
    /// What each client has open, in the process.
    pub(crate) clients: Arc<Clients>,
    /// TLS handshakes, of the process.
    pub(crate) handshakes: Arc<Handshakes>,
    /// How many connections are open, in the process.
    pub(crate) open: Arc<AtomicUsize>,
    /// The time of the last tick or request, where an approximation is enough.
    pub(crate) now: Rc<Cell<Instant>>,
    pub(crate) draining: Cell<bool>,
    /// Clients have not read more than this worker's share of `max_unsent_total`.
    pub(crate) crowded: Cell<bool>,
    /// How many workers there are.
    pub(crate) workers: usize,
    /// Requests on this worker.
    pub(crate) active: Cell<usize>,
    /// The queueing probe sleeps until the next request.
    pub(crate) probe_sleeps: Cell<bool>,
    pub(crate) wake_probe: Notify,
    /// Short responses that are written together.
    pub(crate) response_batch: Rc<ResponseBatch>,
    /// Fast rejection is on until then, because requests were refused lately.
    pub(crate) fast_rejection_until: Cell<Instant>,
    pub(crate) date: RefCell<HttpDate>,
    next_request_id: Cell<u64>,
}

impl<A: Application> WorkerState<A> {
    pub(crate) fn new(
        generation: WorkerGeneration<A>,
        heartbeat: Arc<Heartbeat>,
        stats: Arc<WorkerStats>,
        log: WorkerLog,
        open: Arc<AtomicUsize>,
        metrics: &Metrics,
        workers: usize,
    ) -> Rc<WorkerState<A>> {
        let now = Instant::now();
        let run_queue = RunQueue::new(generation.server().queueing, generation.server().max_waiting);
        Rc::new(WorkerState {
            generation: RefCell::new(Rc::new(generation)),
            heartbeat,
            stats,
            log: RefCell::new(log),
            timeouts: CoarseTimeouts::new(REQUEST_TICK),
            connections: RefCell::default(),
            first_connection: Notify::new(),
            run_queue,
            memory: metrics.memory.clone(),
            clients: metrics.clients.clone(),
            handshakes: metrics.handshakes.clone(),
            open,
            now: Rc::new(Cell::new(now)),
            fast_rejection_until: Cell::new(now),
            date: HttpDate::new(),
            response_batch: Rc::default(),
            draining: Cell::new(false),
            crowded: Cell::new(false),
            workers,
            active: Cell::new(0),
            probe_sleeps: Cell::new(false),
            wake_probe: Notify::new(),
            // Random, so that ids of several processes do not collide; counted up from there.
            next_request_id: Cell::new(RandomState::new().build_hasher().finish()),
        })
    }

    #[inline]
    pub(crate) fn generation(&self) -> Rc<WorkerGeneration<A>> {
        self.generation.borrow().clone()
    }

    pub(crate) fn set_generation(&self, generation: WorkerGeneration<A>) {
        self.run_queue.set(generation.server().queueing, generation.server().max_waiting);
        let old = self.generation.replace(Rc::new(generation));
        // Dropping it may run the application's code, which must not find the cell borrowed.
        drop(old);
    }

    #[inline]
    pub(crate) fn next_request_id(&self) -> RequestId {
        let id = self.next_request_id.get();
        self.next_request_id.set(id.wrapping_add(1));
        RequestId::new(id)
    }

    /// A request begins.
    #[inline]
    pub(crate) fn on_request_start(&self, now: Instant) {
        self.heartbeat.beat();
        self.now.set(now);
        self.active.set(self.active.get() + 1);
        self.run_queue.on_request(now, self.heartbeat.take_slept());
        if self.probe_sleeps.get() {
            self.probe_sleeps.set(false);
            self.wake_probe.notify_one();
        }
    }

    /// A request is answered or given up.
    #[inline]
    pub(crate) fn on_request_end(&self, now: Instant) {
        self.now.set(now);
        self.active.set(self.active.get() - 1);
    }
}
