//! The server's metrics, as Prometheus (OpenMetrics) text.
//!
//! - `single_writer`: counts and histograms that one thread writes.
//! - `stats`: what is counted, by route and by worker. `process`: what the system reports about the process.
//! - `objective_watch`: notices routes that do not keep their objectives.
//! - `encode`: the text of the server's own. `page`: the text of `/metrics`.
//!
//! Each worker has counts of its own, so counting is a plain store. They are summed when `/metrics` is read.

mod encode;
mod objective_watch;
mod page;
mod process;
mod single_writer;
mod stats;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use fanin_config::Objective;
use fanin_tls::Handshakes;

pub(crate) use encode::Frequent;
pub(crate) use objective_watch::ObjectiveWatch;
pub use page::MetricsPage;
pub(crate) use page::{write, write_with_exemplars};
pub(crate) use stats::{Closed, RouteStats, WorkerStats};

use crate::BuildInfo;
use crate::admission::{Limiter, Limiters};
use crate::cache::Caches;
use crate::client::Clients;
use crate::memory_budget::Memory;

/// Everything that the server counts.
#[derive(Debug)]
pub(crate) struct Metrics {
    build: BuildInfo,
    started: Instant,
    pub(crate) limiters: Arc<Limiters>,
    pub(crate) caches: Arc<Caches>,
    pub(crate) memory: Arc<Memory>,
    pub(crate) clients: Arc<Clients>,
    /// On the routes' listeners.
    pub(crate) handshakes: Arc<Handshakes>,
    workers: Vec<Arc<WorkerStats>>,
    routes: Mutex<BTreeMap<Label, PerWorkerStats>>,
    pub(crate) reloads_ok: AtomicU64,
    pub(crate) reloads_failed: AtomicU64,
    /// Seconds since the epoch.
    pub(crate) last_reload: AtomicI64,
}

/// Method and path pattern. Both empty: requests that matched no route.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Label {
    pub(crate) method: String,
    pub(crate) path: String,
}

#[derive(Debug)]
struct PerWorkerStats {
    workers: Vec<Arc<RouteStats>>,
    /// `None` for requests without a route.
    limiter: Option<Arc<Limiter>>,
    objective: Option<Objective>,
}

impl Metrics {
    pub(crate) fn new(build: BuildInfo, workers: usize, limiters: Arc<Limiters>, caches: Arc<Caches>) -> Metrics {
        Metrics {
            build,
            started: Instant::now(),
            limiters,
            caches,
            memory: Arc::default(),
            clients: Clients::new(),
            handshakes: Arc::default(),
            workers: (0..workers).map(|_| Arc::default()).collect(),
            routes: Mutex::default(),
            reloads_ok: AtomicU64::new(0),
            reloads_failed: AtomicU64::new(0),
            last_reload: AtomicI64::new(0),
        }
    }

    pub(crate) fn version(&self) -> &'static str {
        self.build.version
    }

    pub(crate) fn worker(&self, index: usize) -> Arc<WorkerStats> {
        self.workers[index].clone()
    }

    /// The counts of a route on a worker. They survive reloads.
    pub(crate) fn route(
        &self,
        worker: usize,
        label: Label,
        limiter: Option<&Arc<Limiter>>,
        objective: Option<Objective>,
    ) -> Arc<RouteStats> {
        let mut routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        let stats = routes.entry(label).or_insert_with(|| PerWorkerStats {
            workers: self.workers.iter().map(|_| Arc::default()).collect(),
            limiter: None,
            objective: None,
        });
        stats.limiter = limiter.cloned();
        stats.objective = objective;
        let stats = stats.workers[worker].clone();
        stats.objective_micros.set(objective.map_or(0, |objective| objective.within.as_micros() as u64));
        stats
    }

    /// The routes with an objective: how many requests have counted, and how many of them were good.
    fn objectives(&self) -> Vec<(Label, Objective, u64, u64)> {
        let routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        let with = routes.iter().filter_map(|(label, stats)| Some((label, stats.objective?, &stats.workers)));
        let sum = |(label, objective, workers): (&Label, Objective, &Vec<Arc<RouteStats>>)| {
            let sum = |of: fn(&RouteStats) -> u64| workers.iter().map(|stats| of(stats)).sum();
            // All of them first: what is counted meanwhile is not taken for bad.
            let counted = sum(|stats| stats.objective_counted.get());
            (label.clone(), objective, counted, sum(|stats| stats.objective_good.get()))
        };
        with.map(sum).collect()
    }

    pub(crate) fn reloaded(&self, ok: bool) {
        let (counter, now) = (if ok { &self.reloads_ok } else { &self.reloads_failed }, std::time::SystemTime::now());
        counter.fetch_add(1, Relaxed);
        if ok {
            let seconds = now.duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs());
            self.last_reload.store(seconds as i64, Relaxed);
        }
    }
}
