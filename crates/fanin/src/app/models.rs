//! Models of this process: loaded once, kept across reloads, served on the workers.

use std::cell::OnceCell;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::{Arc, Mutex, Once, PoisonError};

use fanin_config::Diagnostic;
use fanin_model::protocol::{self, Service, Serving};
use fanin_model::{InferError, Models};
use fanin_server::MemoryPressure;
use fanin_upstream::{ModelAnswer, ModelBackend, ModelFailure, ModelFuture, ModelRequest};

thread_local! {
    /// What is served on this worker. A reload keeps it.
    static SERVING: OnceCell<Rc<Serving>> = const { OnceCell::new() };
}

/// Dry-run scan of the model repository for `check`: a folder without a version, a version without a model file, a file that is too large
/// or in an unknown format. Loads nothing. A model that fails to load later leaves its old version in service.
pub fn check_repository(config: &fanin_config::Models, file: &str) -> Vec<Diagnostic> {
    match fanin_model::dry_run(config) {
        Ok(problems) => {
            problems.into_iter().map(|problem| Diagnostic::file(file, format!("models: {problem}")).warning()).collect()
        }
        Err(error) => vec![Diagnostic::file(file, format!("models.repository: {error}"))],
    }
}

/// The models and their listeners.
pub struct ModelService {
    service: Arc<Service>,
    /// The listeners' addresses. Port 0 is replaced by the real port.
    addresses: Vec<SocketAddr>,
    /// Listeners for the first worker. They hold the addresses from the start.
    first: Mutex<Vec<TcpListener>>,
    announced: Once,
}

impl ModelService {
    /// Loads the models and binds the addresses, or keeps those of the generation before.
    ///
    /// # Errors
    /// The repository cannot be read, or an address is taken.
    pub fn load(
        config: &fanin_config::Models,
        file: &str,
        old: Option<&Arc<ModelService>>,
    ) -> Result<Arc<ModelService>, Vec<Diagnostic>> {
        if let Some(old) = old {
            let before = old.service.models().config();
            if before.listen != config.listen || before.threads != config.threads {
                tracing::warn!("models.listen and models.threads are read at the start only");
            }
            return Ok(old.clone());
        }
        let diagnostic = |key: &str, problem: &dyn std::fmt::Display| {
            vec![Diagnostic::file(file, format!("models.{key}: {problem}"))]
        };
        let models = Models::start(config).map_err(|error| diagnostic("repository", &error))?;
        let first = protocol::bind(&config.listen).map_err(|error| diagnostic("listen", &error))?;
        let addresses = first.iter().map(TcpListener::local_addr).collect::<io::Result<Vec<_>>>();
        let addresses = addresses.map_err(|error| diagnostic("listen", &error))?;
        let service = Service::new(models);
        Ok(Arc::new(ModelService { service, addresses, first: Mutex::new(first), announced: Once::new() }))
    }

    /// The models.
    pub fn models(&self) -> &Models {
        self.service.models()
    }

    /// The service, for its metrics.
    pub fn service(&self) -> &Arc<Service> {
        &self.service
    }

    /// Logs which versions are served and which were refused. The first load happens before logging starts.
    fn announce(&self) {
        for model in self.models().all() {
            for version in model.ready().iter() {
                let kib = version.memory() / 1024;
                tracing::info!("model {} version {}: ready, {kib} KiB", model.name(), version.text());
            }
            for (version, why) in model.failed() {
                tracing::error!("model {} version {version}: refused: {why}", model.name());
            }
        }
        for address in &self.addresses {
            tracing::info!("models are served on {address}");
        }
    }

    /// Serves the protocol on this worker, unless it is served already.
    pub fn serve_here(&self, memory: &MemoryPressure) {
        let memory = memory.clone();
        self.service.set_memory_pressure(Box::new(move |priority| memory.refuses(priority)));
        self.announced.call_once(|| self.announce());
        if self.addresses.is_empty() {
            return;
        }
        SERVING.with(|serving| {
            serving.get_or_init(|| {
                // The list is taken as a whole.
                let first = std::mem::take(&mut *self.first.lock().unwrap_or_else(PoisonError::into_inner));
                let listeners = if first.is_empty() { protocol::bind(&self.addresses) } else { Ok(first) };
                match listeners.and_then(|listeners| protocol::serve(&self.service, listeners)) {
                    Ok(serving) => serving,
                    Err(error) => {
                        tracing::error!("models: this worker serves none: {error}");
                        Rc::default()
                    }
                }
            });
        });
    }
}

/// The models as an upstream.
#[derive(Debug)]
pub struct InProcess(pub Models);

impl ModelBackend for InProcess {
    fn infer(&self, question: ModelRequest) -> ModelFuture {
        let models = self.0.clone();
        Box::pin(async move {
            let ModelRequest { model, body, deadline } = question;
            match models.infer_from_flow(&model, body, deadline).await {
                Ok((body, version)) => Ok(ModelAnswer { body, version: version.text().clone() }),
                Err(error) => Err(match error {
                    InferError::Invalid(what) => ModelFailure::Invalid(what),
                    InferError::NotFound(what) => ModelFailure::NotFound(what),
                    InferError::Unavailable(what) => ModelFailure::Unavailable(what),
                    InferError::Overloaded(what) => ModelFailure::Overloaded(what),
                    InferError::Deadline(what) => ModelFailure::Late(what),
                    InferError::Engine(what) => ModelFailure::Failed(what),
                }),
            }
        })
    }
}

/// Drains the protocol's connections on this worker.
pub fn drain_here() {
    SERVING.with(|serving| {
        if let Some(serving) = serving.get() {
            serving.drain();
        }
    });
}

/// Whether connections of the protocol are open on this worker.
pub fn is_busy_here() -> bool {
    SERVING.with(|serving| serving.get().is_some_and(|serving| serving.open() > 0))
}
