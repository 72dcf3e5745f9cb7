//! Listening sockets.

use std::io;
use std::net::{SocketAddr, TcpListener};

use socket2::{Domain, Protocol, Socket, Type};

/// Connections that the kernel queues for a busy worker.
const BACKLOG: i32 = 1024;

/// Binds one socket for each worker to the same address; the kernel spreads connections over them. Port 0 becomes one free port.
///
/// # Errors
/// The system error, also if another process listens there. With `SO_REUSEPORT` alone, two servers started by mistake would share the
/// clients silently.
pub(crate) fn bind(address: SocketAddr, workers: usize) -> io::Result<(SocketAddr, Vec<TcpListener>)> {
    if address.port() != 0 {
        open(address, false)?;
    }
    let first = open(address, true)?;
    let address = first.local_addr()?;
    let mut sockets = vec![first];
    while sockets.len() < workers {
        sockets.push(open(address, true)?);
    }
    Ok((address, sockets))
}

/// Binds one socket that is not shared.
pub(crate) fn bind_exclusive(address: SocketAddr) -> io::Result<(SocketAddr, TcpListener)> {
    let socket = open(address, false)?;
    Ok((socket.local_addr()?, socket))
}

fn open(address: SocketAddr, shared: bool) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if shared {
        socket.set_reuse_port(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_share_a_port_that_others_cannot_bind() {
        let (address, sockets) = bind("127.0.0.1:0".parse().unwrap(), 3).unwrap();
        assert_eq!(sockets.len(), 3);
        assert!(sockets.iter().all(|socket| socket.local_addr().unwrap() == address));
        let error = bind(address, 2).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }
}
