//! The accepting side of the fault injector.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

use crate::error::LoadError;

use super::fault::{Fault, Step};
use super::relay;
use super::state::{Counters, State};

/// Connecting to the upstream takes at most this long; then the client's connection is reset.
const CONNECT: Duration = Duration::from_secs(10);
/// Length of the listener's backlog.
const BACKLOG: u32 = 1024;

/// A running fault injector. Dropping it resets its connections and frees its port.
#[derive(Debug)]
pub struct FaultInjector {
    addr: SocketAddr,
    state: Arc<watch::Sender<State>>,
    counters: Arc<Counters>,
    task: AbortHandle,
}

impl FaultInjector {
    /// Starts a fault injector before `upstream` on a free loopback port, on the current runtime. `seed` is for
    /// [`Fault::Corrupt`].
    pub async fn start(upstream: SocketAddr, seed: u64) -> Result<Self, LoadError> {
        let any = SocketAddr::new(upstream.ip(), 0);
        let bad = |cause| LoadError::Listen { addr: any, cause };
        // A bound socket that does not listen keeps the port reserved during [`Fault::Refuse`].
        let holder = bind(any).map_err(bad)?;
        let addr = holder.local_addr().map_err(bad)?;
        let listener = listen(addr).map_err(bad)?;
        let state = Arc::new(watch::Sender::new(State { fault: Fault::Pass, epoch: 0 }));
        let counters = Arc::new(Counters::default());
        let acceptor = Acceptor {
            addr,
            upstream,
            state: state.subscribe(),
            counters: Arc::clone(&counters),
            seed,
            _holder: holder,
        };
        let task = tokio::spawn(acceptor.run(listener)).abort_handle();
        Ok(Self { addr, state, counters, task })
    }

    /// Where clients connect to.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Sets the fault. [`Fault::Refuse`] takes effect once the accepting task has run.
    pub fn set(&self, fault: Fault) {
        self.state.send_modify(|state| state.fault = fault);
    }

    /// The current fault.
    pub fn fault(&self) -> Fault {
        self.state.borrow().fault
    }

    /// Resets all open connections. New ones get the current fault.
    pub fn reset_connections(&self) {
        self.state.send_modify(|state| state.epoch += 1);
    }

    /// Applies the steps one after another, then [`Fault::Pass`]. The future must be awaited or spawned.
    pub fn play(&self, steps: Vec<Step>) -> impl Future<Output = ()> + Send + 'static {
        let state = Arc::clone(&self.state);
        async move {
            for step in steps {
                state.send_modify(|state| state.fault = step.fault);
                tokio::time::sleep(step.lasts).await;
            }
            state.send_modify(|state| state.fault = Fault::Pass);
        }
    }

    /// Connections accepted so far.
    pub fn accepted(&self) -> u64 {
        self.counters.accepted.load(Ordering::Relaxed)
    }

    /// Connections open now.
    pub fn connections(&self) -> u64 {
        self.counters.open.load(Ordering::Relaxed)
    }

    /// Bytes passed to the upstream so far.
    pub fn bytes_requested(&self) -> u64 {
        self.counters.requested.load(Ordering::Relaxed)
    }

    /// Bytes passed to clients so far.
    pub fn bytes_answered(&self) -> u64 {
        self.counters.answered.load(Ordering::Relaxed)
    }
}

impl Drop for FaultInjector {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The accepting side.
#[derive(Debug)]
struct Acceptor {
    addr: SocketAddr,
    upstream: SocketAddr,
    state: watch::Receiver<State>,
    counters: Arc<Counters>,
    seed: u64,
    _holder: TcpSocket,
}

impl Acceptor {
    async fn run(mut self, first: TcpListener) {
        let mut listener = Some(first);
        let mut connections = JoinSet::new();
        loop {
            if self.state.borrow_and_update().fault == Fault::Refuse {
                // The kernel refuses connections once no socket listens.
                listener = None;
            } else if listener.is_none() {
                listener = listen(self.addr).ok();
            }
            let accept = async {
                match &listener {
                    Some(listener) => listener.accept().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                accepted = accept => if let Ok((client, _)) = accepted {
                    let number = self.counters.accepted.fetch_add(1, Ordering::Relaxed);
                    connections.spawn(self.connection(client, number));
                },
                changed = self.state.changed() => if changed.is_err() { return },
                Some(_) = connections.join_next(), if !connections.is_empty() => {}
            }
        }
    }

    fn connection(&self, client: TcpStream, number: u64) -> impl Future<Output = ()> + Send + 'static {
        let (upstream, state, counters) = (self.upstream, self.state.clone(), Arc::clone(&self.counters));
        // Each connection has its own sequence, so that their order in time does not matter.
        let seed = self.seed ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        async move {
            let _open = Open::new(&counters);
            let epoch = state.borrow().epoch;
            let mut watched = state.clone();
            let over = watched.wait_for(|state| state.fault == Fault::Reset || state.epoch != epoch);
            // Unless the relay ends in order, the client sees a reset.
            relay::reset_when_dropped(&client);
            tokio::select! {
                _ = over => {}
                () = async {
                    let connected = tokio::time::timeout(CONNECT, TcpStream::connect(upstream)).await;
                    if let Ok(Ok(upstream)) = connected {
                        relay::relay(client, upstream, &state, &counters, seed).await;
                    }
                } => {}
            }
        }
    }
}

/// Counts an open connection, however its task ends.
struct Open<'a>(&'a Counters);

impl<'a> Open<'a> {
    fn new(counters: &'a Counters) -> Self {
        counters.open.fetch_add(1, Ordering::Relaxed);
        Self(counters)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

fn bind(addr: SocketAddr) -> std::io::Result<TcpSocket> {
    let socket = if addr.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(true)?;
    socket.bind(addr)?;
    Ok(socket)
}

fn listen(addr: SocketAddr) -> std::io::Result<TcpListener> {
    bind(addr)?.listen(BACKLOG)
}
