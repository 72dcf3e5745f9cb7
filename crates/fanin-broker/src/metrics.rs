//! What happened between this instance and its broker.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, Default)]
pub(crate) struct Metrics {
    pub(crate) connected: Gauge,
    pub(crate) reconnects: Counter,
    pub(crate) sent: Counter,
    pub(crate) received: Counter,
    pub(crate) dropped: Counter,
    pub(crate) invalid: Counter,
    pub(crate) gaps: Counter,
}

impl Metrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        let Metrics { connected, reconnects, sent, received, dropped, invalid, gaps } = self;
        registry.register(
            "fanin_push_broker_connected",
            "Whether the broker passes messages on: 1, or 0 without a broker or while it does not",
            connected.clone(),
        );
        registry.register(
            "fanin_push_broker_reconnects",
            "Times that the broker passed messages on again after it did not",
            reconnects.clone(),
        );
        registry.register("fanin_push_broker_sent", "Events of this instance sent to the broker", sent.clone());
        registry.register(
            "fanin_push_broker_received",
            "Events of other instances received from the broker, with subscribers here or without",
            received.clone(),
        );
        registry.register(
            "fanin_push_broker_dropped",
            "Events of this instance that the broker did not get: too many were waiting, or it refuses their size",
            dropped.clone(),
        );
        registry.register(
            "fanin_push_broker_invalid",
            "Messages from the broker that were ignored: malformed, too large, or received before",
            invalid.clone(),
        );
        registry.register(
            "fanin_push_broker_gaps",
            "Times that subscribers got `lost` because events of other instances are missing",
            gaps.clone(),
        );
    }
}
