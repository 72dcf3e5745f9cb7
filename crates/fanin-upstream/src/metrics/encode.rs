//! Writes the metrics of calls and upstreams for a scrape.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use fanin_tracecontext::Annotations;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, NoLabelSet};
use prometheus_client::metrics::MetricType;

use super::counters::{BOUNDS, Extra, OUTCOMES, StreamEnd, outcome_name};
use super::encode_shared::encode_shared;
use super::registry::{Gauges, MetricsRegistry, UpstreamMetrics};

/// The histogram of calls.
const SECONDS: &str = "fanin_upstream_seconds";

type Gauge = (&'static str, &'static str, fn(&Gauges) -> u64);

const GAUGES: [Gauge; 8] = [
    ("fanin_upstream_in_flight", "Calls in flight", |g| g.in_flight),
    ("fanin_upstream_waiting", "Calls waiting for a permit", |g| g.waiting),
    ("fanin_upstream_limit", "Calls that may be in flight", |g| g.limit),
    ("fanin_upstream_connections", "Open connections", |g| g.connections),
    ("fanin_upstream_connecting", "Connections being opened", |g| g.connecting),
    ("fanin_upstream_endpoints", "Known endpoints", |g| g.endpoints),
    ("fanin_upstream_endpoints_ejected", "Endpoints ejected by outlier detection", |g| g.ejected),
    ("fanin_upstream_breaker", "Circuit breaker: 0 closed, 1 open, 2 half-open", |g| g.breaker),
];

impl MetricsRegistry {
    /// Traces of calls that the buckets of [`SECONDS`] have counted.
    pub(crate) fn exemplars(&self, to: &mut Annotations) {
        for (name, metrics) in self.all() {
            to.add(SECONDS, &[("upstream", &*name)], metrics.exemplars());
        }
    }
}

impl Collector for MetricsRegistry {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let upstreams = self.all();
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
            SECONDS,
            "Duration of calls, waiting and retries included",
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
        encode_streams(&upstreams, &mut encoder)?;
        let mut invalid = encoder.encode_descriptor(
            "fanin_upstream_invalid_answers",
            "Answers that are no JSON, or do not have the shape that the operation or call returns",
            None,
            MetricType::Counter,
        )?;
        for (upstream, metrics) in &upstreams {
            let count = metrics.invalid_answers.load(Relaxed);
            let labels = [("upstream", upstream.as_ref())];
            invalid.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
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
        encode_shared(&upstreams, &mut encoder)
    }
}

fn encode_streams(upstreams: &[(Arc<str>, Arc<UpstreamMetrics>)], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let help = "Streamed answers by how their body ended";
    let mut streams = encoder.encode_descriptor("fanin_upstream_streams", help, None, MetricType::Counter)?;
    for (upstream, metrics) in upstreams {
        for (end, outcome) in StreamEnd::ALL {
            let count = metrics.sum(|shard| shard.streams[end as usize].load(Relaxed));
            if count > 0 {
                let labels = [("upstream", upstream.as_ref()), ("outcome", outcome)];
                streams.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
            }
        }
    }
    let help = "Bytes of streamed answers that were passed on";
    let mut bytes = encoder.encode_descriptor("fanin_upstream_stream_bytes", help, None, MetricType::Counter)?;
    for (upstream, metrics) in upstreams {
        let count = metrics.sum(|shard| shard.stream_bytes.load(Relaxed));
        if count > 0 {
            let labels = [("upstream", upstream.as_ref())];
            bytes.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
        }
    }
    Ok(())
}

fn encode_histogram(
    family: &mut prometheus_client::encoding::MetricEncoder<'_>,
    labels: &impl EncodeLabelSet,
    metrics: &UpstreamMetrics,
) -> fmt::Result {
    let mut buckets = [(f64::INFINITY, 0); BOUNDS.len() + 1];
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
