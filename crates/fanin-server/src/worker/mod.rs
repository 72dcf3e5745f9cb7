//! A worker: one OS thread with a current-thread runtime and its own listeners.

mod accept;
mod probe;
mod ready;
mod site;
mod state;

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

pub(crate) use ready::{Ready, ReadyQueue};
pub(crate) use site::{Route, Site};
pub(crate) use state::WorkerState;

use crate::access_log::{LogSender, WorkerLog};
use crate::activity::{Activity, Pulse};
use crate::generation::Generation;
use crate::memory::{Memory, MemoryPressure};
use crate::metrics::Metrics;
use crate::{Application, Worker, WorkerContext};

/// What a worker's thread is started with.
pub(crate) struct Setup<A> {
    pub(crate) index: usize,
    pub(crate) workers: usize,
    pub(crate) generation: Arc<Generation<A>>,
    pub(crate) listeners: Vec<net::TcpListener>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) pulse: Arc<Pulse>,
    pub(crate) log: LogSender,
    pub(crate) open: Arc<AtomicUsize>,
    pub(crate) memory: Arc<Memory>,
    pub(crate) messages: mpsc::UnboundedReceiver<Message<A>>,
}

/// What the control thread tells a worker.
pub(crate) enum Message<A> {
    /// New requests run on this application from now on.
    Swap { generation: Arc<Generation<A>>, done: oneshot::Sender<()> },
    /// Accept nothing more, end when the last request has ended.
    Drain,
    /// End now.
    Stop,
}

/// The worker's runtime. Made before the thread reports that it is ready, since it may fail.
pub(crate) fn runtime(pulse: &Arc<Pulse>) -> io::Result<LocalRuntime> {
    let (parks, unparks) = (pulse.clone(), pulse.clone());
    Builder::new_current_thread()
        .enable_all()
        .on_thread_park(move || parks.park())
        .on_thread_unpark(move || unparks.unpark())
        .build_local(LocalOptions::default())
}

/// Serves until told to end.
pub(crate) async fn run<A: Application>(setup: Setup<A>, ready: impl FnOnce(io::Result<()>)) {
    let Setup { index, workers, generation, listeners, metrics, pulse, log, open, memory, mut messages } = setup;
    let context =
        WorkerContext { index, workers, activity: Activity(pulse.clone()), memory: MemoryPressure(memory.clone()) };
    let stats = metrics.worker(index);
    let site = Site::new(generation, &metrics, context.clone());
    let mut log = WorkerLog::new(log, stats.clone());
    log.enable(site.server().access_log != AccessLog::Off);
    let worker = WorkerState::new(site, pulse, stats, log, open, memory);

    let listeners = match listeners.into_iter().map(TcpListener::from_std).collect::<io::Result<Vec<_>>>() {
        Ok(listeners) => listeners.into_iter().map(Rc::new).collect::<Vec<_>>(),
        Err(error) => return ready(Err(error)),
    };
    spawn_local(worker.sweep.clone().run());
    spawn_local(worker.departures.clone().run());
    spawn_local(housekeeping(worker.clone()));
    spawn_local(probe::run(worker.clone()));
    let observed = worker.clone();
    spawn_local(worker.ready.clone().run(move |waiting| {
        observed.stats.queued.set(waiting as u64);
        observed.site().app.computing()
    }));
    let accepting =
        listeners.iter().map(|listener| spawn_local(accept::run(worker.clone(), listener.clone()))).collect::<Vec<_>>();
    ready(Ok(()));

    loop {
        match messages.recv().await {
            Some(Message::Swap { generation, done }) => {
                let site = Site::new(generation, &metrics, context.clone());
                worker.log.borrow_mut().enable(site.server().access_log != AccessLog::Off);
                worker.set_site(site);
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
        accept::last(&worker, &listener).await;
    }
    worker.site().app.drain();
    wake_all(&worker);
    tokio::select! {
        () = ended(&worker) => {}
        () = stopped(&mut messages) => {}
    }
}

/// Ready when no connection is open on this worker and no request runs in the process: a detached flow has no connection.
async fn ended<A: Application>(worker: &WorkerState<A>) {
    loop {
        let idle = worker.connections.borrow().is_empty() && !worker.site().app.is_busy();
        if idle && worker.site().generation.server_gate.in_flight() == 0 {
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

fn pause(server: &fanin_config::Server) -> Duration {
    let shortest = server.header_timeout.min(server.idle_timeout);
    (shortest / 10).clamp(Duration::from_millis(10), Duration::from_millis(200))
}

/// What is done some times a second while there are connections or lines to write: time out connections, hand over the log.
async fn housekeeping<A: Application>(worker: Rc<WorkerState<A>>) {
    loop {
        worker.log.borrow_mut().tick();
        if worker.connections.borrow().is_empty() {
            worker.first_connection.notified().await;
            worker.log.borrow_mut().tick();
        }
        // In a statement of its own, and below not kept across the pause: the site would outlive a reload.
        let pause = pause(worker.site().server());
        sleep(pause).await;
        let now = Instant::now();
        worker.now.set(now);
        let site = worker.site();
        let server = site.server();
        for (_, conn) in worker.connections.borrow().iter() {
            if let Some(closed) = conn.check(now, server) {
                worker.stats.timeouts[closed as usize].add(1);
                conn.wake();
            }
        }
    }
}
