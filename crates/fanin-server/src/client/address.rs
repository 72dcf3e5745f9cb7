//! The addresses of a connection: its peer, and the client that the peer names.

use std::cell::OnceCell;
use std::net::SocketAddr;

/// The peer is the client, unless a PROXY header names another one.
#[derive(Debug)]
pub(crate) struct ClientAddress {
    peer: SocketAddr,
    /// From the PROXY header.
    named: OnceCell<SocketAddr>,
    /// The client as text, for the log.
    text: OnceCell<Box<str>>,
}

impl ClientAddress {
    pub(crate) fn new(peer: SocketAddr) -> ClientAddress {
        ClientAddress { peer, named: OnceCell::new(), text: OnceCell::new() }
    }

    /// The peer's PROXY header names this client. The first one counts.
    pub(crate) fn name(&self, client: SocketAddr) {
        let _ = self.named.set(client);
    }

    /// The client of the connection.
    #[inline]
    pub(crate) fn remote(&self) -> SocketAddr {
        self.named.get().copied().unwrap_or(self.peer)
    }

    /// The client as text.
    #[inline]
    pub(crate) fn remote_text(&self) -> &str {
        self.text.get_or_init(|| text(self.remote()).into())
    }

    /// The peer, if it is not this client.
    pub(crate) fn peer_besides(&self, client: SocketAddr) -> Option<SocketAddr> {
        (self.peer != client).then_some(self.peer)
    }
}

/// An address as the log shows it. Without its port if that is 0: it is unknown then.
pub(crate) fn text(address: SocketAddr) -> String {
    if address.port() == 0 { address.ip().to_string() } else { address.to_string() }
}
