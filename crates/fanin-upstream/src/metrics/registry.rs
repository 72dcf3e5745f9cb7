//! The counters of all upstreams, kept as long as the process runs.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use fanin_tracecontext::{Exemplar, Exemplars};

use super::counters::Shard;
use crate::shared::{OperationMetrics, OperationShared, Snapshot, SnapshotMetrics};

/// What the gauges show of an upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gauges {
    pub in_flight: u64,
    pub waiting: u64,
    pub limit: u64,
    pub connections: u64,
    pub connecting: u64,
    pub endpoints: u64,
    pub ejected: u64,
    pub breaker: u64,
}

/// What a scrape reads of an upstream as last configured.
pub(crate) trait Observed: Send + Sync {
    fn gauges(&self) -> Gauges;
    fn operations(&self) -> &[Arc<OperationShared>];
    fn snapshot(&self) -> Option<&Arc<Snapshot>>;
}

/// All counters of one upstream: one shard for each worker that has called it. They live as long as the process,
/// because counters must not decrease on a reload.
#[derive(Default)]
pub(crate) struct UpstreamMetrics {
    shards: Mutex<Vec<Arc<Shard>>>,
    /// The upstream as last configured, for the gauges.
    current: Mutex<Option<Weak<dyn Observed>>>,
    /// By operation.
    operations: Mutex<BTreeMap<String, Arc<OperationMetrics>>>,
    pub(crate) snapshot: Arc<SnapshotMetrics>,
    /// Answers that arrived and could not be used. Such answers are rare, so all workers write one counter.
    pub(crate) invalid_answers: AtomicU64,
}

impl UpstreamMetrics {
    pub fn new_shard(&self) -> Arc<Shard> {
        let shard = Arc::new(Shard::default());
        self.shards.lock().unwrap_or_else(PoisonError::into_inner).push(shard.clone());
        shard
    }

    /// From now on the gauges show this upstream.
    pub fn set_current(&self, upstream: Weak<dyn Observed>) {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Some(upstream);
    }

    pub fn operation(&self, name: &str) -> Arc<OperationMetrics> {
        let mut operations = self.operations.lock().unwrap_or_else(PoisonError::into_inner);
        operations.entry(name.to_owned()).or_default().clone()
    }

    pub(crate) fn operations(&self) -> Vec<(String, Arc<OperationMetrics>)> {
        let operations = self.operations.lock().unwrap_or_else(PoisonError::into_inner);
        operations.iter().map(|(name, counts)| (name.clone(), counts.clone())).collect()
    }

    pub(crate) fn current(&self) -> Option<Arc<dyn Observed>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).as_ref()?.upgrade()
    }

    pub(super) fn exemplars(&self) -> Vec<Option<Exemplar>> {
        let shards = self.shards.lock().unwrap_or_else(PoisonError::into_inner);
        Exemplars::newest(shards.iter().map(|shard| &shard.exemplars))
    }

    pub(super) fn sum(&self, pick: impl Fn(&Shard) -> u64) -> u64 {
        self.shards.lock().unwrap_or_else(PoisonError::into_inner).iter().map(|shard| pick(shard)).sum()
    }
}

/// The metrics of all upstreams that there have been, by name. Registered once.
#[derive(Default)]
pub(crate) struct MetricsRegistry(Mutex<BTreeMap<Arc<str>, Arc<UpstreamMetrics>>>);

impl fmt::Debug for MetricsRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("upstream metrics")
    }
}

impl MetricsRegistry {
    pub fn of(&self, upstream: &Arc<str>) -> Arc<UpstreamMetrics> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(upstream.clone()).or_default().clone()
    }

    pub(super) fn all(&self) -> Vec<(Arc<str>, Arc<UpstreamMetrics>)> {
        let table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        table.iter().map(|(name, metrics)| (name.clone(), metrics.clone())).collect()
    }
}
