//! A connection behind a proxy that sends a PROXY header.

use std::sync::Arc;

use fanin_tls::Listener;
use tokio::net::TcpStream;

use super::{Open, serve as serve_plain, serve_tls};
use crate::Application;
use crate::client::{HeaderError, read_proxy_header};

/// Reads the PROXY header within `header_timeout`, then serves the connection as any other.
pub(super) async fn serve<A: Application>(open: Open<A>, stream: TcpStream, tls: Option<Arc<Listener>>) {
    open.conn.begin_handshake();
    match open.unless_expired(read_proxy_header(&stream)).await {
        Ok(Ok(Some(client))) => open.conn.client.name(client),
        Ok(Ok(None)) => {}
        Ok(Err(error)) => {
            if matches!(error, HeaderError::Malformed) {
                open.worker.stats.proxy_protocol_errors.add(1);
            }
            tracing::debug!(%error, peer = %open.conn.client.remote(), "no PROXY header");
            return;
        }
        Err(_) => return,
    }
    if !open.set_client() {
        return;
    }
    open.conn.end_handshake();
    match tls {
        None => serve_plain(open, stream).await,
        Some(tls) => serve_tls(open, stream, tls).await,
    }
}
