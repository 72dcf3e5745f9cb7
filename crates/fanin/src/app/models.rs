//! Models in this process: loaded once, kept over reloads, served on the workers.

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

/// What is wrong with the models at first sight: a folder without a version, a version without a model file, a file that is too
/// large or is none of the formats. Nothing is loaded: whether a model can be is found out when it is, and the one before serves
/// on if not.
pub fn look(config: &fanin_config::Models, file: &str) -> Vec<Diagnostic> {
    match fanin_model::dry_run(config) {
        Ok(problems) => {
            problems.into_iter().map(|problem| Diagnostic::file(file, format!("models: {problem}")).warning()).collect()
        }
        Err(error) => vec![Diagnostic::file(file, format!("models.repository: {error}"))],
    }
}

/// Models and their listeners.
pub struct ModelSide {
    service: Arc<Service>,
    /// Where the listeners are, with the port that the system chose where none is given.
    addresses: Vec<SocketAddr>,
    /// Listeners of the first worker that asks; they hold the addresses from the start on.
    first: Mutex<Vec<TcpListener>>,
    announced: Once,
}

impl ModelSide {
    /// Loads the models and takes the addresses, or goes on with those of the configuration before.
    ///
    /// # Errors
    /// The repository cannot be read, or an address is taken.
    pub fn load(
        config: &fanin_config::Models,
        file: &str,
        old: Option<&Arc<ModelSide>>,
    ) -> Result<Arc<ModelSide>, Vec<Diagnostic>> {
        if let Some(old) = old {
            let before = old.service.models().config();
            if before.listen != config.listen || before.threads != config.threads {
                tracing::warn!("models.listen and models.threads are read at the start only");
            }
            return Ok(old.clone());
        }
        let told = |key: &str, problem: &dyn std::fmt::Display| {
            vec![Diagnostic::file(file, format!("models.{key}: {problem}"))]
        };
        let models = Models::start(config).map_err(|error| told("repository", &error))?;
        let first = protocol::bind(&config.listen).map_err(|error| told("listen", &error))?;
        let addresses = first.iter().map(TcpListener::local_addr).collect::<io::Result<Vec<_>>>();
        let addresses = addresses.map_err(|error| told("listen", &error))?;
        let service = Service::new(models);
        Ok(Arc::new(ModelSide { service, addresses, first: Mutex::new(first), announced: Once::new() }))
    }

    /// The models.
    pub fn models(&self) -> &Models {
        self.service.models()
    }

    /// The service, for its metrics.
    pub fn service(&self) -> &Arc<Service> {
        &self.service
    }

    /// Says in the log what is served and what was refused. The first load happens before there is a log.
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

    /// Serves the protocol on this worker, unless that is done already.
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

/// The models, as upstreams ask them.
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

/// The server drains.
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
