//! One worker's side of the upstreams: connections, counters, resolver. Nothing here is shared with other threads.

use std::cell::{Cell, OnceCell, RefCell};
use std::fmt;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tokio::time::Instant;

use crate::deadline_timer::DeadlineTimer;
use crate::endpoint::Endpoint;
use crate::error::Failure;
use crate::metrics::Shard;
use crate::policy::batched_counter::BatchedCounter;
use crate::policy::outlier::Availability;
use crate::policy::{load_balancing, random::Random};
use crate::resolve::WorkerResolver;
use crate::transport::Connections;
use crate::transport::attempt::Phase;
use crate::transport::model::ModelBackend;
use crate::transport::stub::{Scripted, Stub};
use crate::upstream::Upstream;

/// Answers in the moving average of latency. With fewer, the average is not used.
const SAMPLES: u32 = 64;
/// A shorter silence never counts as overdue.
const SHORTEST_LONG: Duration = Duration::from_millis(5);

/// One worker's client for all upstreams. It lives on a thread whose runtime allows `spawn_local` (a `LocalSet` or a
/// `LocalRuntime`), which drives the connections. Dropping it closes the unused ones.
#[derive(Default)]
pub struct WorkerClient {
    upstreams: RefCell<FxHashMap<u64, Rc<WorkerUpstream>>>,
    /// By endpoint, so that a reloaded upstream finds the connections of its unchanged endpoints.
    connections: RefCell<FxHashMap<u64, Weak<WorkerEndpoint>>>,
    /// By the upstream's name: counters go on when the configuration changes.
    shards: RefCell<FxHashMap<Arc<str>, Arc<Shard>>>,
    resolver: Rc<WorkerResolver>,
    /// The deadlines of all calls.
    deadline_timer: Rc<DeadlineTimer>,
    /// Answers calls of models.
    compute: RefCell<Option<Arc<dyn ModelBackend>>>,
    /// Answers all attempts in place of the network.
    stub: Option<Rc<dyn Stub>>,
    /// What random choices follow from, if they are to be the same each time.
    seed: Option<u64>,
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

    /// A client whose attempts a script answers, and whose random choices follow from a seed. Its upstreams are built
    /// [without a network](crate::without_network).
    pub fn scripted(stub: Rc<dyn Stub>, seed: u64) -> Rc<WorkerClient> {
        Rc::new(WorkerClient { stub: Some(stub), seed: Some(seed), ..WorkerClient::default() })
    }

    /// Sets what answers calls of models. An upstream uses the backend that is set at its first call from this worker.
    pub fn set_model_backend(&self, compute: Arc<dyn ModelBackend>) {
        self.compute.replace(Some(compute));
    }

    pub(crate) fn local(self: &Rc<Self>, upstream: &Arc<Upstream>) -> Rc<WorkerUpstream> {
        if let Some(local) = self.upstreams.borrow().get(&upstream.id) {
            return local.clone();
        }
        self.join(upstream)
    }

    #[cold]
    fn join(self: &Rc<Self>, upstream: &Arc<Upstream>) -> Rc<WorkerUpstream> {
        let shard = self
            .shards
            .borrow_mut()
            .entry(upstream.name().clone())
            .or_insert_with(|| upstream.metrics.new_shard())
            .clone();
        let local = Rc::new(WorkerUpstream {
            upstream: upstream.clone(),
            worker: Rc::downgrade(self),
            resolver: self.resolver.clone(),
            deadline_timer: self.deadline_timer.clone(),
            metrics: shard,
            worker_endpoints: RefCell::new((0, Rc::default())),
            random: OnceCell::new(),
            seed: self.seed,
            average_latency: Cell::new((0.0, 0)),
            successes: BatchedCounter::default(),
            calls: BatchedCounter::default(),
        });
        // Before the predecessor is dropped, so that connections of common endpoints stay.
        local.worker_endpoints();
        let mut upstreams = self.upstreams.borrow_mut();
        // A new upstream comes with a reload. This is the time to drop retired ones that no call uses.
        upstreams.retain(|_, local| !local.upstream.is_retired() || Rc::strong_count(local) > 1);
        upstreams.insert(upstream.id, local.clone());
        drop(upstreams);
        self.connections.borrow_mut().retain(|_, worker_endpoint| worker_endpoint.strong_count() > 0);
        local
    }

    fn worker_endpoint(&self, endpoint: &Arc<Endpoint>, upstream: &Upstream) -> Rc<WorkerEndpoint> {
        let mut connections = self.connections.borrow_mut();
        if let Some(worker_endpoint) = connections.get(&endpoint.id).and_then(Weak::upgrade) {
            return worker_endpoint;
        }
        let worker_endpoint = Rc::new(WorkerEndpoint {
            endpoint: endpoint.clone(),
            connections: match &self.stub {
                None => Connections::new(endpoint, self.compute.borrow().as_ref()),
                Some(stub) => Connections::Scripted(Scripted { stub: stub.clone(), upstream: upstream.name().clone() }),
            },
        });
        connections.insert(endpoint.id, Rc::downgrade(&worker_endpoint));
        worker_endpoint
    }
}

/// An endpoint with this worker's connections to it.
#[derive(Debug)]
pub(crate) struct WorkerEndpoint {
    pub endpoint: Arc<Endpoint>,
    pub connections: Connections,
}

/// One upstream, as a worker sees it.
pub(crate) struct WorkerUpstream {
    pub upstream: Arc<Upstream>,
    pub metrics: Arc<Shard>,
    worker: Weak<WorkerClient>,
    resolver: Rc<WorkerResolver>,
    pub deadline_timer: Rc<DeadlineTimer>,
    /// The endpoints, and the version of the list that they were taken from.
    worker_endpoints: RefCell<(u64, Rc<[Rc<WorkerEndpoint>]>)>,
    random: OnceCell<Random>,
    seed: Option<u64>,
    /// Moving average of successful answers' latency in microseconds, and the number of answers in it.
    average_latency: Cell<(f64, u32)>,
    /// Not reported to the breaker yet.
    successes: BatchedCounter,
    /// Not reported to the retry budget yet.
    calls: BatchedCounter,
}

impl WorkerUpstream {
    pub fn random(&self) -> &Random {
        self.random.get_or_init(|| {
            // Each worker needs another seed; its own address is unique.
            let unique = || std::ptr::from_ref(self).addr() as u64 ^ self.upstream.id << 48;
            Random::new(self.seed.unwrap_or_else(unique))
        })
    }

    /// Reports a call to the retry budget.
    pub fn call_started(&self) {
        if let Some(policy) = &self.upstream.policies.retry
            && let Some(calls) = self.calls.add()
        {
            self.upstream.policy_state.retry_budget.earn(calls, policy.budget);
        }
    }

    pub fn attempt_succeeded(&self, latency: Duration) {
        let (average, count) = self.average_latency.get();
        let count = count.saturating_add(1);
        let weight = 1.0 / f64::from(count.min(SAMPLES));
        self.average_latency.set((average + (latency.as_micros() as f64 - average) * weight, count));
        if let Some(policy) = &self.upstream.policies.breaker
            && let Some(successes) = self.successes.add()
        {
            self.upstream.policy_state.breaker.succeeded(successes, policy);
        }
    }

    /// Whether an upstream that has been silent for so long is overdue: for half of its timeout, or for several times
    /// its average latency.
    pub fn is_overdue(&self, silence: Duration) -> bool {
        let (average, count) = self.average_latency.get();
        let unusual = count >= SAMPLES && silence >= SHORTEST_LONG && silence.as_micros() as f64 >= 4.0 * average;
        unusual || silence * 2 >= self.upstream.config().timeout
    }

    pub fn attempt_failed(&self) {
        if let Some(policy) = &self.upstream.policies.retry {
            self.upstream.policy_state.retry_budget.earn(self.calls.take(), policy.budget);
        }
        if let Some(policy) = &self.upstream.policies.breaker {
            // Successes first: the breaker's share of failures includes them.
            self.upstream.policy_state.breaker.succeeded(self.successes.take(), policy);
            self.upstream.policy_state.breaker.failed(policy);
        }
    }

    /// A streamed answer broke off: it counts as a failed attempt.
    #[cold]
    pub fn stream_failed(&self, endpoint: &Endpoint) {
        if self.endpoints() > 1
            && self.upstream.policies.ejection
            && endpoint.health.failed(Instant::now(), || self.may_eject())
        {
            tracing::warn!(upstream = %self.upstream.name(), endpoint = %endpoint.address, "endpoint ejected: it keeps failing");
        }
        self.attempt_failed();
    }

    fn worker_endpoints(&self) -> Rc<[Rc<WorkerEndpoint>]> {
        let endpoints = &self.upstream.endpoints;
        endpoints.refresh(&self.resolver);
        let version = endpoints.version();
        {
            let known = self.worker_endpoints.borrow();
            if known.0 == version {
                return known.1.clone();
            }
        }
        let (version, list) = endpoints.list();
        let worker_endpoints: Rc<[Rc<WorkerEndpoint>]> = match self.worker.upgrade() {
            Some(worker) => list.iter().map(|endpoint| worker.worker_endpoint(endpoint, &self.upstream)).collect(),
            // The worker ends. Its remaining calls get no new endpoints.
            None => return self.worker_endpoints.borrow().1.clone(),
        };
        // Dropping the old list may drop a pool, and that must find nothing borrowed.
        let old = self.worker_endpoints.replace((version, worker_endpoints.clone()));
        drop(old);
        worker_endpoints
    }

    /// The endpoint of the next attempt, if possible another than `avoid`, which has just failed.
    pub async fn choose_endpoint(
        &self,
        avoid: Option<u64>,
        phase: &Cell<Phase>,
    ) -> Result<Rc<WorkerEndpoint>, Failure> {
        let mut worker_endpoints = self.worker_endpoints();
        if worker_endpoints.is_empty() {
            phase.set(Phase::Resolving);
            Box::pin(self.upstream.endpoints.wait_for_endpoints(&self.resolver)).await?;
            worker_endpoints = self.worker_endpoints();
        }
        match &*worker_endpoints {
            [] => Err(Failure::new(crate::error::ErrorKind::Connect, "no endpoints")),
            [only] => Ok(only.clone()),
            many => Ok(pick(many, avoid, self.random())),
        }
    }

    /// The number of endpoints that this worker knows.
    pub fn endpoints(&self) -> usize {
        self.worker_endpoints.borrow().1.len()
    }

    /// Whether one more endpoint may be ejected: at most half of them.
    pub fn may_eject(&self) -> bool {
        let worker_endpoints = self.worker_endpoints.borrow();
        let out =
            worker_endpoints.1.iter().filter(|worker_endpoint| worker_endpoint.endpoint.health.is_ejected()).count();
        (out + 1) * 2 <= worker_endpoints.1.len()
    }
}

fn pick(worker_endpoints: &[Rc<WorkerEndpoint>], avoid: Option<u64>, random: &Random) -> Rc<WorkerEndpoint> {
    let now = Instant::now();
    let mut free: SmallVec<[&Rc<WorkerEndpoint>; 16]> = SmallVec::new();
    for worker_endpoint in worker_endpoints {
        if Some(worker_endpoint.endpoint.id) == avoid {
            continue;
        }
        match worker_endpoint.endpoint.health.availability(now) {
            Availability::Available => free.push(worker_endpoint),
            Availability::Probe => return worker_endpoint.clone(),
            Availability::Ejected => {}
        }
    }
    if free.is_empty() {
        // All are ejected, or the only available one is to be avoided.
        let in_now = worker_endpoints.iter().find(|worker_endpoint| !worker_endpoint.endpoint.health.is_ejected());
        return in_now.unwrap_or(&worker_endpoints[random.below(worker_endpoints.len())]).clone();
    }
    free[load_balancing::power_of_two_choices(free.len(), random, |index| free[index].endpoint.load.cost(now))].clone()
}
