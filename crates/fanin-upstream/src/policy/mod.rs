//! Policies between a call and its transport. Each is one file, and none knows the others. `call/policies.rs` applies
//! them in their order.
//!
//! - `breaker`: stops calls to an upstream that keeps failing.
//! - `retry`, `retry_budget`: which failures get a further attempt, and how many of them in sum.
//! - `hedge`: a second attempt beside a slow first one.
//! - `adaptive`: a limit that follows latency.
//! - `load_balancing`, `outlier`: which endpoint gets an attempt, and which is left out.
//! - `random`, `batched_counter`: what they use.

use std::time::Duration;

pub(crate) mod adaptive;
pub(crate) mod batched_counter;
pub(crate) mod breaker;
pub(crate) mod hedge;
pub(crate) mod load_balancing;
pub(crate) mod outlier;
pub(crate) mod random;
pub(crate) mod retry;
pub(crate) mod retry_budget;

use adaptive::AdaptiveLimit;
use fanin_config::{Breaker, Hedge, Retry};

/// The policies of an upstream, as configured.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Policies {
    pub retry: Option<Retry>,
    pub hedge: Option<Hedge>,
    pub breaker: Option<Breaker>,
    /// Replaces the fixed limit.
    pub adaptive: Option<AdaptiveLimit>,
    pub ejection: bool,
    pub attempt_timeout: Option<Duration>,
    pub chunk_timeout: Option<Duration>,
}

impl From<&fanin_config::Upstream> for Policies {
    fn from(config: &fanin_config::Upstream) -> Policies {
        Policies {
            retry: config.retry.clone(),
            hedge: config.hedge,
            breaker: config.breaker.clone(),
            adaptive: AdaptiveLimit::of(config.limit),
            ejection: config.ejection,
            attempt_timeout: config.attempt_timeout,
            chunk_timeout: config.chunk_timeout,
        }
    }
}
