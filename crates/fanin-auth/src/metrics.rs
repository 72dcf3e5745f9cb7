//! What is counted. Kept by reloads.

use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use crate::refusal::Reason;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByReason {
    reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByLimit {
    limit: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByFetch {
    auth: String,
    outcome: &'static str,
}

/// All counters of guards.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    refused: Family<ByReason, Counter>,
    /// Those of `refused`, by [`Reason`].
    by_reason: Arc<[Counter; Reason::ALL.len()]>,
    limits: Family<ByLimit, Counter>,
    fetches: Family<ByFetch, Counter>,
}

impl Default for Metrics {
    fn default() -> Metrics {
        let refused = Family::<ByReason, Counter>::default();
        let by_reason = Reason::ALL.map(|reason| refused.get_or_create_owned(&ByReason { reason: reason.name() }));
        Metrics { refused, by_reason: Arc::new(by_reason), limits: Family::default(), fetches: Family::default() }
    }
}

impl Metrics {
    /// Counts a refused request.
    pub fn count(&self, reason: Reason) {
        self.by_reason[reason as usize].inc();
    }

    /// Requests that a limit refused.
    pub fn limit(&self, name: &str) -> Counter {
        self.limits.get_or_create_owned(&ByLimit { limit: name.to_owned() })
    }

    /// Fetches of an issuer's keys: those that gave keys, and those that failed.
    pub fn fetches(&self, auth: &str) -> [Counter; 2] {
        ["fetched", "failed"]
            .map(|outcome| self.fetches.get_or_create_owned(&ByFetch { auth: auth.to_owned(), outcome }))
    }

    pub fn register(&self, registry: &mut Registry) {
        let help = "Requests refused before their flow, for their address, their credentials, or how many there are";
        registry.register("fanin_access_refused", help, self.refused.clone());
        registry.register("fanin_rate_limit_refused", "Requests that a rate limit refused", self.limits.clone());
        registry.register("fanin_auth_key_fetches", "Fetches of the keys of issuers of tokens", self.fetches.clone());
    }
}
