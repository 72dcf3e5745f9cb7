//! The public handle of the models: start, look-up, index, load and unload.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, mpsc};

use arc_swap::ArcSwap;
use tokio::sync::oneshot;

use super::model::{Indexed, Model};
use super::reconciler::{self, Command};
use super::scan;
use super::shared::{Bounds, Shared};
use super::version::Version;
use crate::pool::Pool;
use crate::{InferError, LoadError};

/// The models of this process. Cheap to clone; dropping the last clone ends the reconciler and the pool's threads.
#[derive(Clone)]
pub struct Models {
    pub(super) shared: Arc<Shared>,
    reconciler: Arc<ReconcilerHandle>,
}

/// Ends reconciler and pool on drop.
struct ReconcilerHandle {
    commands: mpsc::Sender<Command>,
    shared: Arc<Shared>,
}

impl Drop for ReconcilerHandle {
    fn drop(&mut self) {
        // Sending fails only if the thread has panicked.
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
    /// Loads the models of the repository and keeps them in line with it. A version that cannot be loaded is logged and shown
    /// in the index; the others serve.
    ///
    /// # Errors
    /// The repository's folder cannot be read, or a thread cannot be started.
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
        reconciler::start(shared.clone(), received).map_err(thread)?;
        let reconciler = Arc::new(ReconcilerHandle { commands, shared: shared.clone() });
        Ok(Models { shared, reconciler })
    }

    /// Applies a changed configuration. `threads`, `listen` and the other keys of the listeners need a restart.
    pub fn configure(&self, config: &fanin_config::Models) {
        self.shared.config.store(Arc::new(config.clone()));
        self.shared.pool.set_max_waiting(config.max_waiting);
        // Sending fails only if the thread has panicked.
        let _ = self.reconciler.commands.send(Command::Scan);
    }

    /// The configuration in force.
    pub fn config(&self) -> Arc<fanin_config::Models> {
        self.shared.config.load_full()
    }

    /// Bounds of a request from outside. A copy: the configuration may change during the request.
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

    /// Requests that wait for a thread of the pool.
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
                // Its files were replaced by broken ones. The loaded version keeps serving.
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
        let gone = || InferError::Unavailable("the repository's reconciler has stopped".to_owned());
        self.reconciler.commands.send(command(reply)).map_err(|_| gone())?;
        answer.await.unwrap_or_else(|_| Err(gone()))
    }

    /// Scans the folder now. Completes when that is done.
    pub async fn refresh(&self) {
        let (reply, answer) = oneshot::channel();
        if self.reconciler.commands.send(Command::Refresh(reply)).is_ok() {
            // The reply is dropped only if the reconciler has panicked.
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
                return Err(InferError::Invalid(format!("version `{version}` of model `{name}` is not a number")));
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
