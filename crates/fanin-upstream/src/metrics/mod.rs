//! Metrics of calls. Each worker has counters of its own, so that no cache line moves between cores; a scrape adds them up.

mod counters;
mod encode;
mod encode_shared;
mod registry;

pub(crate) use counters::{Extra, Outcome, Shard, StreamEnd};
pub(crate) use registry::{Gauges, MetricsRegistry, Observed, UpstreamMetrics};
