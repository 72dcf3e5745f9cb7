//! Reload: replaces the application.

use std::cell::Cell;
use std::sync::Arc;
use std::thread;

use arc_swap::ArcSwap;
use fanin_io::job_thread::lower_priority;
use tokio::sync::{Mutex, mpsc, oneshot};

use super::file_watcher::Watched;
use crate::access_log::LogSender;
use crate::generation::Generation;
use crate::metrics::Metrics;
use crate::worker::Message;
use crate::{Application, LoadError, Loader};

/// Loads applications and gives them to the workers, one at a time.
pub(super) struct Reloader<L: Loader> {
    pub(super) loader: Arc<L>,
    pub(super) current: Arc<ArcSwap<Generation<L::App>>>,
    pub(super) metrics: Arc<Metrics>,
    workers: Vec<mpsc::UnboundedSender<Message<L::App>>>,
    log: LogSender,
    one_at_a_time: Mutex<()>,
    draining: Cell<bool>,
}

impl<L: Loader> Reloader<L> {
    pub(super) fn new(
        loader: Arc<L>,
        current: Arc<ArcSwap<Generation<L::App>>>,
        metrics: Arc<Metrics>,
        workers: Vec<mpsc::UnboundedSender<Message<L::App>>>,
        log: LogSender,
    ) -> Reloader<L> {
        Reloader { loader, current, metrics, workers, log, one_at_a_time: Mutex::new(()), draining: Cell::new(false) }
    }

    pub(super) fn server(&self) -> fanin_config::Server {
        self.current.load().app.server().clone()
    }

    /// What to watch.
    pub(super) fn watched(&self) -> Watched {
        let current = self.current.load();
        match self.loader.watch().filter(|_| current.app.server().reload) {
            Some(folder) => Watched::new(folder, &current.app.files()),
            None => Watched::default(),
        }
    }

    pub(super) fn is_draining(&self) -> bool {
        self.draining.get()
    }

    pub(super) fn drain(&self) {
        self.draining.set(true);
        self.send_all(|| Message::Drain);
    }

    pub(super) fn stop(&self) {
        self.send_all(|| Message::Stop);
    }

    fn send_all(&self, message: impl Fn() -> Message<L::App>) {
        for worker in &self.workers {
            // A worker that has ended needs no message.
            let _ = worker.send(message());
        }
    }

    pub(super) fn reopen_log(&self) {
        self.log.target(self.server().access_log);
    }

    /// Loads an application, then gives it to every worker. On an error nothing has changed.
    pub(super) async fn reload(&self, why: &str) -> Result<(), LoadError> {
        let _one_at_a_time = self.one_at_a_time.lock().await;
        if self.is_draining() {
            return Err(LoadError::new("the server is shutting down"));
        }
        let result = self.replace().await;
        self.metrics.reloaded(result.is_ok());
        match &result {
            Ok(()) => tracing::info!(why, generation = self.current.load().number, "reloaded"),
            Err(error) => tracing::error!(why, "not reloaded; the old configuration stays in force:\n{error}"),
        }
        result
    }

    async fn replace(&self) -> Result<(), LoadError> {
        let old = self.current.load_full();
        let (sender, receiver) = oneshot::channel();
        let (loader, app) = (self.loader.clone(), old.app.clone());
        let load = move || {
            // A reload would otherwise take half of a busy core, and requests would queue behind it.
            lower_priority();
            drop(sender.send(loader.load(Some(&app))));
        };
        thread::Builder::new()
            .name("fanin-reload".into())
            .spawn(load)
            .map_err(|error| LoadError::new(format!("cannot start a thread: {error}")))?;
        let app = receiver.await.map_err(|_| LoadError::new("the loader panicked"))??;
        let generation =
            Arc::new(Generation::new(Arc::new(app), Some(&old), &self.metrics.limiters, &self.metrics.caches)?);

        let (before, now) = (old.app.server(), generation.app.server());
        for (key, changed) in [
            ("listen", before.listen != now.listen),
            ("admin", before.admin != now.admin),
            ("probes", before.probes != now.probes),
            ("workers", before.workers != now.workers),
            ("log_format", before.log_format != now.log_format),
        ] {
            if changed {
                tracing::warn!("[server] {key} has changed; the change takes effect at the next start");
            }
        }
        if before.access_log != now.access_log {
            self.log.target(now.access_log.clone());
        }
        self.current.store(generation.clone());
        let mut swapped = Vec::new();
        for worker in &self.workers {
            let (done, is_done) = oneshot::channel();
            let _ = worker.send(Message::Swap { generation: generation.clone(), done });
            swapped.push(is_done);
        }
        for is_done in swapped {
            // A worker that ends meanwhile needs no application.
            let _ = is_done.await;
        }
        Ok(())
    }
}
