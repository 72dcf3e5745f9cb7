//! What all calls of one operation share, over all workers.

use std::fmt;
use std::sync::Arc;

use fanin_config::Operation;

use super::cache::Cache;
use super::item_cache::ItemCache;
use super::operation_metrics::OperationMetrics;
use super::single_flight::SingleFlight;

/// What all calls of one operation share.
pub struct OperationShared {
    /// Its name.
    pub name: Arc<str>,
    /// Identical calls in flight.
    pub single_flight: Arc<SingleFlight>,
    /// The cache of whole answers, for an operation with `cache` and without `batch`.
    pub cache: Option<Cache>,
    /// The cache of single items, for an operation with `cache` and `batch`.
    pub item_cache: Option<ItemCache>,
    /// Counters and histograms.
    pub metrics: Arc<OperationMetrics>,
}

impl OperationShared {
    pub(crate) fn new(name: &str, config: &Operation, metrics: Arc<OperationMetrics>) -> OperationShared {
        let (cache, item_cache) = match (&config.cache, &config.batch) {
            (None, _) => (None, None),
            (Some(cache), None) => (Some(Cache::new(cache, metrics.clone())), None),
            (Some(cache), Some(batch)) => (None, Some(ItemCache::new(cache, batch, metrics.clone()))),
        };
        OperationShared { name: name.into(), single_flight: Arc::default(), cache, item_cache, metrics }
    }

    /// Entries of its cache and the bytes that they take. `None` without a cache.
    pub(crate) fn cache_size(&self) -> Option<(u64, u64)> {
        let answers = self.cache.as_ref().map(|cache| (cache.len() as u64, cache.bytes()));
        answers.or_else(|| self.item_cache.as_ref().map(|items| (items.len() as u64, items.bytes())))
    }
}

impl fmt::Debug for OperationShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "operation {}", self.name)
    }
}
