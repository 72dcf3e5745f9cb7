//! The flight recorder: the last requests with their calls, always on, and some of them in full.
//!
//! - `dump`: files with them, after a panic, a stall or a missed objective.
//! - `ring`: the requests of one worker. `tokens`: who may ask for a full record. `pages`: the admin pages. `by_route`: what the recent
//!   requests of a route have in common.

mod by_route;
mod dump;
mod pages;
mod ring;
mod tokens;

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use fanin_config::Network;
use fanin_flow::{Detail, FlowRecord};
use fanin_server::RequestId;
use fanin_trace::RequestTrace;
use http::{HeaderMap, HeaderName, Method, StatusCode};
use prometheus_client::registry::Registry;
use smallvec::SmallVec;

pub use by_route::{RouteExplanation, explain_traces};
use dump::Dumps;
pub use dump::Kind;
pub use pages::{links, page};
use ring::Ring;
use tokens::Tokens;

use crate::logging;

/// The request header by which a client asks for a full record, and the name it gives to it.
pub const HEADER: HeaderName = HeaderName::from_static("fanin-explain");

/// How much shorter a call is in explanations, unless somebody sets it.
const STEP: Duration = Duration::from_millis(10);

/// Longest name of a record that a client gives.
const MAX_NAME: usize = 64;
/// Longest path that is kept.
const MAX_PATH: usize = 200;
/// Longest path that needs no allocation of its own.
const SHORT_PATH: usize = 48;

/// The last requests of all workers. Kept by reloads.
#[derive(Debug)]
pub struct Recorder {
    config: ArcSwap<fanin_config::Recorder>,
    trusted: ArcSwap<Vec<Network>>,
    rings: Mutex<Vec<Arc<Mutex<Ring>>>>,
    /// How many rings there are: the workers share the bounds.
    workers: AtomicUsize,
    tokens: Tokens,
    dumps: Dumps,
}

/// The recorder on one worker. Its counters of references are the worker's own, so that no cache line moves between cores.
#[derive(Debug)]
pub struct WorkerRecorder {
    recorder: Arc<Recorder>,
    /// The name of each route.
    routes: Vec<Arc<str>>,
}

/// Requests of a worker that wait to be added while somebody looks at its ring. More are forgotten.
const MAX_LATE: usize = 1000;

thread_local! {
    static WORKER: RefCell<OfWorker> = const { RefCell::new(OfWorker { ring: None, late: Vec::new() }) };
    /// When the worker's last request was chosen to be recorded in full.
    static LAST_FULL: Cell<Option<tokio::time::Instant>> = const { Cell::new(None) };
}

/// What a worker has. A reload keeps it.
struct OfWorker {
    ring: Option<Arc<Mutex<Ring>>>,
    /// Requests that have ended while somebody looked at the ring.
    late: Vec<Recorded>,
}

/// A request that has been answered.
#[derive(Clone, Debug)]
pub struct Recorded {
    id: RequestId,
    /// What the client that wanted the record called it.
    name: Option<Box<str>>,
    route: Arc<str>,
    method: Method,
    /// UTF-8.
    path: SmallVec<[u8; SHORT_PATH]>,
    start: tokio::time::Instant,
    duration: Duration,
    queued: Duration,
    status: StatusCode,
    partial: bool,
    /// `None` if it made no calls.
    flow: Option<Arc<FlowRecord>>,
}

/// A request while it is answered.
#[derive(Debug)]
pub struct Running(Box<Recorded>, Detail);

impl Recorder {
    /// A recorder without requests.
    pub fn new(config: &fanin_config::Config) -> Arc<Recorder> {
        Arc::new(Recorder {
            config: ArcSwap::from_pointee(config.recorder.clone()),
            trusted: ArcSwap::from_pointee(config.server.trusted.clone()),
            rings: Mutex::default(),
            workers: AtomicUsize::new(0),
            tokens: Tokens::default(),
            dumps: Dumps::default(),
        })
    }

    /// Adds its metrics to a registry.
    pub fn register(&self, registry: &mut Registry) {
        self.dumps.register(registry);
    }

    /// Goes on with a reloaded configuration.
    pub fn configure(&self, config: &fanin_config::Config) {
        self.config.store(Arc::new(config.recorder.clone()));
        self.trusted.store(Arc::new(config.server.trusted.clone()));
    }

    /// Begins the record of a request. `None` if nothing is recorded.
    fn begin(&self, request: &fanin_server::Request, route: &Arc<str>) -> Option<Running> {
        let config = self.config.load();
        let name = match request.headers.get(&HEADER) {
            None => None,
            Some(_) => self.allowed_name(&request.headers, request.remote.ip()),
        };
        if config.requests == 0 && name.is_none() {
            return None;
        }
        let is_sample = name.is_none() && takes_full(config.full_rate, request.start);
        let path = request.uri.path();
        let end = (0..=path.len().min(MAX_PATH)).rev().find(|at| path.is_char_boundary(*at)).unwrap_or(0);
        let detail = match name {
            Some(_) => Detail::Full,
            None if is_sample => Detail::Sample,
            None => Detail::Calls,
        };
        let recorded = Recorded {
            id: request.id,
            name,
            route: route.clone(),
            method: request.method.clone(),
            path: SmallVec::from_slice(&path.as_bytes()[..end]),
            start: request.start,
            duration: Duration::ZERO,
            queued: request.start.elapsed(),
            status: StatusCode::OK,
            partial: false,
            flow: None,
        };
        Some(Running(Box::new(recorded), detail))
    }

    /// The name that a client may give to its record.
    #[cold]
    fn allowed_name(&self, headers: &HeaderMap, client: IpAddr) -> Option<Box<str>> {
        let name = headers.get(&HEADER)?.to_str().ok()?.trim();
        let is_name = !name.is_empty()
            && name.len() <= MAX_NAME
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        let may = || self.tokens.spend(name) || self.trusted.load().iter().any(|network| network.contains(client));
        (is_name && may()).then(|| name.into())
    }

    /// The request has been answered.
    fn end(&self, running: Running, status: StatusCode, partial: bool, flow: Option<Arc<FlowRecord>>) {
        let Running(mut request, _) = running;
        request.duration = request.start.elapsed();
        (request.status, request.partial, request.flow) = (status, partial, flow);
        let config = self.config.load();
        let workers = self.workers.load(Relaxed).max(1);
        WORKER.with_borrow_mut(|own| {
            let ring = own.ring.get_or_insert_with(|| self.new_ring());
            // Whoever looks at the requests has the lock while it copies them. The worker waits for that only if somebody has asked for
            // this request, and will look for it next.
            let locked = match request.name {
                Some(_) => ring.lock().map_err(TryLockError::from),
                None => ring.try_lock(),
            };
            let mut ring = match locked {
                Ok(ring) => ring,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => {
                    if own.late.len() < MAX_LATE {
                        own.late.push(*request);
                    }
                    return;
                }
            };
            for request in own.late.drain(..).chain([*request]) {
                ring.add(request, &config, workers);
            }
        });
    }

    #[cold]
    fn new_ring(&self) -> Arc<Mutex<Ring>> {
        let ring = Arc::new(Mutex::new(Ring::default()));
        self.rings.lock().unwrap_or_else(PoisonError::into_inner).push(ring.clone());
        self.workers.fetch_add(1, Relaxed);
        ring
    }

    /// A one-time name for a full record.
    pub fn token(&self) -> String {
        self.tokens.make()
    }

    /// The recorded requests, the newest first.
    pub fn requests(&self) -> Vec<Arc<Recorded>> {
        let mut all: Vec<Arc<Recorded>> = Vec::new();
        for ring in self.rings() {
            let copy = ring.lock().unwrap_or_else(PoisonError::into_inner).clone();
            all.extend(copy.all());
        }
        all.sort_by_key(|request| std::cmp::Reverse(request.start + request.duration));
        all
    }

    /// A request by its id, or by the name that its client gave to it.
    pub fn find(&self, id: &str) -> Option<Arc<Recorded>> {
        let number = (id.len() == 16).then(|| u64::from_str_radix(id, 16).ok()).flatten().map(RequestId::new);
        let is_it = |one: &Recorded| one.name.as_deref() == Some(id) || Some(one.id) == number;
        self.rings().iter().find_map(|ring| ring.lock().unwrap_or_else(PoisonError::into_inner).find(is_it))
    }

    fn rings(&self) -> Vec<Arc<Mutex<Ring>>> {
        self.rings.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Whether a request that began at `now` is to be recorded in full: at most so many a second on each worker.
fn takes_full(rate: u32, now: tokio::time::Instant) -> bool {
    let is_due =
        LAST_FULL.get().is_none_or(|last| now.saturating_duration_since(last) * rate >= Duration::from_secs(1));
    if rate > 0 && is_due {
        LAST_FULL.set(Some(now));
    }
    rate > 0 && is_due
}

impl Running {
    /// How much is recorded of its flow.
    pub fn detail(&self) -> Detail {
        self.1
    }
}

impl WorkerRecorder {
    /// For the routes with these names.
    pub fn new(recorder: &Arc<Recorder>, routes: &[Arc<str>]) -> WorkerRecorder {
        WorkerRecorder { recorder: recorder.clone(), routes: routes.iter().map(|name| Arc::from(&**name)).collect() }
    }

    /// Begins the record of a request. `None` if nothing is recorded.
    pub fn begin(&self, request: &fanin_server::Request) -> Option<Running> {
        self.recorder.begin(request, self.routes.get(request.route)?)
    }

    /// The request has been answered.
    pub fn end(&self, running: Running, status: StatusCode, partial: bool, flow: Option<Arc<FlowRecord>>) {
        self.recorder.end(running, status, partial, flow);
    }
}

/// From now on, panics are a cause to write the last requests. They are logged as before.
pub fn dump_on_panic(recorder: Arc<Recorder>) {
    let log = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        log(info);
        let at = info.location().map(ToString::to_string).unwrap_or_default();
        recorder.dump(Kind::Panic, format!("{at}: {}", logging::panic_message(info.payload())));
    }));
}

impl Recorded {
    fn started(&self) -> SystemTime {
        SystemTime::now().checked_sub(self.start.elapsed()).unwrap_or(UNIX_EPOCH)
    }

    /// Whether it has all that an explanation needs.
    pub fn is_full(&self) -> bool {
        self.flow.as_ref().is_some_and(|flow| flow.is_full())
    }

    /// As people and programs see it. With `step`, what a change of each call by so much would have changed.
    pub fn trace(&self, step: Option<Duration>, budget: Duration) -> RequestTrace {
        let mut trace = RequestTrace {
            id: self.id.to_string(),
            route: self.route.to_string(),
            method: self.method.to_string(),
            target: String::from_utf8_lossy(&self.path).into_owned(),
            started_unix_us: self.started().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64),
            duration: self.duration,
            queued: self.queued,
            status: self.status.as_u16(),
            partial: self.partial,
            calls: Vec::new(),
            slices: Vec::new(),
            waits: Vec::new(),
            step: None,
            replayed: None,
            unexplained: None,
        };
        let Some(flow) = &self.flow else { return trace };
        if let Some(target) = flow.target() {
            trace.target = target;
        }
        (trace.slices, trace.waits) = (flow.slices(), flow.waits());
        match step {
            None => trace.calls = flow.calls(),
            Some(step) => {
                let explanation = fanin_flow::explain(flow, step, budget);
                trace.calls = explanation.calls;
                trace.unexplained = explanation.unexplained;
                trace.replayed = Some(explanation.took).filter(|took| !took.is_zero());
                trace.step = Some(step);
            }
        }
        trace
    }
}
