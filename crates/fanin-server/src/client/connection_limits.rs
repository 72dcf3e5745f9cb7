//! The bounds of a connection's client, as its requests see them.

use std::cell::{Cell, OnceCell};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use fanin_config::Server;

use super::is_trusted;
use super::limits::{Bound, Client, Clients, Taken};

/// Empty for a connection whose client is trusted.
#[derive(Debug, Default)]
pub(crate) struct ConnectionLimits {
    /// Dropped before the client, which keeps the entry.
    connection: OnceCell<Taken>,
    client: OnceCell<Client>,
    /// A request was reset.
    has_resets: Cell<bool>,
    /// Too many were.
    is_over: Cell<bool>,
    /// The connection has ended: what is given up from now on was not reset.
    has_ended: Cell<bool>,
}

/// Whether an address has no bounds as a client.
fn is_exempt(server: &Server, address: IpAddr) -> bool {
    address.to_canonical().is_loopback() || is_trusted(server, address)
}

impl ConnectionLimits {
    /// The connection's client is known.
    ///
    /// # Errors
    /// It has too many connections.
    pub(crate) fn set_client(&self, clients: &Arc<Clients>, server: &Server, address: IpAddr) -> Result<(), Bound> {
        if is_trusted(server, address) {
            return Ok(());
        }
        if is_exempt(server, address) {
            let _ = self.client.set(clients.alone());
            return Ok(());
        }
        let client = clients.client(address);
        let taken = client.take(Bound::Connections, server.max_connections_per_client).ok_or(Bound::Connections)?;
        // Set once in a connection's life.
        let _ = (self.client.set(client), self.connection.set(taken));
        Ok(())
    }

    /// A TLS handshake begins.
    ///
    /// # Errors
    /// The client has too many of them.
    pub(crate) fn begin_handshake(&self, server: &Server) -> Result<Option<Taken>, Bound> {
        let Some(client) = self.bounded_client() else { return Ok(None) };
        client.take(Bound::Handshakes, server.max_handshakes_per_client).map(Some).ok_or(Bound::Handshakes)
    }

    /// The client if others may share it.
    fn bounded_client(&self) -> Option<&Client> {
        self.connection.get().and(self.client.get())
    }

    /// A request begins. `forwarded`: its client, if a header names it.
    ///
    /// # Errors
    /// The bound that it exceeds.
    #[inline]
    pub(crate) fn begin_request(
        &self,
        clients: &Arc<Clients>,
        server: &Server,
        is_http2: bool,
        forwarded: Option<IpAddr>,
        now: Instant,
    ) -> Result<Option<InProgress>, Bound> {
        if is_http2
            && let Some(max) = server.max_resets_per_client
            && clients.any_over(now)
            && self.with_client(clients, server, forwarded, |client| client.is_over(max, now)) == Some(true)
        {
            return Err(Bound::Resets);
        }
        match server.max_in_progress_per_client {
            None => Ok(None),
            Some(max) => self.take_request(clients, server, forwarded, max),
        }
    }

    fn take_request(
        &self,
        clients: &Arc<Clients>,
        server: &Server,
        forwarded: Option<IpAddr>,
        max: usize,
    ) -> Result<Option<InProgress>, Bound> {
        let (client, named) = match forwarded {
            Some(address) if is_exempt(server, address) => return Ok(None),
            Some(address) => (None, Some(clients.client(address))),
            None => (self.bounded_client(), None),
        };
        let Some(client) = named.as_ref().or(client) else { return Ok(None) };
        let taken = client.take(Bound::InProgress, Some(max)).ok_or(Bound::InProgress)?;
        Ok(Some(InProgress { _taken: taken, _client: named }))
    }

    fn with_client<R>(
        &self,
        clients: &Arc<Clients>,
        server: &Server,
        forwarded: Option<IpAddr>,
        run: impl FnOnce(&Client) -> R,
    ) -> Option<R> {
        match forwarded {
            Some(address) if is_exempt(server, address) => None,
            Some(address) => Some(run(&clients.client(address))),
            None => self.client.get().map(run),
        }
    }

    /// The client reset an HTTP/2 request before its response. Whether the connection is to be closed now.
    pub(crate) fn on_reset(&self, clients: &Arc<Clients>, server: &Server, forwarded: Option<IpAddr>) -> bool {
        if self.has_ended.get() {
            return false;
        }
        self.has_resets.set(true);
        let Some(max) = server.max_resets_per_client else { return false };
        let over = self.with_client(clients, server, forwarded, |client| client.reset(max, Instant::now()));
        // Other clients of a load balancer share its connection.
        let closes = over == Some(true) && forwarded.is_none() && !self.is_over.get();
        self.is_over.set(self.is_over.get() || closes);
        closes
    }

    /// Whether a request of this connection was reset.
    #[inline]
    pub(crate) fn has_resets(&self) -> bool {
        self.has_resets.get()
    }

    /// Whether the connection is to be closed because of resets.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.get()
    }

    /// The connection has ended.
    pub(crate) fn end(&self) {
        self.has_ended.set(true);
    }
}

/// A request in progress. Dropped before its client, which keeps the entry.
#[derive(Debug)]
pub(crate) struct InProgress {
    _taken: Taken,
    /// `None`: the connection's, which outlives its requests.
    _client: Option<Client>,
}
