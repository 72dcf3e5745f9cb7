//! Writes the metrics of batches, single-flight, caches and snapshots for a scrape.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::SystemTime;

use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use super::registry::UpstreamMetrics;
use crate::shared::{OperationMetrics, Sizes, SnapshotMetrics, SnapshotTable};

type Counter = (&'static str, &'static str, fn(&OperationMetrics) -> &AtomicU64);

const COUNTERS: [Counter; 10] = [
    ("fanin_batch_splits", "Requests of batches sent again in halves after a failure of their content", |c| {
        &c.batch_splits
    }),
    ("fanin_batch_strays", "Items in answers to batches that belong to no requested key", |c| &c.batch_strays),
    ("fanin_batch_held", "Calls held for a partner to merge with", |c| &c.held),
    ("fanin_batch_held_in_vain", "Calls held for the whole linger without a partner", |c| &c.held_in_vain),
    ("fanin_flight_joined", "Calls that joined an identical call in flight", |c| &c.joined),
    ("fanin_cache_hits", "Calls, or keys of an operation with a batch, answered by the cache", |c| &c.cache_hits),
    ("fanin_cache_stale", "Calls or keys answered by the cache while a new answer was fetched", |c| &c.cache_stale),
    ("fanin_cache_saved", "Calls or keys answered by the cache because the upstream failed", |c| &c.cache_saved),
    ("fanin_cache_misses", "Calls or keys that the cache could not answer", |c| &c.cache_misses),
    ("fanin_operation_calls", "Calls of operations that use batches, single-flight or a cache", |c| &c.calls),
];

type Histogram = (&'static str, &'static str, fn(&OperationMetrics) -> &Sizes);

const HISTOGRAMS: [Histogram; 2] = [
    ("fanin_batch_calls", "Calls served by one request of a batch", |c| &c.batch_calls),
    ("fanin_batch_keys", "Keys in one request of a batch", |c| &c.batch_keys),
];

/// Leaves out operations that were never called.
pub(super) fn encode_shared(
    upstreams: &[(Arc<str>, Arc<UpstreamMetrics>)],
    encoder: &mut DescriptorEncoder<'_>,
) -> fmt::Result {
    let operations: Vec<(&str, String, Arc<OperationMetrics>)> = upstreams
        .iter()
        .flat_map(|(upstream, metrics)| {
            metrics.operations().into_iter().map(move |(name, counts)| (&**upstream, name, counts))
        })
        .filter(|(_, _, counts)| counts.calls.load(Relaxed) > 0)
        .collect();
    for (name, help, pick) in COUNTERS {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (upstream, operation, counts) in &operations {
            let labels = [("upstream", *upstream), ("operation", operation)];
            let count = pick(counts).load(Relaxed);
            family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
        }
    }
    for (name, help, pick) in HISTOGRAMS {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for (upstream, operation, counts) in &operations {
            let (sum, count, buckets) = pick(counts).read();
            if count > 0 {
                let labels = [("upstream", *upstream), ("operation", operation)];
                family.encode_family(&labels)?.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
            }
        }
    }
    encode_caches(upstreams, encoder)?;
    encode_snapshots(upstreams, encoder)
}

fn encode_caches(upstreams: &[(Arc<str>, Arc<UpstreamMetrics>)], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    type Gauge = (&'static str, &'static str, fn((u64, u64)) -> u64);
    const GAUGES: [Gauge; 2] = [
        ("fanin_cache_bytes", "Bytes of cached answers or items", |(_, bytes)| bytes),
        ("fanin_cache_entries", "Cached answers or items", |(entries, _)| entries),
    ];
    for (name, help, pick) in GAUGES {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (upstream, metrics) in upstreams {
            let Some(current) = metrics.current() else { continue };
            for operation in current.operations() {
                let Some(size) = operation.cache_size() else { continue };
                let labels = [("upstream", &**upstream), ("operation", &operation.name)];
                let value = i64::try_from(pick(size)).unwrap_or(i64::MAX);
                family.encode_family(&labels)?.encode_gauge(&value)?;
            }
        }
    }
    Ok(())
}

fn encode_snapshots(
    upstreams: &[(Arc<str>, Arc<UpstreamMetrics>)],
    encoder: &mut DescriptorEncoder<'_>,
) -> fmt::Result {
    let now = SystemTime::now();
    let mut snapshots = Vec::new();
    for (upstream, metrics) in upstreams {
        let Some(snapshot) = metrics.current().and_then(|current| current.snapshot().cloned()) else { continue };
        snapshots.push((&**upstream, snapshot));
    }
    type Counter = (&'static str, fn(&SnapshotMetrics) -> &AtomicU64);
    const OUTCOMES: [Counter; 2] = [("taken", |counts| &counts.fetched), ("failed", |counts| &counts.failed)];
    let mut family =
        encoder.encode_descriptor("fanin_snapshot_fetches", "Fetches of a snapshot", None, MetricType::Counter)?;
    for (upstream, snapshot) in &snapshots {
        for (outcome, pick) in OUTCOMES {
            let labels = [("upstream", *upstream), ("outcome", outcome)];
            let count = pick(&snapshot.counts).load(Relaxed);
            family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
        }
    }
    type Gauge = (&'static str, &'static str, fn(&SnapshotTable, SystemTime) -> f64);
    const GAUGES: [Gauge; 3] = [
        ("fanin_snapshot_age_seconds", "Time since the table of a snapshot was fetched", |table, now| {
            now.duration_since(table.fetched()).unwrap_or_default().as_secs_f64()
        }),
        ("fanin_snapshot_rows", "Rows of a snapshot", |table, _| table.len() as f64),
        ("fanin_snapshot_bytes", "Bytes of a snapshot", |table, _| table.memory() as f64),
    ];
    for (name, help, pick) in GAUGES {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (upstream, snapshot) in &snapshots {
            // Only a table that has been fetched has an age.
            let Some(table) = snapshot.table() else { continue };
            family.encode_family(&[("upstream", *upstream)])?.encode_gauge(&pick(&table, now))?;
        }
    }
    Ok(())
}
