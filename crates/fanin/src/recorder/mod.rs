//! The flight recorder: the last requests with their calls, always on, and some of them in full.
//!
//! - `ring`: the requests of one worker. `tokens`: who may ask for a full record. `pages`: the admin pages. `by_route`: what the recent
//!   requests of a route have in common.

mod by_route;
mod pages;
mod ring;
mod tokens;

use std::cell::{Cell, OnceCell};
use std::net::IpAddr;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use fanin_config::Network;
use fanin_flow::{Detail, FlowRecord};
use fanin_server::RequestId;
use fanin_trace::RequestTrace;
use http::{HeaderMap, Method, StatusCode};

pub use by_route::RouteExplanation;
pub use pages::{links, page};
use ring::Ring;
use tokens::Tokens;

/// The request header by which a client asks for a full record, and the name it gives to it.
pub const HEADER: &str = "fanin-explain";

/// Longest name of a record that a client gives.
const MAX_NAME: usize = 64;
/// Longest path that is kept.
const MAX_PATH: usize = 200;

/// The last requests of all workers. Kept by reloads.
#[derive(Debug)]
pub struct Recorder {
    config: ArcSwap<fanin_config::Recorder>,
    trusted: ArcSwap<Vec<Network>>,
    rings: Mutex<Vec<Arc<Mutex<Ring>>>>,
    /// How many rings there are: the workers share the bounds.
    workers: AtomicUsize,
    tokens: Tokens,
}

thread_local! {
    /// The worker's requests. A reload keeps them.
    static RING: OnceCell<Arc<Mutex<Ring>>> = const { OnceCell::new() };
    /// When the worker's last request was chosen to be recorded in full.
    static LAST_FULL: Cell<Option<tokio::time::Instant>> = const { Cell::new(None) };
}

/// A request that has been answered.
#[derive(Debug)]
pub struct Recorded {
    id: RequestId,
    /// What the client that wanted the record called it.
    name: Option<Box<str>>,
    route: Arc<str>,
    method: Method,
    path: Box<str>,
    started: SystemTime,
    duration: Duration,
    queued: Duration,
    status: StatusCode,
    partial: bool,
    /// `None` if it made no calls.
    flow: Option<Arc<FlowRecord>>,
}

/// A request while it is answered.
#[derive(Debug)]
pub struct Running {
    id: RequestId,
    name: Option<Box<str>>,
    route: Arc<str>,
    method: Method,
    path: Box<str>,
    start: tokio::time::Instant,
    queued: Duration,
    detail: Detail,
}

impl Recorder {
    /// A recorder without requests.
    pub fn new(config: &fanin_config::Config) -> Arc<Recorder> {
        Arc::new(Recorder {
            config: ArcSwap::from_pointee(config.recorder.clone()),
            trusted: ArcSwap::from_pointee(config.server.trusted.clone()),
            rings: Mutex::default(),
            workers: AtomicUsize::new(0),
            tokens: Tokens::default(),
        })
    }

    /// Goes on with a reloaded configuration.
    pub fn configure(&self, config: &fanin_config::Config) {
        self.config.store(Arc::new(config.recorder.clone()));
        self.trusted.store(Arc::new(config.server.trusted.clone()));
    }

    /// Begins the record of a request. `None` if nothing is recorded.
    pub fn begin(&self, request: &fanin_server::Request, route: &Arc<str>) -> Option<Running> {
        let config = self.config.load();
        let name = match request.headers.get(HEADER) {
            None => None,
            Some(_) => self.allowed_name(&request.headers, request.remote.ip()),
        };
        if config.requests == 0 && name.is_none() {
            return None;
        }
        let is_sample = name.is_none() && takes_full(config.full_rate, request.start);
        let path = request.uri.path();
        let end = (0..=path.len().min(MAX_PATH)).rev().find(|at| path.is_char_boundary(*at)).unwrap_or(0);
        Some(Running {
            id: request.id,
            detail: match name {
                Some(_) => Detail::Full,
                None if is_sample => Detail::Sample,
                None => Detail::Calls,
            },
            name,
            route: route.clone(),
            method: request.method.clone(),
            path: path[..end].into(),
            start: request.start,
            queued: request.start.elapsed(),
        })
    }

    /// The name that a client may give to its record.
    #[cold]
    fn allowed_name(&self, headers: &HeaderMap, client: IpAddr) -> Option<Box<str>> {
        let name = headers.get(HEADER)?.to_str().ok()?.trim();
        let is_name = !name.is_empty()
            && name.len() <= MAX_NAME
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        let may = || self.tokens.spend(name) || self.trusted.load().iter().any(|network| network.contains(client));
        (is_name && may()).then(|| name.into())
    }

    /// The request has been answered.
    pub fn end(&self, running: Running, status: StatusCode, partial: bool, flow: Option<Arc<FlowRecord>>) {
        let Running { id, name, route, method, path, start, queued, detail: _ } = running;
        let duration = start.elapsed();
        let started = SystemTime::now().checked_sub(duration).unwrap_or(UNIX_EPOCH);
        let recorded = Recorded { id, name, route, method, path, started, duration, queued, status, partial, flow };
        let config = self.config.load();
        self.here(|ring| ring.add(Arc::new(recorded), &config, self.workers.load(Relaxed).max(1)));
    }

    /// Uses the ring of this worker. Only an admin page ever holds its lock besides, for as long as it takes to copy some pointers.
    fn here<R>(&self, run: impl FnOnce(&mut Ring) -> R) -> R {
        RING.with(|ring| {
            let ring = ring.get_or_init(|| {
                let ring = Arc::new(Mutex::new(Ring::default()));
                self.rings.lock().unwrap_or_else(PoisonError::into_inner).push(ring.clone());
                self.workers.fetch_add(1, Relaxed);
                ring
            });
            run(&mut ring.lock().unwrap_or_else(PoisonError::into_inner))
        })
    }

    /// A one-time name for a full record.
    pub fn token(&self) -> String {
        self.tokens.make()
    }

    /// The recorded requests, the newest first.
    pub fn requests(&self) -> Vec<Arc<Recorded>> {
        let rings = self.rings.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut all: Vec<Arc<Recorded>> = Vec::new();
        for ring in rings {
            all.extend(ring.lock().unwrap_or_else(PoisonError::into_inner).all());
        }
        all.sort_by_key(|request| std::cmp::Reverse(request.started + request.duration));
        all.dedup_by(|a, b| Arc::ptr_eq(a, b));
        all
    }

    /// A request by its id, or by the name that its client gave to it.
    pub fn find(&self, id: &str) -> Option<Arc<Recorded>> {
        let is_it = |one: &Arc<Recorded>| one.name.as_deref() == Some(id) || one.id.to_string() == id;
        let rings = self.rings.lock().unwrap_or_else(PoisonError::into_inner).clone();
        rings.iter().find_map(|ring| ring.lock().unwrap_or_else(PoisonError::into_inner).all().find(is_it))
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
        self.detail
    }
}

impl Recorded {
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
            target: self.path.to_string(),
            started_unix_us: self.started.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64),
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
