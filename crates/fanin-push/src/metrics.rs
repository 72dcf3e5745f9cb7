//! What happened on all channels.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Debug, Default)]
pub(crate) struct Metrics {
    pub(crate) subscribers: Gauge,
    pub(crate) channels: Gauge,
    pub(crate) log_bytes: Gauge,
    pub(crate) published: Counter,
    pub(crate) delivered: Counter,
    pub(crate) lost: Counter,
    pub(crate) refused: Counter,
}

impl Metrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        let Metrics { subscribers, channels, log_bytes, published, delivered, lost, refused } = self;
        registry.register("fanin_push_subscribers", "Subscribers", subscribers.clone());
        registry.register("fanin_push_channels", "Channels with a log", channels.clone());
        registry.register("fanin_push_log_bytes", "Bytes of events in the logs of all channels", log_bytes.clone());
        registry.register("fanin_push_published", "Events published", published.clone());
        registry.register("fanin_push_delivered", "Events passed to connections of subscribers", delivered.clone());
        registry.register("fanin_push_lost", "Subscribers told that they have lost events", lost.clone());
        registry.register("fanin_push_refused", "Subscriptions refused for a limit", refused.clone());
    }
}
