//! What all connections and requests of a worker share.

use std::cell::{Cell, RefCell};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use slab::Slab;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::{ReadyQueue, Site};
use crate::access_log::WorkerLog;
use crate::activity::Pulse;
use crate::connection::{Conn, Departures};
use crate::memory::Memory;
use crate::metrics::WorkerStats;
use crate::serve::HttpDate;
use crate::sweep::Sweep;
use crate::{Application, RequestId};

/// How late a request's own timeouts may be noticed.
const REQUEST_TICK: Duration = Duration::from_millis(10);

/// One worker.
pub(crate) struct WorkerState<A: Application> {
    site: RefCell<Rc<Site<A>>>,
    pub(crate) pulse: Arc<Pulse>,
    pub(crate) stats: Arc<WorkerStats>,
    pub(crate) log: RefCell<WorkerLog>,
    /// Timeouts of requests.
    pub(crate) sweep: Rc<Sweep>,
    pub(crate) connections: RefCell<Slab<Rc<Conn>>>,
    /// Wakes the housekeeping when the first connection comes.
    pub(crate) first_connection: Notify,
    /// Requests that wait for this worker.
    pub(crate) ready: Rc<ReadyQueue>,
    /// Of the process.
    pub(crate) memory: Arc<Memory>,
    /// Connections of the process.
    pub(crate) open: Arc<AtomicUsize>,
    /// The time as of the last tick or request, for what need not be exact.
    pub(crate) now: Rc<Cell<Instant>>,
    pub(crate) draining: Cell<bool>,
    /// Requests on this worker.
    pub(crate) active: Cell<usize>,
    /// The probe of queueing sleeps until a request comes.
    pub(crate) probe_sleeps: Cell<bool>,
    pub(crate) wake_probe: Notify,
    /// What connections have to write.
    pub(crate) departures: Rc<Departures>,
    /// Requests have been refused lately, until then.
    pub(crate) sheds_until: Cell<Instant>,
    pub(crate) date: RefCell<HttpDate>,
    next_id: Cell<u64>,
}

impl<A: Application> WorkerState<A> {
    pub(crate) fn new(
        site: Site<A>,
        pulse: Arc<Pulse>,
        stats: Arc<WorkerStats>,
        log: WorkerLog,
        open: Arc<AtomicUsize>,
        memory: Arc<Memory>,
    ) -> Rc<WorkerState<A>> {
        let now = Instant::now();
        let ready = ReadyQueue::new(site.server().queueing, site.server().max_waiting);
        Rc::new(WorkerState {
            site: RefCell::new(Rc::new(site)),
            pulse,
            stats,
            log: RefCell::new(log),
            sweep: Sweep::new(REQUEST_TICK),
            connections: RefCell::default(),
            first_connection: Notify::new(),
            ready,
            memory,
            open,
            now: Rc::new(Cell::new(now)),
            sheds_until: Cell::new(now),
            date: HttpDate::new(),
            departures: Rc::default(),
            draining: Cell::new(false),
            active: Cell::new(0),
            probe_sleeps: Cell::new(false),
            wake_probe: Notify::new(),
            // Random, so that ids of several processes do not collide; counted up from there.
            next_id: Cell::new(RandomState::new().build_hasher().finish()),
        })
    }

    #[inline]
    pub(crate) fn site(&self) -> Rc<Site<A>> {
        self.site.borrow().clone()
    }

    pub(crate) fn set_site(&self, site: Site<A>) {
        self.ready.set(site.server().queueing, site.server().max_waiting);
        let old = self.site.replace(Rc::new(site));
        // Its end may run the application's code, which must not find the cell borrowed.
        drop(old);
    }

    #[inline]
    pub(crate) fn next_id(&self) -> RequestId {
        let id = self.next_id.get();
        self.next_id.set(id.wrapping_add(1));
        RequestId::new(id)
    }

    /// A request begins.
    #[inline]
    pub(crate) fn request_begins(&self, now: Instant) {
        self.pulse.turn();
        self.now.set(now);
        self.active.set(self.active.get() + 1);
        self.ready.request_comes(now, self.pulse.has_slept());
        if self.probe_sleeps.get() {
            self.probe_sleeps.set(false);
            self.wake_probe.notify_one();
        }
    }

    /// A request is answered or given up.
    #[inline]
    pub(crate) fn request_ends(&self, now: Instant) {
        self.now.set(now);
        self.active.set(self.active.get() - 1);
    }
}
