//! Settings of an operation. What an operation does not set is as for its upstream.

use std::sync::Arc;
use std::time::Duration;

use fanin_config::{Hedge, Operation, Retry};

use crate::limiter::Limiter;
use crate::policy::hedge::Latencies;

/// The settings of calls of one operation, or of calls without an operation.
#[derive(Debug)]
pub(crate) struct CallOptions {
    pub retry: Option<Retry>,
    pub hedge: Option<Hedge>,
    /// For an operation with a hedge at a percentile of its own latencies.
    pub latencies: Option<Latencies>,
    pub attempt_timeout: Option<Duration>,
    pub chunk_timeout: Option<Duration>,
    pub max_answer: usize,
    pub max_stream: usize,
    pub stream_idle_timeout: Duration,
    /// Counts calls. The upstream's limit counts attempts.
    pub limit: Option<Arc<Limiter>>,
}

/// The settings of an upstream's calls: of those without an operation, and of each operation and statement in the
/// configuration's order.
#[derive(Debug)]
pub(crate) struct CallOptionsTable {
    general: CallOptions,
    operations: Vec<(String, CallOptions)>,
}

impl CallOptionsTable {
    /// Limiters of operations are taken over from `before`, with the calls that they count.
    pub fn new(config: &fanin_config::Upstream, before: Option<&CallOptionsTable>) -> CallOptionsTable {
        let general = CallOptions {
            retry: config.retry.clone(),
            hedge: config.hedge,
            latencies: None,
            attempt_timeout: config.attempt_timeout,
            chunk_timeout: config.chunk_timeout,
            max_answer: config.max_answer,
            max_stream: config.max_stream,
            stream_idle_timeout: config.stream_idle_timeout,
            limit: None,
        };
        let operation = |(name, operation): (String, Operation)| {
            let old = before.and_then(|before| before.operations.iter().find(|(other, _)| *other == name));
            let limit = operation.limit.map(|max| match old.and_then(|(_, options)| options.limit.clone()) {
                // Its bounds change on activation.
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
                max_stream: operation.max_stream.unwrap_or(config.max_stream),
                stream_idle_timeout: operation.stream_idle_timeout.unwrap_or(config.stream_idle_timeout),
                limit,
            };
            (name, options)
        };
        CallOptionsTable { general, operations: config.named_calls().into_iter().map(operation).collect() }
    }

    /// The settings of the operation with this index, or of calls without an operation.
    #[inline]
    pub fn of(&self, operation: Option<u32>) -> &CallOptions {
        match operation {
            None => &self.general,
            Some(at) => self.operations.get(at as usize).map_or(&self.general, |(_, options)| options),
        }
    }

    /// Makes the limits of this configuration apply.
    pub fn activate(&self, config: &fanin_config::Upstream) {
        // Statements come after the operations and have no limits of their own.
        for ((_, operation), (_, options)) in config.operations.iter().zip(&self.operations) {
            if let (Some(max), Some(limit)) = (operation.limit, &options.limit) {
                limit.resize(max, operation.max_waiting.unwrap_or(config.max_waiting));
            }
        }
    }
}
