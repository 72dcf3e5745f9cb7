//! What this crate counts.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

/// Counts of the process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counters {
    sent: Counter,
    dropped: Family<Reason, Counter>,
}

impl Counters {
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register("fanin_otlp_spans", "Spans that the collector has taken", self.sent.clone());
        registry.register(
            "fanin_otlp_dropped_requests",
            "Requests whose spans were not sent: the queue was full, or an export failed",
            self.dropped.clone(),
        );
        for reason in ["queue", "export"] {
            drop(self.dropped.get_or_create(&Reason { reason }));
        }
    }
}

#[cfg(feature = "export")]
impl Counters {
    pub(crate) fn sent(&self, spans: usize) {
        self.sent.inc_by(spans as u64);
    }

    /// The queue was full.
    pub(crate) fn queue_full(&self) {
        self.dropped.get_or_create(&Reason { reason: "queue" }).inc();
    }

    /// An export failed.
    pub(crate) fn export_failed(&self, requests: usize) {
        self.dropped.get_or_create(&Reason { reason: "export" }).inc_by(requests as u64);
    }
}
