//! Repository reconciler: the thread that brings the loaded versions in line with the folder.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use fanin_config::{ModelSettings, Versions};
use tokio::sync::oneshot;

use super::model::Model;
use super::scan::{self, Fingerprint, Found};
use super::shared::{Shared, Table};
use super::version::Version;
use crate::InferError;
use crate::pool::QueueSettings;

/// Interval of the scans. Polling, because mounted or linked folders report no changes.
const SCAN_INTERVAL: Duration = Duration::from_millis(500);

/// A command to the reconciler.
#[derive(Debug)]
pub(crate) enum Command {
    /// Scan the folder.
    Scan,
    /// Scan the folder and report when that is done.
    Refresh(oneshot::Sender<()>),
    /// Load a model, even one that was unloaded or refused.
    Load(String, oneshot::Sender<Result<(), InferError>>),
    /// Unload a model.
    Unload(String, oneshot::Sender<Result<(), InferError>>),
    /// End.
    End,
}

/// Niceness of the thread: serving threads go first on a busy core.
const NICE: i32 = 10;

struct Reconciler {
    shared: Arc<Shared>,
    /// Models that were unloaded by name.
    unloaded: BTreeSet<Arc<str>>,
    /// Files that the last scan saw and did not load yet. They are loaded once two scans saw them unchanged.
    seen: BTreeMap<(Arc<str>, u64), Fingerprint>,
    /// The folder could not be read at the last scan. Logged once.
    lost: bool,
}

/// Does the first scan, then starts the thread.
pub(super) fn start(shared: Arc<Shared>, commands: Receiver<Command>) -> io::Result<()> {
    let mut reconciler = Reconciler { shared, unloaded: BTreeSet::new(), seen: BTreeMap::new(), lost: false };
    reconciler.scan(true);
    let run = move || {
        // Loading a model takes seconds of a core, and requests come first. Linux applies niceness per thread; a failure is
        // harmless.
        let _ = rustix::process::nice(NICE);
        reconciler.run(&commands);
    };
    std::thread::Builder::new().name("models".into()).spawn(run)?;
    Ok(())
}

impl Reconciler {
    fn run(mut self, commands: &Receiver<Command>) {
        loop {
            match commands.recv_timeout(SCAN_INTERVAL) {
                Err(RecvTimeoutError::Timeout) | Ok(Command::Scan) => self.scan(false),
                Ok(Command::Refresh(reply)) => {
                    self.scan(true);
                    // The caller may have dropped its future.
                    let _ = reply.send(());
                }
                Ok(Command::Load(name, reply)) => {
                    let result = self.load(&name);
                    let _ = reply.send(result);
                }
                Ok(Command::Unload(name, reply)) => {
                    let result = self.unload(&name);
                    let _ = reply.send(result);
                }
                Ok(Command::End) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Looks at all models. `at_once`: what is new is loaded now, not when a second look sees it unchanged.
    fn scan(&mut self, at_once: bool) {
        let config = self.shared.config.load_full();
        let found = match scan::models(&config.repository) {
            Ok(found) => found,
            Err(error) => {
                // What runs serves on: a mount that is gone for a moment must not unload everything.
                if !std::mem::replace(&mut self.lost, true) {
                    tracing::error!("models: {error}; loaded versions keep serving");
                }
                return;
            }
        };
        self.lost = false;
        let before = self.shared.table.load_full();
        let mut table = Table::default();
        for (name, path) in &found {
            let model = match before.get(name.as_str()) {
                Some(model) => model.clone(),
                None => self.new_model(name),
            };
            self.shared.pool.configure(model.queue, queue_settings(&config.settings_of(name)));
            self.update(&model, path, at_once);
            table.insert(model.name.clone(), model);
        }
        for (name, model) in &*before {
            if !table.contains_key(name) {
                tracing::info!("model {name}: its folder is gone; unloaded");
                model.ready.store(Arc::default());
                self.unloaded.remove(name);
                self.shared.pool.remove(model.queue);
            }
        }
        if !same_models(&before, &table) {
            self.shared.table.store(Arc::new(table));
        }
    }

    fn new_model(&self, name: &str) -> Arc<Model> {
        let settings = self.shared.config.load().settings_of(name);
        Arc::new(Model {
            name: name.into(),
            ready: ArcSwap::default(),
            failed: Mutex::default(),
            queue: self.shared.pool.add(queue_settings(&settings)),
        })
    }

    /// Brings one model's versions in line with the folder and the version policy.
    fn update(&mut self, model: &Arc<Model>, path: &Path, at_once: bool) {
        if self.unloaded.contains(&model.name) {
            return;
        }
        let found = match scan::versions(path) {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!("model {}: {error}; loaded versions keep serving", model.name);
                return;
            }
        };
        let config = self.shared.config.load_full();
        let settings = config.settings_of(&model.name);
        let policy = settings.versions.as_ref().unwrap_or(&config.versions);
        let (wanted, most): (Vec<&Found>, usize) = match policy {
            Versions::Latest(count) => (found.iter().collect(), *count),
            Versions::These(these) => {
                (found.iter().filter(|found| these.contains(&found.number)).collect(), usize::MAX)
            }
        };
        let before = model.ready.load_full();
        let mut ready: Vec<Arc<Version>> = Vec::new();
        let mut failed = BTreeMap::new();
        let mut undecided = false;
        if let Versions::These(these) = policy {
            for number in these.iter().filter(|number| !found.iter().any(|found| found.number == **number)) {
                failed.insert(*number, (Fingerprint::default(), "it is pinned, but not in the folder".to_owned()));
            }
        }
        for found in wanted {
            if ready.len() >= most {
                break;
            }
            let running = before.iter().find(|version| version.number == found.number);
            if let Some(running) = running
                && running.fingerprint == found.fingerprint
            {
                ready.push(running.clone());
                continue;
            }
            let known = self.known_failure(model, found);
            let key = (model.name.clone(), found.number);
            let settled = at_once || self.seen.get(&key) == Some(&found.fingerprint);
            let outcome = match known {
                Some(why) => Err(why),
                None if !settled => {
                    self.seen.insert(key, found.fingerprint.clone());
                    undecided = true;
                    // Not decided yet: the running version stays, and so do those below it.
                    if let Some(running) = running {
                        ready.push(running.clone());
                    }
                    continue;
                }
                None => {
                    self.seen.remove(&key);
                    self.try_version(model, found, before.first())
                }
            };
            match outcome {
                Ok(version) => ready.push(version),
                Err(why) => {
                    failed.insert(found.number, (found.fingerprint.clone(), why));
                    if let Some(running) = running {
                        ready.push(running.clone());
                    }
                }
            }
        }
        if ready.is_empty() && undecided {
            // The last running version is gone from the folder. It serves until its successor is decided.
            ready.extend(before.iter().cloned());
        }
        // The map is replaced as a whole.
        *model.failed.lock().unwrap_or_else(PoisonError::into_inner) = failed;
        let same = before.len() == ready.len() && before.iter().zip(&ready).all(|(a, b)| Arc::ptr_eq(a, b));
        if !same {
            for gone in before.iter().filter(|version| !ready.iter().any(|other| Arc::ptr_eq(version, other))) {
                tracing::info!("model {} version {}: no longer served", model.name, gone.number);
            }
            model.ready.store(Arc::new(ready));
        }
    }

    fn known_failure(&self, model: &Model, found: &Found) -> Option<String> {
        let failed = model.failed.lock().unwrap_or_else(PoisonError::into_inner);
        let (fingerprint, why) = failed.get(&found.number)?;
        (*fingerprint == found.fingerprint).then(|| why.clone())
    }

    fn try_version(
        &self,
        model: &Arc<Model>,
        found: &Found,
        running: Option<&Arc<Version>>,
    ) -> Result<Arc<Version>, String> {
        let signature = running.map(|running| running.engine.signature().clone());
        // Unwind safe: nothing is shared with a failed load. The reconciler must survive a panic of an engine.
        let load = || super::load::load(&self.shared, &model.name, found, signature.as_ref());
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(load));
        match result {
            Ok(Ok(version)) => {
                let (kib, us) =
                    (version.memory / 1024, version.time_per_row.load(std::sync::atomic::Ordering::Relaxed) / 1000);
                tracing::info!("model {} version {}: ready, {kib} KiB, about {us} us a row", model.name, found.number);
                Ok(Arc::new(version))
            }
            Ok(Err(error)) => Err(self.refuse(model, found, error.to_string())),
            Err(_) => Err(self.refuse(model, found, "the engine panicked while it was loaded".to_owned())),
        }
    }

    fn refuse(&self, model: &Model, found: &Found, why: String) -> String {
        self.shared.refused.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        tracing::error!("model {} version {}: refused: {why}", model.name, found.number);
        why
    }

    fn load(&mut self, name: &str) -> Result<(), InferError> {
        self.unloaded.remove(name);
        if let Some(model) = self.shared.table.load().get(name) {
            // A refused version is tried again, even if its files did not change.
            model.failed.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
        self.scan(true);
        let table = self.shared.table.load();
        let Some(model) = table.get(name) else {
            return Err(InferError::NotFound(format!("there is no model `{name}` in the repository")));
        };
        let failed = model.failed();
        let newest = model.ready.load().first().map(|version| version.number);
        match failed.iter().max_by_key(|(version, _)| *version) {
            Some((version, why)) if newest.is_none_or(|newest| newest <= *version) => {
                Err(InferError::Unavailable(format!("model `{name}` version {version}: {why}")))
            }
            _ if newest.is_none() => Err(InferError::NotFound(format!("model `{name}` has no versions"))),
            _ => Ok(()),
        }
    }

    fn unload(&mut self, name: &str) -> Result<(), InferError> {
        let table = self.shared.table.load();
        let Some(model) = table.get(name) else {
            return Err(InferError::NotFound(format!("there is no model `{name}`")));
        };
        self.unloaded.insert(model.name.clone());
        model.ready.store(Arc::default());
        model.failed.lock().unwrap_or_else(PoisonError::into_inner).clear();
        tracing::info!("model {name}: unloaded by request");
        Ok(())
    }
}

fn same_models(before: &Table, after: &Table) -> bool {
    before.len() == after.len()
        && after.iter().all(|(name, model)| before.get(name).is_some_and(|other| Arc::ptr_eq(model, other)))
}

/// Settings of a model's queue in the pool.
fn queue_settings(settings: &ModelSettings) -> QueueSettings {
    QueueSettings {
        priority: settings.priority,
        limit: settings.limit,
        max_batch: settings.max_batch.unwrap_or(1),
        max_delay: settings.max_delay.unwrap_or(Duration::ZERO),
    }
}
