//! What calls of an operation share: single-flight, caches of answers and items, snapshots.
//!
//! Everything here is process-wide. Shared work belongs to no single request. It has a timeout of its own, outlives the
//! request that started it, and ends when nobody waits for it any more.
//!
//! - `request_key`: what makes two calls identical.
//! - `parsed_answer`, `item`: the values that are shared.
//! - `single_flight`: one request for identical concurrent calls.
//! - `members`: which calls share a request.
//! - `cache`, `item_cache`, `lifetime`: cached answers, cached items of batched operations, and how long either is kept.
//! - `snapshot`, `snapshot_table`, `snapshot_file`: whole tables kept in memory, and their dump on disk.
//! - `operation`, `operation_metrics`: an operation's shared state and its counters.

mod cache;
mod headers_size;
mod item;
mod item_cache;
mod lifetime;
mod members;
mod operation;
mod operation_metrics;
mod parsed_answer;
mod request_key;
mod single_flight;
mod snapshot;
mod snapshot_file;
mod snapshot_table;

pub use cache::{Cache, CacheLookup};
pub use item::Item;
pub use item_cache::{CachedItem, Fields, ItemCache, ItemKey, ItemLookup, RefreshClaim};
pub use members::{Member, Members};
pub use operation::OperationShared;
pub use operation_metrics::{OperationMetrics, Sizes};
pub use parsed_answer::{Body, ParsedAnswer};
pub use request_key::{KeyParts, RequestKey};
pub use single_flight::{FlightRole, Follower, Leader, SharedResult, SingleFlight};
pub use snapshot::{Snapshot, SnapshotMetrics};
pub use snapshot_table::SnapshotTable;
