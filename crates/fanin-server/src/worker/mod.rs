//! A worker: one OS thread with a current-thread runtime and its own listeners.
//!
//! - `accept`: from the listening socket to connections.
//! - `run_queue`, `overload_detector`: requests in front of a worker that cannot keep up.
//! - `state`, `worker_generation`, `route`: what its requests share.
//! - `queueing_probe`: measures queueing delay.

mod accept;
mod overload_detector;
mod queueing_probe;
mod route;
mod run_queue;
mod state;
mod worker_generation;

use std::io;
use std::net;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use fanin_config::AccessLog;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_local;
use tokio::time::{Instant, sleep};

pub(crate) use route::Route;
pub(crate) use run_queue::QueuedRequest;
pub(crate) use state::WorkerState;
pub(crate) use worker_generation::WorkerGeneration;

use crate::access_log::{LogSender, WorkerLog};
use crate::connection::ConnectionState;
use crate::generation::Generation;
use crate::heartbeat::{Activity, Heartbeat};
use crate::memory_budget::{Memory, MemoryPressure};
use crate::metrics::{Closed, Metrics};
use crate::{Application, Worker, WorkerContext};

/// What a worker's thread is started with.
pub(crate) struct Setup<A> {
    pub(crate) index: usize,
    pub(crate) workers: usize,
    pub(crate) generation: Arc<Generation<A>>,
    pub(crate) listeners: Vec<net::TcpListener>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) heartbeat: Arc<Heartbeat>,
    pub(crate) log: LogSender,
    pub(crate) open: Arc<AtomicUsize>,
    pub(crate) memory: Arc<Memory>,
    pub(crate) messages: mpsc::UnboundedReceiver<Message<A>>,
}

/// A message of the control thread to a worker.
pub(crate) enum Message<A> {
    /// New requests run on this application from now on.
    Swap { generation: Arc<Generation<A>>, done: oneshot::Sender<()> },
    /// Accept no more connections, end when the last request has ended.
    Drain,
    /// End now.
    Stop,
}

/// Makes the worker's runtime. Called before the thread reports that it is ready, since it may fail.
pub(crate) fn runtime(heartbeat: &Arc<Heartbeat>) -> io::Result<LocalRuntime> {
    let (park, unpark) = (heartbeat.clone(), heartbeat.clone());
    Builder::new_current_thread()
        .enable_all()
        .on_thread_park(move || park.park())
        .on_thread_unpark(move || unpark.unpark())
        .build_local(LocalOptions::default())
}

/// Serves until a message ends it.
pub(crate) async fn run<A: Application>(setup: Setup<A>, ready: impl FnOnce(io::Result<()>)) {
    let Setup { index, workers, generation, listeners, metrics, heartbeat, log, open, memory, mut messages } = setup;
    let context =
        WorkerContext { index, workers, activity: Activity(heartbeat.clone()), memory: MemoryPressure(memory.clone()) };
    let stats = metrics.worker(index);
    let generation = WorkerGeneration::new(generation, &metrics, context.clone());
    let mut log = WorkerLog::new(log, stats.clone());
    log.enable(generation.server().access_log != AccessLog::Off);
    let worker = WorkerState::new(generation, heartbeat, stats, log, open, &metrics, workers);

    let listeners = match listeners.into_iter().map(TcpListener::from_std).collect::<io::Result<Vec<_>>>() {
        Ok(listeners) => listeners.into_iter().map(Rc::new).collect::<Vec<_>>(),
        Err(error) => return ready(Err(error)),
    };
    spawn_local(worker.timeouts.clone().run());
    spawn_local(worker.response_batch.writer());
    spawn_local(release_unused(worker.clone()));
    spawn_local(housekeeping(worker.clone()));
    spawn_local(queueing_probe::run(worker.clone()));
    let observing = worker.clone();
    spawn_local(worker.run_queue.clone().run(move |waiting| {
        observing.stats.queued.set(waiting as u64);
        observing.generation().app.computing()
    }));
    let accepting =
        listeners.iter().map(|listener| spawn_local(accept::run(worker.clone(), listener.clone()))).collect::<Vec<_>>();
    ready(Ok(()));

    loop {
        match messages.recv().await {
            Some(Message::Swap { generation, done }) => {
                let generation = WorkerGeneration::new(generation, &metrics, context.clone());
                worker.log.borrow_mut().enable(generation.server().access_log != AccessLog::Off);
                worker.set_generation(generation);
                let _ = done.send(());
            }
            Some(Message::Drain) => break,
            Some(Message::Stop) | None => return,
        }
    }

    worker.draining.set(true);
    for (task, listener) in accepting.into_iter().zip(listeners) {
        task.abort();
        let _ = task.await;
        accept::accept_pending(&worker, &listener).await;
    }
    worker.generation().app.drain();
    wake_all(&worker);
    tokio::select! {
        () = ended(&worker) => {}
        () = stopped(&mut messages) => {}
    }
}

/// Ready when no connection is open on this worker and no request runs in the process: a detached flow has no connection.
async fn ended<A: Application>(worker: &WorkerState<A>) {
    loop {
        let idle = worker.connections.borrow().is_empty() && !worker.generation().app.is_busy();
        if idle && worker.generation().shared.server_limiter.in_flight() == 0 {
            return;
        }
        sleep(Duration::from_millis(10)).await;
    }
}

async fn stopped<A>(messages: &mut mpsc::UnboundedReceiver<Message<A>>) {
    while !matches!(messages.recv().await, Some(Message::Stop) | None) {}
}

fn wake_all<A: Application>(worker: &WorkerState<A>) {
    for (_, conn) in worker.connections.borrow().iter() {
        conn.wake();
    }
}

fn housekeeping_interval(server: &fanin_config::Server) -> Duration {
    let shortest = server.header_timeout.min(server.idle_timeout);
    (shortest / 10).clamp(Duration::from_millis(10), Duration::from_millis(200))
}

/// How long what a burst has left may stay: at most twice this.
const RELEASE_INTERVAL: Duration = Duration::from_secs(5);

/// Gives back what a burst has left, for as long as the worker runs.
async fn release_unused<A: Application>(worker: Rc<WorkerState<A>>) {
    loop {
        sleep(RELEASE_INTERVAL).await;
        worker.response_batch.relax();
    }
}

/// Runs several times a second while connections are open: times connections out, hands log lines over.
async fn housekeeping<A: Application>(worker: Rc<WorkerState<A>>) {
    loop {
        worker.log.borrow_mut().tick();
        if worker.connections.borrow().is_empty() {
            worker.first_connection.notified().await;
            worker.log.borrow_mut().tick();
        }
        // The generation must not be held across the pause: it would outlive a reload.
        let interval = housekeeping_interval(worker.generation().server());
        sleep(interval).await;
        let now = Instant::now();
        worker.now.set(now);
        let generation = worker.generation();
        let server = generation.server();
        check_connections(&worker, now, server);
    }
}

/// Closes connections whose time is over, and measures what clients have not read. Above the worker's share, slow clients get
/// less time. Above twice the share, each call closes the connection with the most of it.
fn check_connections<A: Application>(worker: &WorkerState<A>, now: Instant, server: &fanin_config::Server) {
    let connections = worker.connections.borrow();
    let crowded = worker.crowded.get();
    let (mut total, mut largest) = (0, None::<&Rc<ConnectionState>>);
    let close = |conn: &ConnectionState, closed: Closed| {
        worker.stats.timeouts[closed as usize].add(1);
        conn.wake();
    };
    for (_, conn) in connections.iter() {
        if let Some(closed) = conn.check_timeouts(now, server, crowded) {
            close(conn, closed);
        }
        total += conn.unsent();
        if conn.unsent() > largest.map_or(0, |largest| largest.unsent()) {
            largest = Some(conn);
        }
    }
    let share = server.max_unsent_total / worker.workers;
    worker.crowded.set(total > share);
    if let Some((conn, closed)) = largest.filter(|_| total / 2 > share).and_then(|conn| Some((conn, conn.evict()?))) {
        close(conn, closed);
    }
}

#[cfg(test)]
mod bodies_in_paused_time;
#[cfg(test)]
mod cache_in_paused_time;
