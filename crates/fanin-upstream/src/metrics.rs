//! What calls do, counted. Each worker writes counters of its own, so that a call costs a few plain stores and no cache
//! line travels between cores; a scrape adds them up.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use http::StatusCode;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, NoLabelSet};
use prometheus_client::metrics::MetricType;

use crate::error::ErrorKind;
use crate::shared::{Counts, SnapshotCounts};
use crate::upstream::Upstream;

/// Upper bounds of the latency histogram, in microseconds.
const BOUNDS: [u64; 15] = [
    500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000, 2_000_000, 5_000_000,
    10_000_000, 30_000_000,
];

/// Answers by class of their status, after them the kinds of errors.
const CLASSES: [&str; 4] = ["2xx", "3xx", "4xx", "5xx"];
const OUTCOMES: usize = CLASSES.len() + ErrorKind::ALL.len();

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outcome(usize);

impl Outcome {
    pub fn answer(status: StatusCode) -> Outcome {
        Outcome(usize::from(status.as_u16() / 100).clamp(2, 5) - 2)
    }

    pub fn error(kind: ErrorKind) -> Outcome {
        Outcome(CLASSES.len() + kind as usize)
    }
}

fn outcome_name(outcome: usize) -> &'static str {
    match outcome.checked_sub(CLASSES.len()) {
        None => CLASSES[outcome],
        Some(kind) => ErrorKind::ALL[kind].as_str(),
    }
}

/// One worker's counters of one upstream. Only that worker writes them.
#[derive(Debug, Default)]
pub(crate) struct Shard {
    outcomes: [AtomicU64; OUTCOMES],
    buckets: [AtomicU64; BOUNDS.len() + 1],
    sum_us: AtomicU64,
    extra: [AtomicU64; Extra::ALL.len()],
}

/// Things counted beside the calls themselves.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Extra {
    /// Requests put on a connection: calls, retries, hedges and resends.
    Sent,
    /// Requests sent again because a kept connection had gone stale.
    Resent,
    /// Second tries by the retry policy.
    Retried,
    /// Retries that the budget did not allow.
    RetryDenied,
    /// Second requests sent because the first was slow.
    Hedged,
    /// Hedges that answered first.
    HedgeWon,
}

impl Extra {
    const ALL: [(Extra, &'static str, &'static str); 6] = [
        (Extra::Sent, "fanin_upstream_sent", "Requests sent to the upstream, retries and hedges included"),
        (Extra::Resent, "fanin_upstream_resent", "Requests sent again because a kept connection had been closed"),
        (Extra::Retried, "fanin_upstream_retries", "Retries sent"),
        (Extra::RetryDenied, "fanin_upstream_retries_denied", "Retries that the retry budget did not allow"),
        (Extra::Hedged, "fanin_upstream_hedges", "Hedges sent"),
        (Extra::HedgeWon, "fanin_upstream_hedges_won", "Hedges that answered before the first request"),
    ];
}

/// One writer: a plain load and store, no locked instruction.
fn bump(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(by), Relaxed);
}

impl Shard {
    pub fn record(&self, outcome: Outcome, elapsed: Duration) {
        let us = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        bump(&self.outcomes[outcome.0], 1);
        bump(&self.buckets[BOUNDS.partition_point(|bound| *bound < us)], 1);
        bump(&self.sum_us, us);
    }

    pub fn count(&self, what: Extra) {
        bump(&self.extra[what as usize], 1);
    }
}

/// All counters of one upstream: one shard for each worker that has called it. Lives as long as the process, whatever is
/// reloaded, because counters must not go backwards.
#[derive(Debug, Default)]
pub(crate) struct UpstreamMetrics {
    shards: Mutex<Vec<Arc<Shard>>>,
    /// The upstream as last configured, for the gauges.
    current: Mutex<Weak<Upstream>>,
    /// By operation.
    operations: Mutex<BTreeMap<String, Arc<Counts>>>,
    pub(crate) snapshot: Arc<SnapshotCounts>,
}

impl UpstreamMetrics {
    pub fn new_shard(&self) -> Arc<Shard> {
        let shard = Arc::new(Shard::default());
        self.shards.lock().unwrap_or_else(PoisonError::into_inner).push(shard.clone());
        shard
    }

    pub fn set_current(&self, upstream: &Arc<Upstream>) {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(upstream);
    }

    pub fn operation(&self, name: &str) -> Arc<Counts> {
        let mut operations = self.operations.lock().unwrap_or_else(PoisonError::into_inner);
        operations.entry(name.to_owned()).or_default().clone()
    }

    pub(crate) fn operations(&self) -> Vec<(String, Arc<Counts>)> {
        let operations = self.operations.lock().unwrap_or_else(PoisonError::into_inner);
        operations.iter().map(|(name, counts)| (name.clone(), counts.clone())).collect()
    }

    pub(crate) fn current(&self) -> Option<Arc<Upstream>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).upgrade()
    }

    fn sum(&self, pick: impl Fn(&Shard) -> u64) -> u64 {
        self.shards.lock().unwrap_or_else(PoisonError::into_inner).iter().map(|shard| pick(shard)).sum()
    }
}

/// The metrics of all upstreams that there have been, by name. Handed to the registry once.
#[derive(Default)]
pub(crate) struct Table(Mutex<BTreeMap<Arc<str>, Arc<UpstreamMetrics>>>);

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("upstream metrics")
    }
}

impl Table {
    pub fn of(&self, upstream: &Arc<str>) -> Arc<UpstreamMetrics> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(upstream.clone()).or_default().clone()
    }

    fn snapshot(&self) -> Vec<(Arc<str>, Arc<UpstreamMetrics>)> {
        let table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        table.iter().map(|(name, metrics)| (name.clone(), metrics.clone())).collect()
    }
}

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

type Gauge = (&'static str, &'static str, fn(&Gauges) -> u64);

const GAUGES: [Gauge; 8] = [
    ("fanin_upstream_in_flight", "Calls in flight", |g| g.in_flight),
    ("fanin_upstream_waiting", "Calls waiting for a place below the limit", |g| g.waiting),
    ("fanin_upstream_limit", "Calls that may be in flight", |g| g.limit),
    ("fanin_upstream_connections", "Open connections", |g| g.connections),
    ("fanin_upstream_connecting", "Connections in the making", |g| g.connecting),
    ("fanin_upstream_endpoints", "Known endpoints", |g| g.endpoints),
    ("fanin_upstream_endpoints_ejected", "Endpoints not asked for now, because they failed", |g| g.ejected),
    ("fanin_upstream_breaker", "Breaker: 0 closed, 1 open, 2 on probation", |g| g.breaker),
];

impl Collector for Table {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let upstreams = self.snapshot();
        let mut calls = encoder.encode_descriptor(
            "fanin_upstream_calls",
            "Calls by outcome: the class of the answer's status, or the kind of error",
            None,
            MetricType::Counter,
        )?;
        for (name, metrics) in &upstreams {
            for outcome in 0..OUTCOMES {
                let count = metrics.sum(|shard| shard.outcomes[outcome].load(Relaxed));
                if count > 0 {
                    let labels = [("upstream", name.as_ref()), ("outcome", outcome_name(outcome))];
                    calls.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
                }
            }
        }
        let mut seconds = encoder.encode_descriptor(
            "fanin_upstream_seconds",
            "Time of a call, waiting and retries included",
            None,
            MetricType::Histogram,
        )?;
        for (name, metrics) in &upstreams {
            encode_histogram(&mut seconds, &[("upstream", name.as_ref())], metrics)?;
        }
        for (what, name, help) in Extra::ALL {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (upstream, metrics) in &upstreams {
                let count = metrics.sum(|shard| shard.extra[what as usize].load(Relaxed));
                let labels = [("upstream", upstream.as_ref())];
                family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
            }
        }
        let gauges: Vec<(&Arc<str>, Gauges)> = upstreams
            .iter()
            .filter_map(|(name, metrics)| metrics.current().map(|upstream| (name, upstream.gauges())))
            .collect();
        for (name, help, pick) in GAUGES {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (upstream, values) in &gauges {
                let value = i64::try_from(pick(values)).unwrap_or(i64::MAX);
                family.encode_family(&[("upstream", upstream.as_ref())])?.encode_gauge(&value)?;
            }
        }
        crate::shared::metrics::encode(&upstreams, &mut encoder)
    }
}

fn encode_histogram(
    family: &mut prometheus_client::encoding::MetricEncoder<'_>,
    labels: &impl EncodeLabelSet,
    metrics: &UpstreamMetrics,
) -> fmt::Result {
    let mut buckets = [(f64::MAX, 0); BOUNDS.len() + 1];
    let mut count = 0;
    for (index, bucket) in buckets.iter_mut().enumerate() {
        if let Some(bound) = BOUNDS.get(index) {
            bucket.0 = *bound as f64 / 1e6;
        }
        bucket.1 = metrics.sum(|shard| shard.buckets[index].load(Relaxed));
        count += bucket.1;
    }
    let sum = metrics.sum(|shard| shard.sum_us.load(Relaxed)) as f64 / 1e6;
    family.encode_family(labels)?.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
}
