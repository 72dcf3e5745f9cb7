//! What an operation may have of its own: what is not said for it is as for the upstream.

use std::sync::Arc;
use std::time::Duration;

use fanin_config::{Hedge, Operation, Retry};

use crate::limiter::Limiter;
use crate::policy::hedge::Latencies;

/// How calls of one operation are treated, or those of none.
#[derive(Debug)]
pub(crate) struct CallOptions {
    pub retry: Option<Retry>,
    pub hedge: Option<Hedge>,
    /// Where the operation's hedge needs a percentile of its own answers.
    pub latencies: Option<Latencies>,
    pub attempt_timeout: Option<Duration>,
    pub chunk_timeout: Option<Duration>,
    pub max_answer: usize,
    /// Counts calls, whatever a call sends; the upstream's counts what is sent.
    pub limit: Option<Arc<Limiter>>,
}

/// The options of an upstream's calls: in general, and of its operations or statements in the configuration's order.
#[derive(Debug)]
pub(crate) struct CallOptionsTable {
    general: CallOptions,
    operations: Vec<(String, CallOptions)>,
}

impl CallOptionsTable {
    /// Limits of operations are taken over from `before`, with the calls that they count.
    pub fn new(config: &fanin_config::Upstream, before: Option<&CallOptionsTable>) -> CallOptionsTable {
        let general = CallOptions {
            retry: config.retry.clone(),
            hedge: config.hedge,
            latencies: None,
            attempt_timeout: config.attempt_timeout,
            chunk_timeout: config.chunk_timeout,
            max_answer: config.max_answer,
            limit: None,
        };
        let operation = |(name, operation): (String, Operation)| {
            let old = before.and_then(|before| before.operations.iter().find(|(other, _)| *other == name));
            let limit = operation.limit.map(|max| match old.and_then(|(_, options)| options.limit.clone()) {
                // Its bounds change when the upstream is adopted.
                Some(limit) => limit,
                None => Arc::new(Limiter::new(max, operation.max_waiting.unwrap_or(config.max_waiting))),
            });
            let hedge = operation.hedge.unwrap_or(config.hedge);
            let own_percentile = matches!(operation.hedge, Some(Some(Hedge::Percentile(_))));
            let options = CallOptions {
                retry: operation.retry.clone().unwrap_or_else(|| config.retry.clone()),
                hedge,
                latencies: own_percentile.then(Latencies::new),
                attempt_timeout: operation.attempt_timeout.or(config.attempt_timeout),
                chunk_timeout: operation.chunk_timeout.or(config.chunk_timeout),
                max_answer: operation.max_answer.unwrap_or(config.max_answer),
                limit,
            };
            (name, options)
        };
        CallOptionsTable { general, operations: config.named_calls().into_iter().map(operation).collect() }
    }

    /// Of the operation at this place, or of a call that is none.
    #[inline]
    pub fn of(&self, operation: Option<u32>) -> &CallOptions {
        match operation {
            None => &self.general,
            Some(at) => self.operations.get(at as usize).map_or(&self.general, |(_, options)| options),
        }
    }

    /// From now on the bounds of this configuration hold.
    pub fn activate(&self, config: &fanin_config::Upstream) {
        // Statements, which come after operations, have no limits of their own.
        for ((_, operation), (_, options)) in config.operations.iter().zip(&self.operations) {
            if let (Some(max), Some(limit)) = (operation.limit, &options.limit) {
                limit.resize(max, operation.max_waiting.unwrap_or(config.max_waiting));
            }
        }
    }
}
