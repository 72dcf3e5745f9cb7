//! Notices changed files.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::event::{EventKind, ModifyKind};
use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use crate::Loader;

/// A reload waits until nothing has changed for this long: editors and deployments write files in several steps.
const SETTLE_TIME: Duration = Duration::from_millis(150);
/// But it waits no longer than this.
const MAX_WAIT: Duration = Duration::from_secs(2);

/// Watches a folder and all below it. The folder is watched, not its files, so that a file may be replaced.
pub(super) struct FileChanges<L> {
    loader: Arc<L>,
    watched: Option<PathBuf>,
    watcher: Option<RecommendedWatcher>,
    sender: mpsc::Sender<()>,
    receiver: mpsc::Receiver<()>,
}

impl<L: Loader> FileChanges<L> {
    pub(super) fn new(loader: Arc<L>) -> FileChanges<L> {
        // One pending change is enough.
        let (sender, receiver) = mpsc::channel(1);
        FileChanges { loader, watched: None, watcher: None, sender, receiver }
    }

    /// Watches this folder instead, or none.
    pub(super) fn set(&mut self, folder: Option<PathBuf>) {
        if self.watched == folder {
            return;
        }
        self.watcher = folder.as_deref().and_then(|folder| match self.watch(folder) {
            Ok(watcher) => Some(watcher),
            Err(error) => {
                tracing::warn!(%error, "cannot watch {} for changes; SIGHUP reloads", folder.display());
                None
            }
        });
        self.watched = folder;
    }

    fn watch(&self, folder: &Path) -> notify::Result<RecommendedWatcher> {
        let (loader, sender) = (self.loader.clone(), self.sender.clone());
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            let concerns = match event {
                Ok(event) => is_change(event.kind) && event.paths.iter().any(|path| loader.concerns(path)),
                // Events were lost: something may have changed.
                Err(_) => true,
            };
            if concerns {
                // If one is pending already, this one is part of it.
                let _ = sender.try_send(());
            }
        })?;
        watcher.watch(folder, RecursiveMode::Recursive)?;
        Ok(watcher)
    }

    /// Ready when something has changed and has settled.
    pub(super) async fn changed(&mut self) {
        // Never `None`: we hold a sender.
        self.receiver.recv().await;
        let latest = Instant::now() + MAX_WAIT;
        while timeout_at(latest.min(Instant::now() + SETTLE_TIME), self.receiver.recv()).await.is_ok() {}
    }
}

fn is_change(kind: EventKind) -> bool {
    !matches!(kind, EventKind::Access(_) | EventKind::Modify(ModifyKind::Metadata(_)))
}
