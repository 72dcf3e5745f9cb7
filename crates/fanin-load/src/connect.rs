//! TCP connections of the load generator.

use std::net::SocketAddr;

use tokio::net::TcpStream;

/// Connects without Nagle's algorithm.
pub(crate) async fn tcp(addr: SocketAddr) -> Option<TcpStream> {
    let stream = TcpStream::connect(addr).await.ok()?;
    stream.set_nodelay(true).ok()?;
    Some(stream)
}
