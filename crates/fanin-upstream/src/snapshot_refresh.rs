//! Fetches snapshots in the background. One worker fetches for all; if it ends, another takes over.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::request::{CallContext, Request};
use crate::shared::Snapshot;
use crate::upstream::Upstream;
use crate::upstreams::Upstreams;
use crate::worker::WorkerClient;

/// The pause after the first failure. It doubles with each further one, up to the snapshot's `every`.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

impl WorkerClient {
    /// Fetches the snapshots of these upstreams from this worker, now and at intervals, unless another worker does so. Each
    /// worker calls this when it begins to use the upstreams.
    pub fn refresh_snapshots(self: &Rc<Self>, upstreams: &Upstreams) {
        for upstream in upstreams.iter() {
            if let Some(snapshot) = upstream.snapshot() {
                refresh(snapshot, upstream, self);
            }
        }
    }
}

fn refresh(snapshot: &Arc<Snapshot>, upstream: &Arc<Upstream>, worker: &Rc<WorkerClient>) {
    let Some(snapshot) = snapshot.claim() else { return };
    let (upstream, worker) = (upstream.clone(), Rc::downgrade(worker));
    tokio::task::spawn_local(async move {
        let every = snapshot.config().every;
        let mut failures = 0;
        while !upstream.is_retired() {
            let Some(worker) = worker.upgrade() else { return };
            let fetched = fetch(&snapshot, &upstream, &worker).await;
            drop(worker);
            let pause = match fetched {
                Ok(()) => {
                    failures = 0;
                    every
                }
                Err(problem) => {
                    snapshot.refresh_failed(upstream.name(), problem);
                    failures += 1;
                    FIRST_PAUSE.saturating_mul(1 << (failures - 1).min(16)).min(every)
                }
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = snapshot.retired() => return,
            }
        }
    });
}

async fn fetch(snapshot: &Arc<Snapshot>, upstream: &Arc<Upstream>, worker: &Rc<WorkerClient>) -> Result<(), String> {
    let context = CallContext::new(Instant::now() + upstream.config().timeout).safe();
    let request = Request::get(snapshot.config().path.clone());
    let answer = upstream.call(worker, request, context).await.map_err(|error| error.to_string())?;
    if !answer.is_success() {
        return Err(format!("status {}", answer.status.as_u16()));
    }
    let snapshot = snapshot.clone();
    // Reading and writing a large table takes long, and would block the worker.
    let taken = tokio::task::spawn_blocking(move || snapshot.replace_table(answer.body)).await;
    taken.map_err(|error| format!("internal: {error}"))?
}
