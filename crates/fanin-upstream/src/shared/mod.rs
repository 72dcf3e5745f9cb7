//! What identical and similar calls of an operation share: flights, answers, tables.
//!
//! Everything here is process-wide. Work that is shared belongs to nobody's request: it has a time of its own, goes on when
//! the request that started it ends, and ends when nobody waits for it any more.

mod answer;
mod cache;
mod counts;
mod dump;
mod flight;
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
pub use key::SharedKey;
pub use snapshot::{Snapshot, SnapshotCounts};
pub use table::Table;

/// What all calls of one operation share.
pub struct OperationShared {
    /// Its name.
    pub name: Arc<str>,
    /// Its identical calls in flight.
    pub flights: Arc<Flights>,
    /// Its answers, if they are kept.
    pub cache: Option<Cache>,
    /// Its figures.
    pub counts: Arc<Counts>,
}

impl OperationShared {
    pub(crate) fn new(name: &str, config: &Operation, counts: Arc<Counts>) -> OperationShared {
        OperationShared {
            name: name.into(),
            flights: Arc::default(),
            cache: config.cache.as_ref().map(|cache| Cache::new(cache, counts.clone())),
            counts,
        }
    }
}

impl fmt::Debug for OperationShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "operation {}", self.name)
    }
}
