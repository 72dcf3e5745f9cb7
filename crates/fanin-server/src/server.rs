//! Starting a server, and the handle of one that runs.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use arc_swap::ArcSwap;
use prometheus_client::registry::Registry;
use tokio::sync::mpsc;

use crate::access_log::LogThread;
use crate::admission::Limiters;
use crate::cache::Caches;
use crate::control::{self, Command, Control};
use crate::error::{LoadError, StartError};
use crate::generation::Generation;
use crate::heartbeat::Heartbeat;
use crate::memory_budget::MemoryReader;
use crate::metrics::{self, Metrics, MetricsPage, ObjectiveWatch};
use crate::watchdog::{self, Watched};
use crate::{Application, Exit, Incident, Loader, Options, listeners, open_files, worker};

/// A server that runs.
#[derive(Debug)]
pub struct Handle {
    addresses: Vec<SocketAddr>,
    admin: Option<SocketAddr>,
    probes: Option<SocketAddr>,
    commands: mpsc::UnboundedSender<Command>,
    metrics: MetricsPage,
    control: JoinHandle<Exit>,
}

impl Handle {
    /// The addresses it listens on, in the configuration's order. A configured port 0 is replaced by the real one.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The address of the admin pages.
    pub fn admin(&self) -> Option<SocketAddr> {
        self.admin
    }

    /// The address of health and readiness alone.
    pub fn probes(&self) -> Option<SocketAddr> {
        self.probes
    }

    /// All metrics, whether or not the admin pages are on.
    pub fn metrics(&self) -> MetricsPage {
        self.metrics.clone()
    }

    /// Loads the configuration anew, and returns when every worker uses it.
    ///
    /// # Errors
    /// The loader's diagnostics, or that the server is ending. The old application stays in force.
    pub fn reload(&self) -> Result<(), LoadError> {
        let (sender, receiver) = channel();
        let _ = self.commands.send(Command::Reload(sender));
        receiver.recv().unwrap_or_else(|_| Err(LoadError::new("the server is shutting down")))
    }

    /// Stops accepting and lets running requests end, as SIGTERM does.
    pub fn drain(&self) {
        let _ = self.commands.send(Command::Drain);
    }

    /// Waits until the server has ended.
    pub fn wait(self) -> Exit {
        // The control thread does not panic by design; if it does, the server has failed.
        self.control.join().unwrap_or(Exit::Failed)
    }
}

/// Loads the application, listens, and starts all threads. Returns when requests can be served.
///
/// # Errors
/// See [`StartError`]. Nothing is left running then.
pub fn start<L: Loader>(loader: L, options: Options) -> Result<Handle, StartError> {
    let file_limit = open_files::raise_limit();
    let app = Arc::new(loader.load(None)?);
    let server = app.server().clone();
    let workers = match server.workers {
        0 => thread::available_parallelism().map_or(1, usize::from),
        workers => workers,
    };
    if let Some(files) = file_limit
        && files < server.max_connections as u64 * 2
    {
        tracing::warn!(
            open_files = files,
            max_connections = server.max_connections,
            "the limit of open files is below twice max_connections: client and upstream connections may fail"
        );
    }

    let limiters = Arc::new(Limiters::new());
    let caches = Arc::new(Caches::new());
    let generation = Arc::new(Generation::new(app, None, &limiters, &caches)?);
    let metrics = Arc::new(Metrics::new(options.build, workers, limiters, caches));
    metrics.reloaded(true);

    let mut addresses = Vec::new();
    let mut sockets = (0..workers).map(|_| Vec::new()).collect::<Vec<_>>();
    for address in &server.listen {
        let error = |source| StartError::Listen { key: "listen", address: *address, source };
        let (address, of_workers) = listeners::bind(*address, workers).map_err(error)?;
        addresses.push(address);
        for (worker, socket) in sockets.iter_mut().zip(of_workers) {
            worker.push(socket);
        }
    }
    let bind = |key, address: Option<SocketAddr>| {
        let error = |address| move |source| StartError::Listen { key, address, source };
        address.map(|address| listeners::bind_exclusive(address).map_err(error(address))).transpose()
    };
    let (admin, probes) = (bind("admin", server.admin)?, bind("probes", server.probes)?);
    let (log, log_thread) = LogThread::start(&server.access_log)
        .map_err(|source| StartError::AccessLog { path: format!("{:?}", server.access_log), source })?;

    let current = Arc::new(ArcSwap::from(generation.clone()));
    let open = Arc::new(AtomicUsize::new(0));
    let (ready_sender, ready) = channel();
    let mut threads = Vec::new();
    let mut senders = Vec::new();
    let mut watched = Vec::new();
    for (index, listeners) in sockets.into_iter().enumerate() {
        let (sender, messages) = mpsc::unbounded_channel();
        let heartbeat = Arc::<Heartbeat>::default();
        watched.push(Watched { heartbeat: heartbeat.clone(), stats: metrics.worker(index) });
        senders.push(sender);
        let setup = worker::Setup {
            index,
            workers,
            generation: generation.clone(),
            listeners,
            metrics: metrics.clone(),
            heartbeat,
            log: log.clone(),
            open: open.clone(),
            memory: metrics.memory.clone(),
            messages,
        };
        let ready = ready_sender.clone();
        threads.push(spawn("worker", format!("fanin-{index}"), move || run_worker(setup, &ready))?);
    }
    drop((ready_sender, generation));
    for _ in 0..workers {
        let started = ready.recv().unwrap_or_else(|_| Err(std::io::Error::other("the thread ended")));
        started.map_err(|source| StartError::System { what: "a worker", source })?;
    }

    let (end_watchdog, watchdog_ends) = channel::<()>();
    let (watched_app, memory, counts) = (current.clone(), metrics.memory.clone(), metrics.clone());
    let watchdog = spawn("the watchdog", "fanin-watchdog".into(), move || {
        let (mut readings, mut objectives) = (MemoryReader::find(), ObjectiveWatch::default());
        let tick = |now| {
            let generation = watched_app.load();
            readings.tick(generation.app.server().memory, &memory, now);
            for missed in objectives.tick(now, &counts) {
                generation.app.incident(&missed);
            }
            generation.app.server().stall
        };
        let describe = |activity| watched_app.load().app.describe(activity);
        let stalled = |worker, since, activity| {
            watched_app.load().app.incident(&Incident::Stall { worker, since, activity });
        };
        watchdog::run(&watched, &watchdog_ends, tick, describe, stalled);
    })?;

    let page = {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(metrics.clone()));
        let (current, metrics) = (current.clone(), metrics.clone());
        MetricsPage(Arc::new(move || {
            let generation = current.load();
            let more = |to: &mut _| generation.app.exemplars(to);
            metrics::write_with_exemplars(&registry, &metrics, &generation.registry, more).ok()
        }))
    };
    let (commands, receiver) = mpsc::unbounded_channel();
    let admin_address = admin.as_ref().map(|(address, _)| *address);
    let probes_address = probes.as_ref().map(|(address, _)| *address);
    let control = Control {
        loader: Arc::new(loader),
        current,
        metrics,
        workers: senders,
        threads,
        log,
        admin: admin.map(|(_, socket)| socket),
        probes: probes.map(|(_, socket)| socket),
        signals: options.signals,
        commands: receiver,
    };
    let (ready_sender, ready) = channel();
    let control = spawn("control", "fanin-control".into(), move || {
        let exit = control::run(control, &ready_sender);
        drop(end_watchdog);
        let _ = watchdog.join();
        log_thread.join(Duration::from_secs(1));
        exit
    })?;
    match ready.recv() {
        Ok(Ok(())) => {
            Ok(Handle { addresses, admin: admin_address, probes: probes_address, commands, metrics: page, control })
        }
        Ok(Err(error)) => Err(error),
        Err(_) => Err(StartError::System { what: "control", source: std::io::Error::other("the thread ended") }),
    }
}

fn run_worker<A: Application>(setup: worker::Setup<A>, ready: &Sender<std::io::Result<()>>) {
    match worker::runtime(&setup.heartbeat) {
        Err(error) => {
            let _ = ready.send(Err(error));
        }
        Ok(runtime) => runtime.block_on(worker::run(setup, |started| {
            let _ = ready.send(started);
        })),
    }
}

fn spawn<T: Send + 'static>(
    what: &'static str,
    name: String,
    run: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, StartError> {
    thread::Builder::new().name(name).spawn(run).map_err(|source| StartError::System { what, source })
}
