//! TCP connections to endpoints.

use std::io;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

use crate::endpoint::Endpoint;
use crate::error::{ErrorKind, Failure};

/// A peer that has vanished without a word is noticed in about this time even on a connection that nobody uses
/// (first probe, then three more).
const KEEPALIVE_AFTER: Duration = Duration::from_secs(10);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(3);
const KEEPALIVE_PROBES: u32 = 3;

pub(crate) async fn connect(endpoint: &Endpoint) -> Result<TcpStream, Failure> {
    let stream = TcpStream::connect(endpoint.address).await.map_err(|error| failure(endpoint, &error))?;
    let options = || {
        stream.set_nodelay(true)?;
        let keepalive = TcpKeepalive::new()
            .with_time(KEEPALIVE_AFTER)
            .with_interval(KEEPALIVE_EVERY)
            .with_retries(KEEPALIVE_PROBES);
        SockRef::from(&stream).set_tcp_keepalive(&keepalive)
    };
    options().map_err(|error| failure(endpoint, &error))?;
    Ok(stream)
}

fn failure(endpoint: &Endpoint, error: &io::Error) -> Failure {
    let kind = match error.kind() {
        io::ErrorKind::ConnectionRefused => ErrorKind::Refused,
        _ => ErrorKind::Connect,
    };
    Failure::new(kind, format!("{}: {error}", endpoint.address))
}
