//! The repository: a folder of models and versions, kept in memory as a table that readers see whole.
//!
//! One thread (the keeper) looks at the folder a few times a second, loads what is new beside what runs, and puts the new
//! table in place in one store. Requests take a version once and keep it to their end, so that every answer is of exactly
//! one version; a version's memory is given back when its last request has ended.

mod ask;
mod keeper;
mod load;
mod look;
mod scan;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use fanin_config::ModelSettings;
use rustc_hash::FxHashMap;
use tokio::sync::oneshot;

use crate::engine::Engine;
use crate::pool::{LaneSettings, Pool};
use crate::stats::Stats;
use crate::{InferError, LoadError};

pub use ask::{Answer, Infer};
pub(crate) use keeper::Command;
pub use look::look;

/// A loaded version of a model.
pub struct Version {
    model: Arc<str>,
    number: u64,
    /// The number as the protocol writes it.
    text: Arc<str>,
    engine: Box<dyn Engine>,
    /// Files that it was loaded from.
    fingerprint: scan::Fingerprint,
    stats: Stats,
    /// Expected nanoseconds a row.
    pace: AtomicU64,
    memory: usize,
    /// What all versions hold together; this one's share is given back when it is dropped.
    total: Arc<AtomicUsize>,
}

impl Drop for Version {
    fn drop(&mut self) {
        self.total.fetch_sub(self.memory, Relaxed);
    }
}

impl std::fmt::Debug for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "model {} version {}", self.model, self.number)
    }
}

impl Version {
    /// The model's name.
    pub fn model(&self) -> &Arc<str> {
        &self.model
    }

    /// The version's number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The version's number, as the protocol writes it.
    pub fn text(&self) -> &Arc<str> {
        &self.text
    }

    /// What computes it.
    pub fn engine(&self) -> &dyn Engine {
        &*self.engine
    }

    /// Bytes that it holds.
    pub fn memory(&self) -> usize {
        self.memory
    }

    /// What it has done.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    #[cfg(test)]
    pub(crate) fn for_test(model: &str, engine: Box<dyn Engine>) -> Version {
        Version {
            model: model.into(),
            number: 1,
            text: "1".into(),
            engine,
            fingerprint: scan::Fingerprint::default(),
            stats: Stats::default(),
            pace: AtomicU64::new(1),
            memory: 0,
            total: Arc::default(),
        }
    }

    /// Expected time of so many rows.
    pub(crate) fn predict(&self, rows: usize) -> u64 {
        self.pace.load(Relaxed).saturating_mul(rows.max(1) as u64)
    }

    /// Takes a measured time into the expectation. One that was interrupted counts at most four times as expected.
    pub(crate) fn observe(&self, rows: usize, took: Duration) {
        let took = (took.as_nanos() as u64 / rows.max(1) as u64).max(1);
        let before = self.pace.load(Relaxed);
        let took = took.min(before.saturating_mul(4));
        self.pace.store((before.saturating_mul(7) + took).div_ceil(8), Relaxed);
    }
}

/// A model: its versions that are ready, and why others are not.
pub struct Model {
    name: Arc<str>,
    /// Ready versions, the highest first.
    ready: ArcSwap<Vec<Arc<Version>>>,
    /// Why a version is not ready.
    failed: Mutex<BTreeMap<u64, (scan::Fingerprint, String)>>,
    lane: usize,
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "model {}", self.name)
    }
}

impl Model {
    /// The model's name.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Ready versions, the highest first.
    pub fn ready(&self) -> Arc<Vec<Arc<Version>>> {
        self.ready.load_full()
    }

    /// Versions that could not be loaded, with the reasons.
    pub fn failed(&self) -> Vec<(u64, String)> {
        // The map is changed by single insertions, which leave it whole.
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.iter().map(|(version, (_, why))| (*version, why.clone())).collect()
    }
}

/// One entry of the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Indexed {
    /// The model's name.
    pub model: Arc<str>,
    /// The version's number, empty for a model without any.
    pub version: String,
    /// Whether it answers.
    pub ready: bool,
    /// Why it does not.
    pub reason: String,
}

/// See the configuration's keys of these names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub limit: usize,
    pub max_message: usize,
    pub max_in_progress: usize,
    pub timeout: Duration,
}

type Table = FxHashMap<Arc<str>, Arc<Model>>;

/// What readers, keeper and pool share.
pub(crate) struct Shared {
    pub(crate) config: ArcSwap<fanin_config::Models>,
    pub(crate) table: ArcSwap<Table>,
    pub(crate) pool: Pool,
    /// Bytes that all versions hold.
    pub(crate) memory: Arc<AtomicUsize>,
    /// Versions that were refused since the start.
    pub(crate) refused: AtomicU64,
    pub(crate) outcomes: crate::stats::Outcomes,
}

/// Models in this process. Cheap to clone; the last one that goes ends the keeper and the pool's threads.
#[derive(Clone)]
pub struct Models {
    shared: Arc<Shared>,
    keeper: Arc<Keeper>,
}

struct Keeper {
    commands: mpsc::Sender<Command>,
    shared: Arc<Shared>,
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // It may have ended by a panic; then there is nobody to tell.
        let _ = self.commands.send(Command::End);
        self.shared.pool.stop();
    }
}

impl std::fmt::Debug for Models {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Models").field(&self.shared.table.load().keys().collect::<Vec<_>>()).finish()
    }
}

impl Models {
    /// Loads what the repository has, and keeps watching it. A version that cannot be loaded is logged and told in the
    /// index; it does not keep the others from serving.
    ///
    /// # Errors
    /// The repository's folder cannot be read, or a thread cannot be made.
    pub fn start(config: &fanin_config::Models) -> Result<Models, LoadError> {
        scan::models(&config.repository)?;
        let threads = match config.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            threads => threads,
        };
        let thread = |source| LoadError::Read { path: "a thread".into(), source };
        let shared = Arc::new(Shared {
            config: ArcSwap::from_pointee(config.clone()),
            table: ArcSwap::default(),
            pool: Pool::start(threads, config.max_waiting).map_err(thread)?,
            memory: Arc::default(),
            refused: AtomicU64::new(0),
            outcomes: crate::stats::Outcomes::default(),
        });
        let (commands, received) = mpsc::channel();
        keeper::start(shared.clone(), received).map_err(thread)?;
        let keeper = Arc::new(Keeper { commands, shared: shared.clone() });
        Ok(Models { shared, keeper })
    }

    /// Takes over a changed configuration. `threads`, `listen` and what belongs to the listeners stay as they were.
    pub fn configure(&self, config: &fanin_config::Models) {
        self.shared.config.store(Arc::new(config.clone()));
        self.shared.pool.set_max_waiting(config.max_waiting);
        // As above: without a keeper nothing is watched any more.
        let _ = self.keeper.commands.send(Command::Look);
    }

    /// The configuration in force.
    pub fn config(&self) -> Arc<fanin_config::Models> {
        self.shared.config.load_full()
    }

    /// What bounds a request from outside. A copy, for the configuration may change while the request is there.
    pub(crate) fn bounds(&self) -> Bounds {
        let config = self.shared.config.load();
        Bounds {
            limit: config.limit,
            max_message: config.max_message,
            max_in_progress: config.max_in_progress,
            timeout: config.timeout,
        }
    }

    /// The model of this name.
    pub fn get(&self, name: &str) -> Option<Arc<Model>> {
        self.shared.table.load().get(name).cloned()
    }

    /// All models, by name.
    pub fn all(&self) -> Vec<Arc<Model>> {
        let mut all: Vec<_> = self.shared.table.load().values().cloned().collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// Whether every model has a version that is ready.
    pub fn is_ready(&self) -> bool {
        self.shared.table.load().values().all(|model| !model.ready.load().is_empty())
    }

    /// Bytes that all loaded versions hold.
    pub fn memory(&self) -> usize {
        self.shared.memory.load(Relaxed)
    }

    /// Requests that wait for a thread.
    pub fn waiting(&self) -> usize {
        self.shared.pool.waiting()
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// All versions with their states.
    pub fn index(&self) -> Vec<Indexed> {
        let mut all = Vec::new();
        for model in self.all() {
            let entry = |version: String, ready, reason| Indexed { model: model.name.clone(), version, ready, reason };
            let ready = model.ready();
            let start = all.len();
            all.extend(ready.iter().map(|version| entry(version.text.to_string(), true, String::new())));
            for (version, why) in model.failed() {
                // The files were replaced by broken ones; what was loaded before serves on.
                match ready.iter().position(|ready| ready.number == version) {
                    Some(at) => all[start + at].reason = why,
                    None => all.push(entry(version.to_string(), false, why)),
                }
            }
            if all.len() == start {
                all.push(entry(String::new(), false, "unloaded".to_owned()));
            }
        }
        all
    }

    /// Loads a model, or loads it again after it was unloaded or refused.
    ///
    /// # Errors
    /// There is no such model, or no version of it could be loaded, or the newest could not.
    pub async fn load(&self, name: &str) -> Result<(), InferError> {
        self.command(|reply| Command::Load(name.to_owned(), reply)).await
    }

    /// Unloads all versions of a model, until it is loaded by [`Models::load`].
    ///
    /// # Errors
    /// There is no such model.
    pub async fn unload(&self, name: &str) -> Result<(), InferError> {
        self.command(|reply| Command::Unload(name.to_owned(), reply)).await
    }

    async fn command(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<(), InferError>>) -> Command,
    ) -> Result<(), InferError> {
        let (reply, answer) = oneshot::channel();
        let gone = || InferError::Unavailable("the repository is no longer kept".to_owned());
        self.keeper.commands.send(command(reply)).map_err(|_| gone())?;
        answer.await.unwrap_or_else(|_| Err(gone()))
    }

    /// Looks at the folder now, and ends when that has been done.
    pub async fn refresh(&self) {
        let (reply, answer) = oneshot::channel();
        if self.keeper.commands.send(Command::Refresh(reply)).is_ok() {
            // It ends without a word only if the keeper does.
            let _ = answer.await;
        }
    }

    /// The version that a request is for.
    ///
    /// # Errors
    /// [`InferError::NotFound`] or [`InferError::Unavailable`].
    pub fn find(&self, name: &str, version: &str) -> Result<(Arc<Model>, Arc<Version>), InferError> {
        let table = self.shared.table.load();
        let Some(model) = table.get(name) else {
            return Err(InferError::NotFound(format!("there is no model `{name}`")));
        };
        let ready = model.ready.load();
        let found = if version.is_empty() {
            ready.first()
        } else {
            let Ok(number) = version.parse::<u64>() else {
                return Err(InferError::Invalid(format!("version `{version}` of model `{name}` is no number")));
            };
            ready.iter().find(|version| version.number == number)
        };
        match found {
            Some(found) => Ok((model.clone(), found.clone())),
            None => Err(self.not_ready(model, version)),
        }
    }

    #[cold]
    fn not_ready(&self, model: &Model, version: &str) -> InferError {
        let name = &model.name;
        let failed = model.failed();
        if version.is_empty() {
            let why: Vec<_> = failed.iter().map(|(version, why)| format!("version {version}: {why}")).collect();
            let why = if why.is_empty() { "it is unloaded".to_owned() } else { why.join("; ") };
            return InferError::Unavailable(format!("model `{name}` has no version that is ready: {why}"));
        }
        match failed.iter().find(|(number, _)| number.to_string() == version) {
            Some((_, why)) => {
                InferError::Unavailable(format!("version {version} of model `{name}` is not ready: {why}"))
            }
            None => InferError::NotFound(format!("model `{name}` has no version {version} loaded")),
        }
    }
}

/// A model's lane in the pool.
fn lane_settings(settings: &ModelSettings) -> LaneSettings {
    LaneSettings {
        priority: settings.priority,
        limit: settings.limit,
        max_batch: settings.max_batch.unwrap_or(1),
        max_delay: settings.max_delay.unwrap_or(Duration::ZERO),
    }
}

/// Milliseconds since 1970.
pub(crate) fn wall_clock() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
