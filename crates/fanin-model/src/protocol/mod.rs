//! The Open Inference Protocol, version 2: gRPC and HTTP on the same listeners.
//!
//! It runs on the server's workers, each with sockets of its own. gRPC is done here, on hyper's HTTP/2: the protocol has
//! nothing but calls of one message each way, for which a framing of five bytes and two trailers is all there is to do, and
//! a call costs less than behind a stack of services that must be `Send`.

mod body;
mod client;
mod connection;
mod convert;
pub(crate) mod fuzzed;
mod grpc;
mod http;
mod methods;
mod nap;
mod peek;
mod place;
mod reply;
mod rest;

pub use convert::infer_message;

/// Messages of proto/inference.proto.
#[allow(missing_docs, clippy::all, unused_qualifications, dead_code, reason = "made from the .proto")]
pub(crate) mod proto {
    include!(concat!(env!("OUT_DIR"), "/inference.rs"));
}

use std::cell::{Cell, RefCell};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use fanin_config::Priority;
use tokio::sync::Notify;
use tokio::task::spawn_local;

use crate::{InferError, Models};
use client::Clients;

/// Path of ModelInfer, the protocol's main method.
pub const INFER_PATH: &str = "/inference.GRPCInferenceService/ModelInfer";

/// What the listeners of all workers share.
pub struct Service {
    models: Models,
    /// Requests in progress.
    in_flight: AtomicUsize,
    /// Bytes that they hold.
    bytes: AtomicUsize,
    /// Open connections.
    connections: AtomicUsize,
    /// Connections that were closed because their clients took nothing of an answer.
    untaken: AtomicU64,
    /// Who knows whether memory runs short.
    short: OnceLock<Short>,
}

/// Whether memory runs so short that requests of a priority must be refused.
pub type Short = Box<dyn Fn(Priority) -> bool + Send + Sync>;

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service").field("models", &self.models).field("in_flight", &self.in_flight()).finish()
    }
}

impl Service {
    /// For these models.
    pub fn new(models: Models) -> Arc<Service> {
        Arc::new(Service {
            models,
            in_flight: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
            untaken: AtomicU64::new(0),
            short: OnceLock::new(),
        })
    }

    /// Says who knows whether memory runs short. The first one said counts.
    pub fn ask_of_memory(&self, short: Short) {
        self.short.get_or_init(|| short);
    }

    /// The models.
    pub fn models(&self) -> &Models {
        &self.models
    }

    /// Requests in progress, over all connections.
    pub fn in_flight(&self) -> usize {
        self.in_flight.load(Relaxed)
    }

    /// Open connections.
    pub fn connections(&self) -> usize {
        self.connections.load(Relaxed)
    }

    /// A request that is refused because there is too much already.
    #[cold]
    fn refuses(&self, told: String) -> InferError {
        let error = InferError::Overloaded(told);
        self.models.shared().outcomes.count(&error);
        error
    }

    fn is_short(&self, priority: Priority) -> bool {
        self.short.get().is_some_and(|short| short(priority))
    }

    /// # Errors
    /// Memory runs too short for requests of this priority.
    fn has_memory_for(&self, priority: Priority) -> Result<(), InferError> {
        match self.is_short(priority) {
            false => Ok(()),
            true => Err(self.refuses(format!("memory runs short, {} requests are refused", priority.as_str()))),
        }
    }

    /// # Errors
    /// Memory runs too short for requests to this model.
    fn has_memory_for_model(&self, model: &str) -> Result<(), InferError> {
        // What is refused first: nearly always none is, and nobody's priority has to be looked up.
        if !self.is_short(Priority::Background) {
            return Ok(());
        }
        self.has_memory_for(self.models.config().settings_of(model).priority)
    }

    /// Bytes of requests in progress, and of answers that clients have not taken yet.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// Connections that were closed because their clients took nothing of an answer, since the start.
    pub fn untaken(&self) -> u64 {
        self.untaken.load(Relaxed)
    }
}

/// Opens a listener on each address. Several may be open on the same address, one a worker; connections are spread.
///
/// # Errors
/// The address is taken or not this machine's.
pub fn bind(addresses: &[SocketAddr]) -> io::Result<Vec<TcpListener>> {
    addresses
        .iter()
        .map(|address| {
            let domain = if address.is_ipv6() { socket2::Domain::IPV6 } else { socket2::Domain::IPV4 };
            let socket = socket2::Socket::new(domain, socket2::Type::STREAM, Some(socket2::Protocol::TCP))?;
            socket.set_reuse_address(true)?;
            socket.set_reuse_port(true)?;
            socket.set_nonblocking(true)?;
            socket.bind(&(*address).into())?;
            socket.listen(1024)?;
            Ok(socket.into())
        })
        .collect()
}

/// Listeners that are served on one thread.
#[derive(Debug, Default)]
pub struct Serving {
    draining: Cell<bool>,
    /// Wakes listeners when draining begins.
    drain: Notify,
    clients: Clients,
    /// Told when a request was refused because too much waits.
    refused: Notify,
}

impl Serving {
    /// Accepts nothing more, and asks clients to go when their requests are answered. None of them sees an error.
    pub fn drain(&self) {
        self.draining.set(true);
        self.drain.notify_waiters();
        self.clients.drain();
    }

    /// Open connections of this thread.
    pub fn open(&self) -> usize {
        self.clients.count()
    }

    /// Ready when draining begins.
    async fn drained(&self) {
        let notified = self.drain.notified();
        if !self.draining.get() {
            notified.await;
        }
    }
}

/// Serves listeners on this thread, in its runtime, until [`Serving::drain`].
///
/// # Errors
/// A listener can't be given to the runtime.
pub fn serve(service: &Arc<Service>, listeners: Vec<TcpListener>) -> io::Result<Rc<Serving>> {
    let serving = Rc::new(Serving::default());
    // Where cores are left beside those that compute, a packet takes none from them.
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if service.models.shared().pool.threads() >= cores {
        spawn_local(nap::run(service.clone(), serving.clone()));
    }
    let listeners = listeners.into_iter().map(tokio::net::TcpListener::from_std).collect::<io::Result<Vec<_>>>()?;
    let watched = serving.clone();
    spawn_local(async move { watched.clients.watch().await });
    for listener in listeners {
        spawn_local(accept(service.clone(), serving.clone(), listener));
    }
    Ok(serving)
}

async fn accept(service: Arc<Service>, serving: Rc<Serving>, listener: tokio::net::TcpListener) {
    let problem = RefCell::new(false);
    loop {
        let accepted = tokio::select! {
            () = serving.drained() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                problem.replace(false);
                if service.connections.fetch_add(1, Relaxed) >= service.models.config().max_connections {
                    service.connections.fetch_sub(1, Relaxed);
                    continue;
                }
                // Without it small answers wait for the client's acknowledgement; it fails only on a closed socket.
                let _ = stream.set_nodelay(true);
                spawn_local(connection::run(service.clone(), serving.clone(), stream));
            }
            Err(error) => {
                // Out of file descriptors, mostly: said once, tried again when some may have been closed.
                if !problem.replace(true) {
                    tracing::warn!("models: no connection can be accepted: {error}");
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}
