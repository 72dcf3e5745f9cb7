//! Snapshots: a whole table, fetched at the start and again and again, looked up in memory.
//!
//! One worker fetches for all. A failed fetch leaves the table as it is and is tried again soon; so does a table that has shrunk to
//! nothing, which is more often an accident than the truth.

use std::fmt;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout_at};

use super::snapshot_table::SnapshotTable;
use super::{OperationMetrics, snapshot_file};
use crate::error::{CallError, ErrorKind, Fault};
use crate::request::{CallContext, Request};
use crate::upstream::Upstream;
use crate::worker::WorkerClient;

/// The first pause after a failure, doubled for each further one up to the usual time between two fetches.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// Figures of a snapshot, kept as long as the process.
#[derive(Debug, Default)]
pub struct SnapshotMetrics {
    /// Fetches whose table was taken.
    pub fetched: AtomicU64,
    /// Fetches that failed or whose table was refused.
    pub failed: AtomicU64,
}

/// A table that is kept up to date.
pub struct Snapshot {
    config: fanin_config::Snapshot,
    table: watch::Sender<Option<Arc<SnapshotTable>>>,
    pub(crate) counts: Arc<SnapshotMetrics>,
    /// A worker fetches it.
    claimed: AtomicBool,
    /// Tells the worker that the upstream is retired.
    over: Notify,
    /// Why there is no table yet.
    problem: Mutex<Option<String>>,
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "snapshot of {}", self.config.path)
    }
}

impl Snapshot {
    /// The table that `before` had, if that was the same one, or what the dump holds.
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
            over: Notify::new(),
            problem: Mutex::default(),
        }
    }

    /// The table as it is now; `None` until it has been fetched once.
    pub fn table(&self) -> Option<Arc<SnapshotTable>> {
        self.table.borrow().clone()
    }

    /// The table, waiting for the first fetch if need be.
    ///
    /// # Errors
    /// When it has not come by `deadline`; what went wrong so far is told.
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
        self.over.notify_one();
    }

    /// Fetches the table from this worker from now on, unless another does already.
    pub(crate) fn keep(self: &Arc<Self>, upstream: &Arc<Upstream>, worker: &Rc<WorkerClient>) {
        if self.claimed.swap(true, Relaxed) {
            return;
        }
        let claim = RefreshClaim(self.clone());
        let (upstream, worker) = (upstream.clone(), Rc::downgrade(worker));
        tokio::task::spawn_local(async move {
            let snapshot = &claim.0;
            let mut failures = 0;
            while !upstream.is_retired() {
                // The worker ends: another may take it over.
                let Some(worker) = worker.upgrade() else { return };
                let fetched = snapshot.fetch(&upstream, &worker).await;
                drop(worker);
                let pause = match fetched {
                    Ok(()) => {
                        failures = 0;
                        snapshot.config.every
                    }
                    Err(problem) => {
                        OperationMetrics::increment(&snapshot.counts.failed);
                        let kept = if snapshot.table().is_some() { "kept as it is" } else { "not there yet" };
                        tracing::warn!(upstream = %upstream.name(), "the snapshot is {kept}: {problem}");
                        *snapshot.problem.lock().unwrap_or_else(PoisonError::into_inner) = Some(problem);
                        failures += 1;
                        FIRST_PAUSE.saturating_mul(1 << (failures - 1).min(16)).min(snapshot.config.every)
                    }
                };
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = snapshot.over.notified() => return,
                }
            }
        });
    }

    async fn fetch(self: &Arc<Self>, upstream: &Arc<Upstream>, worker: &Rc<WorkerClient>) -> Result<(), String> {
        let context = CallContext::new(Instant::now() + upstream.config().timeout).safe();
        let request = Request::get(self.config.path.clone());
        let answer = upstream.call(worker, request, context).await.map_err(|error| error.to_string())?;
        if !answer.status.is_success() {
            return Err(format!("status {}", answer.status.as_u16()));
        }
        let this = self.clone();
        // A large table takes a while to read and to write, and no worker must be held for it.
        let taken = tokio::task::spawn_blocking(move || this.take(answer.body)).await;
        taken.map_err(|error| format!("internal: {error}"))?
    }

    /// Takes a new table, or says why not.
    fn take(&self, body: bytes::Bytes) -> Result<(), String> {
        let table = SnapshotTable::read(body, &self.config, SystemTime::now())?;
        let old = self.table();
        if table.is_empty() && !self.config.allow_empty && old.as_ref().is_some_and(|old| !old.is_empty()) {
            let rows = old.map_or(0, |old| old.len());
            return Err(format!(
                "the new table is empty, the old one has {rows} rows (allow_empty = true would take it)"
            ));
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

/// Gives the fetching up when its task ends, however it does.
struct RefreshClaim(Arc<Snapshot>);

impl Drop for RefreshClaim {
    fn drop(&mut self) {
        self.0.claimed.store(false, Relaxed);
    }
}
