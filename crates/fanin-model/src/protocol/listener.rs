//! Listening sockets: one set per worker, on the same addresses.

use std::cell::RefCell;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::task::spawn_local;

use super::service::Service;
use super::serving::Serving;
use super::{connection, read_throttle};

/// Opens a listener on each address. Each worker may open its own on the same address: the kernel spreads connections.
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

/// Serves listeners on this thread, in its runtime, until [`Serving::drain`].
///
/// # Errors
/// A listener can't be given to the runtime.
pub fn serve(service: &Arc<Service>, listeners: Vec<TcpListener>) -> io::Result<Rc<Serving>> {
    let serving = Rc::new(Serving::default());
    // Only if the compute pool can occupy every core does a packet take CPU from it.
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if service.models.shared().pool.threads() >= cores {
        spawn_local(read_throttle::run(service.clone(), serving.clone()));
    }
    let listeners = listeners.into_iter().map(tokio::net::TcpListener::from_std).collect::<io::Result<Vec<_>>>()?;
    let watched = serving.clone();
    spawn_local(async move { watched.connections.watch().await });
    for listener in listeners {
        spawn_local(accept(service.clone(), serving.clone(), listener));
    }
    Ok(serving)
}

async fn accept(service: Arc<Service>, serving: Rc<Serving>, listener: tokio::net::TcpListener) {
    let logged = RefCell::new(false);
    loop {
        let accepted = tokio::select! {
            () = serving.drained() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                logged.replace(false);
                if service.connections.fetch_add(1, Relaxed) >= service.models.config().max_connections {
                    service.connections.fetch_sub(1, Relaxed);
                    continue;
                }
                // Avoids Nagle delays of small answers. It fails only on a closed socket.
                let _ = stream.set_nodelay(true);
                spawn_local(connection::run(service.clone(), serving.clone(), stream, peer));
            }
            Err(error) => {
                // Mostly a lack of file descriptors. Logged once; retried after other connections may have closed.
                if !logged.replace(true) {
                    tracing::warn!("models: no connection can be accepted: {error}");
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}
