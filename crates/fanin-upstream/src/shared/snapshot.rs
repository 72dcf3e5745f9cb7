//! Snapshots: a whole table, fetched at start and refreshed in the background, for lookups in memory.
//!
//! A failed fetch leaves the table as it is. So does an empty table after one with rows, which is more often a mistake
//! than the truth.

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout_at};

use super::snapshot_table::SnapshotTable;
use super::{OperationMetrics, snapshot_file};
use crate::error::{CallError, ErrorKind, Fault};

/// Counters of a snapshot. They live as long as the process.
#[derive(Debug, Default)]
pub struct SnapshotMetrics {
    /// Fetches whose table was accepted.
    pub fetched: AtomicU64,
    /// Fetches that failed or whose table was refused.
    pub failed: AtomicU64,
}

/// A table that is refreshed in the background.
pub struct Snapshot {
    config: fanin_config::Snapshot,
    table: watch::Sender<Option<Arc<SnapshotTable>>>,
    pub(crate) counts: Arc<SnapshotMetrics>,
    /// A worker refreshes it.
    claimed: AtomicBool,
    /// The upstream is retired.
    retired: Notify,
    /// Why there is no table yet.
    problem: Mutex<Option<String>>,
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "snapshot of {}", self.config.path)
    }
}

impl Snapshot {
    /// Starts with the table of `before` if that is of the same source, or with the dump.
    pub(crate) fn new(
        upstream: &fanin_config::Upstream,
        config: &fanin_config::Snapshot,
        counts: Arc<SnapshotMetrics>,
        before: Option<&Snapshot>,
    ) -> Snapshot {
        let known = before.filter(|before| {
            let (one, other) = (&before.config, config);
            one.path == other.path && one.key == other.key && one.items == other.items
        });
        let mut table = known.and_then(|before| before.table.borrow().clone());
        if table.is_none()
            && let Some(path) = &config.dump
        {
            match snapshot_file::read(path, config, upstream.max_answer) {
                Ok(found) => table = found.map(Arc::new),
                Err(problem) => {
                    tracing::warn!(upstream = upstream.name, "the dump {} is not used: {problem}", path.display());
                }
            }
        }
        Snapshot {
            config: config.clone(),
            table: watch::Sender::new(table),
            counts,
            claimed: AtomicBool::new(false),
            retired: Notify::new(),
            problem: Mutex::default(),
        }
    }

    /// The present table; `None` before the first successful fetch.
    pub fn table(&self) -> Option<Arc<SnapshotTable>> {
        self.table.borrow().clone()
    }

    /// The table. Waits for the first fetch.
    ///
    /// # Errors
    /// If there is no table by `deadline`. The error has the last problem.
    pub async fn wait(&self, upstream: &Arc<str>, deadline: Instant) -> Result<Arc<SnapshotTable>, CallError> {
        let started = Instant::now();
        let mut watched = self.table.subscribe();
        if let Ok(Ok(table)) = timeout_at(deadline, watched.wait_for(Option::is_some)).await
            && let Some(table) = &*table
        {
            return Ok(table.clone());
        }
        let problem = self.problem.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let detail = match problem {
            Some(problem) => format!("the snapshot could not be fetched: {problem}"),
            None => "the snapshot has not been fetched yet".to_owned(),
        };
        Err(CallError {
            upstream: upstream.clone(),
            kind: ErrorKind::Timeout,
            fault: Fault::Upstream,
            retry: true,
            elapsed: started.elapsed(),
            detail: detail.into(),
        })
    }

    pub(crate) fn retire(&self) {
        self.retired.notify_one();
    }

    /// Claims the refreshing for one worker. `None` if another has it. Dropping the claim gives it up.
    pub(crate) fn claim(self: &Arc<Self>) -> Option<RefreshTask> {
        (!self.claimed.swap(true, Relaxed)).then(|| RefreshTask(self.clone()))
    }

    pub(crate) fn config(&self) -> &fanin_config::Snapshot {
        &self.config
    }

    /// Ends when the upstream is retired.
    pub(crate) async fn retired(&self) {
        self.retired.notified().await;
    }

    /// A fetch failed: the table stays as it is.
    pub(crate) fn refresh_failed(&self, upstream: &Arc<str>, problem: String) {
        OperationMetrics::increment(&self.counts.failed);
        let state = if self.table().is_some() { "stays as it is" } else { "is not there yet" };
        tracing::warn!(%upstream, "the snapshot {state}: {problem}");
        *self.problem.lock().unwrap_or_else(PoisonError::into_inner) = Some(problem);
    }

    /// Replaces the table, and writes the dump, which blocks.
    ///
    /// # Errors
    /// Why the new table is refused.
    pub(crate) fn replace_table(&self, body: bytes::Bytes) -> Result<(), String> {
        let table = SnapshotTable::read(body, &self.config, SystemTime::now())?;
        let old = self.table();
        if table.is_empty() && !self.config.allow_empty && old.as_ref().is_some_and(|old| !old.is_empty()) {
            let rows = old.map_or(0, |old| old.len());
            return Err(format!("the new table is empty, the old one has {rows} rows (allow_empty = true accepts it)"));
        }
        let table = Arc::new(table);
        self.table.send_replace(Some(table.clone()));
        OperationMetrics::increment(&self.counts.fetched);
        if let Some(path) = &self.config.dump
            && let Err(error) = snapshot_file::write(path, &self.config, &table)
        {
            tracing::warn!("the snapshot's dump {} cannot be written: {error}", path.display());
        }
        Ok(())
    }
}

/// The right to refresh a snapshot. One worker has it.
#[derive(Debug)]
pub(crate) struct RefreshTask(Arc<Snapshot>);

impl Deref for RefreshTask {
    type Target = Arc<Snapshot>;

    fn deref(&self) -> &Arc<Snapshot> {
        &self.0
    }
}

impl Drop for RefreshTask {
    fn drop(&mut self) {
        self.0.claimed.store(false, Relaxed);
    }
}
