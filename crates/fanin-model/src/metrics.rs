//! Models in the server's metrics.

use std::fmt;
use std::sync::atomic::Ordering::Relaxed;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use crate::stats::Counted;
use crate::{Models, protocol::Service};

impl Models {
    /// Adds the models' metrics to a registry.
    pub fn register(&self, registry: &mut Registry, service: Option<&std::sync::Arc<Service>>) {
        registry.register_collector(Box::new(Metrics { models: self.clone(), service: service.cloned() }));
    }
}

#[derive(Debug)]
struct Metrics {
    models: Models,
    service: Option<std::sync::Arc<Service>>,
}

type Pick = fn(&Counted) -> u64;

/// Counters of each version.
const COUNTERS: [(&str, &str, Pick); 4] = [
    ("fanin_model_answers", "Requests that a model answered", |counted| counted.success),
    ("fanin_model_failures", "Requests to a model that got no answer", |counted| counted.fail),
    ("fanin_model_rows", "Rows that a model computed", |counted| counted.rows),
    (
        "fanin_model_executions",
        "Times that a model ran; fewer than answers where requests are computed together",
        |counted| counted.executions,
    ),
];

/// Times of each version, in nanoseconds.
const TIMES: [(&str, &str, Pick); 2] = [
    ("fanin_model_compute", "Time of computing", |counted| counted.compute_ns),
    ("fanin_model_queue", "Time that answered requests waited for a thread", |counted| counted.queue_ns),
];

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let models = self.models.all();
        let versions: Vec<_> =
            models.iter().flat_map(|model| model.ready().iter().cloned().collect::<Vec<_>>()).collect();
        for (name, help, pick) in COUNTERS {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for version in &versions {
                let labels = [("model", &**version.model()), ("version", &**version.text())];
                let count = pick(&version.stats().counted());
                family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
            }
        }
        for (name, help, pick) in TIMES {
            let mut family = encoder.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Counter)?;
            for version in &versions {
                let labels = [("model", &**version.model()), ("version", &**version.text())];
                let seconds = pick(&version.stats().counted()) as f64 / 1e9;
                family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&seconds, None)?;
            }
        }
        let shared = self.models.shared();
        let help = "Requests to models that failed, by why";
        let mut family = encoder.encode_descriptor("fanin_model_errors", help, None, MetricType::Counter)?;
        for (kind, count) in shared.outcomes.counted() {
            family.encode_family(&[("kind", kind)])?.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
        }
        let help = "Versions that were refused when they were to be loaded";
        let mut refused = encoder.encode_descriptor("fanin_model_refused", help, None, MetricType::Counter)?;
        refused.encode_counter::<NoLabelSet, _, u64>(&shared.refused.load(Relaxed), None)?;
        let mut family = encoder.encode_descriptor(
            "fanin_model_memory",
            "Bytes that a version holds",
            Some(&Unit::Bytes),
            MetricType::Gauge,
        )?;
        for version in &versions {
            let labels = [("model", &**version.model()), ("version", &**version.text())];
            family.encode_family(&labels)?.encode_gauge(&(version.memory() as i64))?;
        }
        let in_flight = self.service.as_ref().map_or(0, |service| service.in_flight());
        let connections = self.service.as_ref().map_or(0, |service| service.connections());
        let bytes = self.service.as_ref().map_or(0, |service| service.bytes());
        let slow_readers = self.service.as_ref().map_or(0, |service| service.slow_readers());
        let help =
            "Connections of the inference protocol closed because their clients read answers slower than min_read_rate";
        let mut family = encoder.encode_descriptor("fanin_models_slow_readers", help, None, MetricType::Counter)?;
        family.encode_counter::<NoLabelSet, _, u64>(&slow_readers, None)?;
        if let Some(service) = &self.service {
            service.handshakes.encode("fanin_models_tls_handshakes", &mut encoder)?;
        }
        for (name, help, value) in [
            ("fanin_models_waiting", "Requests that wait for a thread", self.models.waiting()),
            (
                "fanin_models_memory_used_bytes",
                "Bytes that all versions hold, those being replaced included",
                self.models.memory(),
            ),
            ("fanin_models_in_flight", "Requests of the inference protocol in progress", in_flight),
            ("fanin_models_in_flight_bytes", "Bytes that these hold, and answers not taken yet", bytes),
            ("fanin_models_connections", "Open connections of the inference protocol", connections),
        ] {
            encoder.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&(value as i64))?;
        }
        Ok(())
    }
}
