//! What stands between a call and the transport, outermost first: breaker, retry, hedge, limit with bounded waiting, choice
//! of the endpoint. One file each; [`crate::upstream`] puts them together.

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

/// How the calls of an upstream are protected, and the rest of the process from them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Policies {
    pub retry: Option<Retry>,
    pub hedge: Option<Hedge>,
    pub breaker: Option<Breaker>,
    /// In place of the fixed limit.
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
