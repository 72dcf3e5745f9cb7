//! The control thread: signals, reload, drain, admin pages.
//!
//! - `reload`: replaces the application. `file_watcher`: notices changed files. `admin`: the admin pages.

mod admin;
mod file_watcher;
mod reload;

use std::io;
use std::net::TcpListener;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::runtime::{Builder, LocalOptions};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::spawn_local;
use tokio::time::{Instant, sleep, sleep_until};

use reload::Reloader;

use crate::access_log::LogSender;
use crate::error::StartError;
use crate::generation::Generation;
use crate::metrics::Metrics;
use crate::worker::Message;
use crate::{LoadError, Loader};

/// What the control thread is started with.
pub(crate) struct Control<L: Loader> {
    pub(crate) loader: Arc<L>,
    pub(crate) current: Arc<ArcSwap<Generation<L::App>>>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) workers: Vec<mpsc::UnboundedSender<Message<L::App>>>,
    pub(crate) threads: Vec<JoinHandle<()>>,
    pub(crate) log: LogSender,
    pub(crate) admin: Option<TcpListener>,
    pub(crate) probes: Option<TcpListener>,
    pub(crate) signals: bool,
    pub(crate) commands: mpsc::UnboundedReceiver<Command>,
}

/// How a server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// All requests ended.
    Drained,
    /// Some were still running at the end of `[server] drain_timeout`.
    DrainTimeout,
    /// A second signal came.
    Forced,
    /// A worker thread ended unexpectedly, which is a defect. The others were drained.
    Failed,
}

/// Where a reload's result goes.
pub(crate) type ReloadReply = Sender<Result<(), LoadError>>;

/// A request of a handle.
#[derive(Debug)]
pub(crate) enum Command {
    Reload(ReloadReply),
    Drain,
}

/// Runs until the server has ended. Sends to `ready` once everything has started.
pub(crate) fn run<L: Loader>(control: Control<L>, ready: &Sender<Result<(), StartError>>) -> Exit {
    let system = |what| move |source: io::Error| StartError::System { what, source };
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
    let runtime = match runtime.map_err(system("the control runtime")) {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = ready.send(Err(error));
            return Exit::Failed;
        }
    };
    runtime.block_on(async {
        let signals = match control.signals.then(Signals::new).transpose().map_err(system("signal handlers")) {
            Ok(signals) => signals,
            Err(error) => {
                let _ = ready.send(Err(error));
                return Exit::Failed;
            }
        };
        supervise(control, signals, ready).await
    })
}

async fn supervise<L: Loader>(
    control: Control<L>,
    mut signals: Option<Signals>,
    ready: &Sender<Result<(), StartError>>,
) -> Exit {
    let Control { loader, current, metrics, workers, threads, log, admin, probes, signals: _, mut commands } = control;
    let reloader = Rc::new(Reloader::new(loader, current, metrics, workers, log));
    let mut changes = file_watcher::FileChanges::new(reloader.loader.clone());
    changes.set(reloader.watched());
    let listener = |socket: Option<TcpListener>| socket.map(tokio::net::TcpListener::from_std).transpose();
    match (listener(admin), listener(probes)) {
        (Ok(admin), Ok(probes)) => admin::start(admin, probes, &reloader),
        (Err(source), _) | (_, Err(source)) => {
            let _ = ready.send(Err(StartError::System { what: "the admin listener", source }));
            return Exit::Failed;
        }
    }
    let _ = ready.send(Ok(()));

    let mut failed = false;
    loop {
        tokio::select! {
            action = next_signal(&mut signals) => match action {
                SignalAction::End => break,
                SignalAction::Reload => {
                    reloader.reopen_log();
                    spawn_local(reload(reloader.clone(), "SIGHUP", None));
                }
            },
            command = commands.recv() => match command {
                Some(Command::Reload(reply)) => {
                    spawn_local(reload(reloader.clone(), "requested", Some(reply)));
                }
                Some(Command::Drain) | None => break,
            },
            () = any_ended(&threads) => {
                tracing::error!("a worker thread ended unexpectedly; the server ends");
                failed = true;
                break;
            }
            () = changes.changed() => {
                spawn_local(reload(reloader.clone(), "a file changed", None));
            }
        }
        changes.set(reloader.watched());
    }

    let deadline = Instant::now() + reloader.server().drain_timeout;
    tracing::info!("draining: no new connections; running requests end");
    reloader.drain();
    let exit = tokio::select! {
        () = all_ended(&threads) => Exit::Drained,
        () = sleep_until(deadline) => Exit::DrainTimeout,
        () = second_signal(&mut signals) => Exit::Forced,
    };
    reloader.stop();
    // A stalled worker does not receive it; the process must end all the same.
    let soon = Instant::now() + Duration::from_secs(1);
    tokio::select! {
        () = all_ended(&threads) => {}
        () = sleep_until(soon), if exit != Exit::Forced => {}
        () = std::future::ready(()), if exit == Exit::Forced => {}
    }
    let exit = if failed { Exit::Failed } else { exit };
    tracing::info!(?exit, "ended");
    exit
}

async fn reload<L: Loader>(reloader: Rc<Reloader<L>>, why: &'static str, reply: Option<ReloadReply>) {
    let result = reloader.reload(why).await;
    if let Some(reply) = reply {
        let _ = reply.send(result);
    }
}

/// Ready within a second after a thread has ended. Each event restarts the pause; events are rare.
async fn any_ended(threads: &[JoinHandle<()>]) {
    while !threads.iter().any(JoinHandle::is_finished) {
        sleep(Duration::from_secs(1)).await;
    }
}

async fn all_ended(threads: &[JoinHandle<()>]) {
    while !threads.iter().all(JoinHandle::is_finished) {
        sleep(Duration::from_millis(5)).await;
    }
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

enum SignalAction {
    End,
    Reload,
}

impl Signals {
    fn new() -> io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }
}

async fn next_signal(signals: &mut Option<Signals>) -> SignalAction {
    match signals {
        None => std::future::pending().await,
        Some(signals) => tokio::select! {
            _ = signals.terminate.recv() => SignalAction::End,
            _ = signals.interrupt.recv() => SignalAction::End,
            _ = signals.hangup.recv() => SignalAction::Reload,
        },
    }
}

async fn second_signal(signals: &mut Option<Signals>) {
    while !matches!(next_signal(signals).await, SignalAction::End) {}
}
