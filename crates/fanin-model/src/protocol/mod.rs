//! The Open Inference Protocol, version 2: gRPC and HTTP on the same listeners.
//!
//! It runs on the server's workers, each with sockets of its own. gRPC is done here, on hyper's HTTP/2: the protocol has
//! nothing but calls of one message each way, for which a framing of five bytes and two trailers is all there is to do, and
//! a call costs less than behind a stack of services that must be `Send`.

mod connection;
mod convert;
mod grpc;
mod http;
mod methods;
mod nap;
mod peek;
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
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::spawn_local;

use crate::Models;

/// Path of ModelInfer, the protocol's main method.
pub const INFER_PATH: &str = "/inference.GRPCInferenceService/ModelInfer";

/// What the listeners of all workers share.
#[derive(Debug)]
pub struct Service {
    models: Models,
    /// Requests in progress.
    in_flight: AtomicUsize,
    /// Open connections.
    connections: AtomicUsize,
}

/// A place among the requests in progress.
struct Place(Arc<Service>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Relaxed);
    }
}

impl Service {
    /// For these models.
    pub fn new(models: Models) -> Arc<Service> {
        Arc::new(Service { models, in_flight: AtomicUsize::new(0), connections: AtomicUsize::new(0) })
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

    /// Takes a place for a request, if there is one.
    fn admit(self: &Arc<Self>, limit: usize) -> Option<Place> {
        let place = Place(self.clone());
        // The place counts already; dropping it gives it back.
        (self.in_flight.fetch_add(1, Relaxed) < limit).then_some(place)
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
    /// Wakes connections and listeners when draining begins.
    drain: Notify,
    open: Cell<usize>,
    /// Told when a request was refused because too much waits.
    refused: Notify,
}

impl Serving {
    /// Accepts nothing more, and asks clients to go when their requests are answered. None of them sees an error.
    pub fn drain(&self) {
        self.draining.set(true);
        self.drain.notify_waiters();
    }

    /// Open connections of this thread.
    pub fn open(&self) -> usize {
        self.open.get()
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
