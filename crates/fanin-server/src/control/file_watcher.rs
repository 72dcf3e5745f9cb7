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

/// What is watched. Folders are, not their files, so that a file may be replaced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Watched {
    /// With all below it.
    folder: Option<PathBuf>,
    /// Files elsewhere.
    files: Vec<PathBuf>,
}

impl Watched {
    pub(super) fn new(folder: PathBuf, files: &[PathBuf]) -> Watched {
        let canonical = folder.canonicalize();
        // The folder is resolved and the file is not: links to files are replaced, as by certbot.
        let resolve = |file: &PathBuf| Some(file.parent()?.canonicalize().ok()?.join(file.file_name()?));
        let is_elsewhere = |file: &PathBuf| canonical.as_ref().is_ok_and(|folder| !file.starts_with(folder));
        let mut files: Vec<PathBuf> = files.iter().filter_map(resolve).filter(is_elsewhere).collect();
        files.sort();
        files.dedup();
        Watched { folder: Some(folder), files }
    }

    /// The folders of the files.
    fn folders(&self) -> Vec<PathBuf> {
        let mut folders: Vec<PathBuf> = self.files.iter().filter_map(|file| Some(file.parent()?.to_owned())).collect();
        folders.dedup();
        folders
    }
}

/// Notices changes of what is watched.
pub(super) struct FileChanges<L> {
    loader: Arc<L>,
    watched: Watched,
    watcher: Option<RecommendedWatcher>,
    sender: mpsc::Sender<()>,
    receiver: mpsc::Receiver<()>,
}

impl<L: Loader> FileChanges<L> {
    pub(super) fn new(loader: Arc<L>) -> FileChanges<L> {
        // One pending change is enough.
        let (sender, receiver) = mpsc::channel(1);
        FileChanges { loader, watched: Watched::default(), watcher: None, sender, receiver }
    }

    /// Watches this instead.
    pub(super) fn set(&mut self, watched: Watched) {
        if self.watched == watched {
            return;
        }
        self.watcher = watched.folder.as_ref().and_then(|folder| match self.watch(folder, &watched) {
            Ok(watcher) => Some(watcher),
            Err(error) => {
                tracing::warn!(%error, "cannot watch {} for changes; SIGHUP reloads", folder.display());
                None
            }
        });
        self.watched = watched;
    }

    fn watch(&self, folder: &Path, watched: &Watched) -> notify::Result<RecommendedWatcher> {
        let (loader, sender) = (self.loader.clone(), self.sender.clone());
        let (files, folders) = (watched.files.clone(), watched.folders());
        let is_of_files = move |path: &PathBuf| {
            let is_in = path.parent().is_some_and(|parent| folders.iter().any(|folder| folder == parent));
            // Kubernetes replaces a link beside them.
            let is_link = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("..data"));
            is_in.then(|| is_link || files.contains(path))
        };
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            let concerns = |path: &PathBuf| is_of_files(path).unwrap_or_else(|| loader.concerns(path));
            let concerns = match event {
                Ok(event) => is_change(event.kind) && event.paths.iter().any(concerns),
                // Events were lost: something may have changed.
                Err(_) => true,
            };
            if concerns {
                // If one is pending already, this one is part of it.
                let _ = sender.try_send(());
            }
        })?;
        watcher.watch(folder, RecursiveMode::Recursive)?;
        for folder in watched.folders() {
            if let Err(error) = watcher.watch(&folder, RecursiveMode::NonRecursive) {
                tracing::warn!(%error, "cannot watch {} for changes; SIGHUP reloads", folder.display());
            }
        }
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
