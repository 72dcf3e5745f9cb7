//! What a worker keeps: its connections, its counters, its resolver. Nothing here is shared with other threads.

use std::cell::{Cell, OnceCell, RefCell};
use std::fmt;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tokio::time::Instant;

use crate::ModelBackend;
use crate::deadlines::Deadlines;
use crate::endpoint::Endpoint;
use crate::error::Failure;
use crate::metrics::Shard;
use crate::policy::choice::{self, Chance};
use crate::policy::outlier::Standing;
use crate::policy::tally::Tally;
use crate::resolve::WorkerResolver;
use crate::transport::{Connections, Phase};
use crate::upstream::Upstream;
use crate::upstreams::Upstreams;

/// Answers over which the usual latency is averaged, and without which it is not known.
const SAMPLES: u32 = 64;
/// No shorter silence counts as unusual.
const SHORTEST_LONG: Duration = Duration::from_millis(5);

/// One worker's side of all upstreams. Lives on a thread whose runtime allows `spawn_local` (a `LocalSet` or a
/// `LocalRuntime`), which drives the connections. Dropping it closes those that are not in use.
#[derive(Default)]
pub struct WorkerClient {
    upstreams: RefCell<FxHashMap<u64, Rc<Local>>>,
    /// By endpoint, so that an upstream that a reload has changed finds the connections of its unchanged endpoints.
    connections: RefCell<FxHashMap<u64, Weak<Reach>>>,
    /// By upstream's name: the counters go on when the configuration changes.
    shards: RefCell<FxHashMap<Arc<str>, Arc<Shard>>>,
    resolver: Rc<WorkerResolver>,
    /// Of all calls.
    deadlines: Rc<Deadlines>,
    /// What computes models for upstreams that are models.
    compute: RefCell<Option<Arc<dyn ModelBackend>>>,
}

impl fmt::Debug for WorkerClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "worker client of {} upstreams", self.upstreams.borrow().len())
    }
}

impl WorkerClient {
    /// A client without connections.
    pub fn new() -> Rc<WorkerClient> {
        Rc::default()
    }

    /// Has the snapshots of these upstreams fetched from this worker, now and from time to time, unless another worker does it
    /// already. Each worker calls this when it begins to use the upstreams.
    pub fn refresh_snapshots(self: &Rc<Self>, upstreams: &Upstreams) {
        for upstream in upstreams.iter() {
            if let Some(snapshot) = upstream.snapshot() {
                snapshot.keep(upstream, self);
            }
        }
    }

    /// Says who computes the models of this process. Upstreams that are models ask whom they find here at their first call
    /// from this worker.
    pub fn set_model_backend(&self, compute: Arc<dyn ModelBackend>) {
        self.compute.replace(Some(compute));
    }

    pub(crate) fn local(self: &Rc<Self>, upstream: &Arc<Upstream>) -> Rc<Local> {
        if let Some(local) = self.upstreams.borrow().get(&upstream.id) {
            return local.clone();
        }
        self.join(upstream)
    }

    #[cold]
    fn join(self: &Rc<Self>, upstream: &Arc<Upstream>) -> Rc<Local> {
        let shard = self
            .shards
            .borrow_mut()
            .entry(upstream.name().clone())
            .or_insert_with(|| upstream.metrics.new_shard())
            .clone();
        let local = Rc::new(Local {
            upstream: upstream.clone(),
            worker: Rc::downgrade(self),
            resolver: self.resolver.clone(),
            deadlines: self.deadlines.clone(),
            metrics: shard,
            reaches: RefCell::new((0, Rc::default())),
            chance: OnceCell::new(),
            typical: Cell::new((0.0, 0)),
            successes: Tally::default(),
            calls: Tally::default(),
        });
        // Before the predecessor goes, so that connections to the endpoints they share stay.
        local.reaches();
        let mut upstreams = self.upstreams.borrow_mut();
        // A new one comes with a reload: the time to forget those that a reload has removed and no call uses.
        upstreams.retain(|_, local| !local.upstream.is_retired() || Rc::strong_count(local) > 1);
        upstreams.insert(upstream.id, local.clone());
        drop(upstreams);
        self.connections.borrow_mut().retain(|_, reach| reach.strong_count() > 0);
        local
    }

    fn reach(&self, endpoint: &Arc<Endpoint>) -> Rc<Reach> {
        let mut connections = self.connections.borrow_mut();
        if let Some(reach) = connections.get(&endpoint.id).and_then(Weak::upgrade) {
            return reach;
        }
        let reach = Rc::new(Reach {
            endpoint: endpoint.clone(),
            connections: Connections::new(endpoint, self.compute.borrow().as_ref()),
        });
        connections.insert(endpoint.id, Rc::downgrade(&reach));
        reach
    }
}

/// An endpoint and this worker's connections to it.
#[derive(Debug)]
pub(crate) struct Reach {
    pub endpoint: Arc<Endpoint>,
    pub connections: Connections,
}

/// One upstream, as a worker sees it.
pub(crate) struct Local {
    pub upstream: Arc<Upstream>,
    pub metrics: Arc<Shard>,
    worker: Weak<WorkerClient>,
    resolver: Rc<WorkerResolver>,
    pub deadlines: Rc<Deadlines>,
    /// The endpoints as of the version beside them.
    reaches: RefCell<(u64, Rc<[Rc<Reach>]>)>,
    chance: OnceCell<Chance>,
    /// Moving average of what good answers take, microseconds, and how many it is made of.
    typical: Cell<(f64, u32)>,
    /// Not yet told to the breaker.
    successes: Tally,
    /// Not yet told to the retry budget.
    calls: Tally,
}

impl Local {
    pub fn chance(&self) -> &Chance {
        self.chance.get_or_init(|| {
            // Workers must not draw alike; the address of this is theirs alone.
            Chance::new(std::ptr::from_ref(self).addr() as u64 ^ self.upstream.id << 48)
        })
    }

    /// Earns its share of a second request.
    pub fn call_begins(&self) {
        if let Some(policy) = &self.upstream.policies.retry
            && let Some(calls) = self.calls.add()
        {
            self.upstream.guards.budget.earn(calls, policy.budget);
        }
    }

    pub fn attempt_succeeded(&self, latency: Duration) {
        let (average, count) = self.typical.get();
        let count = count.saturating_add(1);
        let weight = 1.0 / f64::from(count.min(SAMPLES));
        self.typical.set((average + (latency.as_micros() as f64 - average) * weight, count));
        if let Some(policy) = &self.upstream.policies.breaker
            && let Some(successes) = self.successes.add()
        {
            self.upstream.guards.breaker.succeeded(successes, policy);
        }
    }

    /// Whether an upstream that has not answered for so long does badly: for half the time that the configuration gives it,
    /// or for several times what it usually takes.
    pub fn is_long(&self, silence: Duration) -> bool {
        let (average, count) = self.typical.get();
        let unusual = count >= SAMPLES && silence >= SHORTEST_LONG && silence.as_micros() as f64 >= 4.0 * average;
        unusual || silence * 2 >= self.upstream.config().timeout
    }

    pub fn attempt_failed(&self) {
        if let Some(policy) = &self.upstream.policies.retry {
            self.upstream.guards.budget.earn(self.calls.take(), policy.budget);
        }
        if let Some(policy) = &self.upstream.policies.breaker {
            // The successes first: a share of failures counts them.
            self.upstream.guards.breaker.succeeded(self.successes.take(), policy);
            self.upstream.guards.breaker.failed(policy);
        }
    }

    fn reaches(&self) -> Rc<[Rc<Reach>]> {
        let endpoints = &self.upstream.endpoints;
        endpoints.refresh(&self.resolver);
        let version = endpoints.version();
        {
            let known = self.reaches.borrow();
            if known.0 == version {
                return known.1.clone();
            }
        }
        let (version, list) = endpoints.list();
        let reaches: Rc<[Rc<Reach>]> = match self.worker.upgrade() {
            Some(worker) => list.iter().map(|endpoint| worker.reach(endpoint)).collect(),
            // The worker ends; a call that is left gets no new endpoints.
            None => return self.reaches.borrow().1.clone(),
        };
        // The old list may hold the last use of a pool, and dropping a pool must find nothing borrowed.
        let old = self.reaches.replace((version, reaches.clone()));
        drop(old);
        reaches
    }

    /// The endpoint for the next attempt, rather not `avoid`, which has just failed.
    pub async fn choose(&self, avoid: Option<u64>, phase: &Cell<Phase>) -> Result<Rc<Reach>, Failure> {
        let mut reaches = self.reaches();
        if reaches.is_empty() {
            phase.set(Phase::Resolving);
            Box::pin(self.upstream.endpoints.known(&self.resolver)).await?;
            reaches = self.reaches();
        }
        match &*reaches {
            [] => Err(Failure::new(crate::error::ErrorKind::Connect, "no endpoints")),
            [only] => Ok(only.clone()),
            many => Ok(pick(many, avoid, self.chance())),
        }
    }

    /// Endpoints that this worker knows.
    pub fn endpoints(&self) -> usize {
        self.reaches.borrow().1.len()
    }

    /// Whether one more of the known endpoints may be left out.
    pub fn may_eject(&self) -> bool {
        let reaches = self.reaches.borrow();
        let out = reaches.1.iter().filter(|reach| reach.endpoint.health.is_out()).count();
        (out + 1) * 2 <= reaches.1.len()
    }
}

fn pick(reaches: &[Rc<Reach>], avoid: Option<u64>, chance: &Chance) -> Rc<Reach> {
    let now = Instant::now();
    let mut free: SmallVec<[&Rc<Reach>; 16]> = SmallVec::new();
    for reach in reaches {
        if Some(reach.endpoint.id) == avoid {
            continue;
        }
        match reach.endpoint.health.standing(now) {
            Standing::In => free.push(reach),
            Standing::Probe => return reach.clone(),
            Standing::Out => {}
        }
    }
    if free.is_empty() {
        // All are out, or the only one in is to be avoided: any is as good as another.
        let in_now = reaches.iter().find(|reach| !reach.endpoint.health.is_out());
        return in_now.unwrap_or(&reaches[chance.below(reaches.len())]).clone();
    }
    free[choice::of_two(free.len(), chance, |index| free[index].endpoint.load.cost(now))].clone()
}
