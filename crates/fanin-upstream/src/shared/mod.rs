//! What identical and similar calls of an operation share: flights, answers, tables.
//!
//! Everything here is process-wide. Work that is shared belongs to nobody's request: it has a time of its own, goes on when
//! the request that started it ends, and ends when nobody waits for it any more.

mod age;
mod answer;
mod cache;
mod counts;
mod dump;
mod flight;
mod item;
mod items;
mod key;
pub(crate) mod metrics;
mod snapshot;
mod table;

use std::fmt;
use std::sync::Arc;

use fanin_config::Operation;

pub use answer::{Body, Ready};
pub use cache::{Cache, Found};
pub use counts::{Counts, Sizes};
pub use flight::{Flights, Follow, Joined, Lead, Outcome};
pub use item::Item;
pub use items::{Claim, Fields, FoundItem, ItemKey, Items, Said};
pub use key::SharedKey;
pub use snapshot::{Snapshot, SnapshotCounts};
pub use table::Table;

/// What all calls of one operation share.
pub struct OperationShared {
    /// Its name.
    pub name: Arc<str>,
    /// Its identical calls in flight.
    pub flights: Arc<Flights>,
    /// Its answers, if they are kept as a whole.
    pub cache: Option<Cache>,
    /// Its items, if they are kept: of an operation with a batch each by itself.
    pub items: Option<Items>,
    /// Its figures.
    pub counts: Arc<Counts>,
}

impl OperationShared {
    pub(crate) fn new(name: &str, config: &Operation, counts: Arc<Counts>) -> OperationShared {
        let (cache, items) = match (&config.cache, &config.batch) {
            (None, _) => (None, None),
            (Some(cache), None) => (Some(Cache::new(cache, counts.clone())), None),
            (Some(cache), Some(batch)) => (None, Some(Items::new(cache, batch, counts.clone()))),
        };
        OperationShared { name: name.into(), flights: Arc::default(), cache, items, counts }
    }

    /// Entries of its cache and the bytes that they take, if it has one.
    pub(crate) fn kept(&self) -> Option<(u64, u64)> {
        let answers = self.cache.as_ref().map(|cache| (cache.len() as u64, cache.bytes()));
        answers.or_else(|| self.items.as_ref().map(|items| (items.len() as u64, items.bytes())))
    }
}

impl fmt::Debug for OperationShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "operation {}", self.name)
    }
}
