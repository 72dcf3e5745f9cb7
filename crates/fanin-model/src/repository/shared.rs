//! State that requests, reconciler and pool share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::time::Duration;

use arc_swap::ArcSwap;
use rustc_hash::FxHashMap;

use super::model::Model;
use crate::pool::Pool;

/// Bounds of a request from outside; see the configuration keys of these names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub limit: usize,
    pub max_message: usize,
    pub max_in_progress: usize,
    pub timeout: Duration,
}

/// Models by name.
pub(crate) type Table = FxHashMap<Arc<str>, Arc<Model>>;

/// What requests, reconciler and pool share.
pub(crate) struct Shared {
    pub(crate) config: ArcSwap<fanin_config::Models>,
    pub(crate) table: ArcSwap<Table>,
    pub(crate) pool: Pool,
    /// Bytes that all versions hold.
    pub(crate) memory: Arc<AtomicUsize>,
    /// Versions that failed to load since the start.
    pub(crate) refused: AtomicU64,
    pub(crate) outcomes: crate::stats::Outcomes,
}
