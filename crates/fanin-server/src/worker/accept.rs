//! From the listening socket to connections.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};

use super::WorkerState;
use crate::{Application, connection};

/// The response to a client above `max_connections`. Its request is not read.
const TOO_MANY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\n\
content-type: application/problem+json\r\ncontent-length: 126\r\n\r\n\
{\"type\":\"urn:fanin:problem:overloaded\",\"title\":\"The server is overloaded\",\"status\":503,\"reason\":\"max-connections\",\"detail\":\"\"}";

/// Accepts connections. Never ends. After an error of the system (no more files, no memory) it pauses, so that it does not spin.
pub(super) async fn run<A: Application>(worker: Rc<WorkerState<A>>, listener: Rc<TcpListener>) {
    loop {
        match listener.accept().await {
            Ok((stream, remote)) => accepted(&worker, stream, remote),
            Err(error) if is_of_the_connection(&error) => worker.stats.accept_errors.add(1),
            Err(error) => {
                worker.stats.accept_errors.add(1);
                tracing::error!(%error, "cannot accept connections; trying again in 50 ms");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// Takes the connections that the kernel has accepted already, so that closing the socket does not reset them.
pub(super) async fn accept_pending<A: Application>(worker: &Rc<WorkerState<A>>, listener: &TcpListener) {
    poll_fn(|cx| {
        while let Poll::Ready(Ok((stream, remote))) = listener.poll_accept(cx) {
            accepted(worker, stream, remote);
        }
        Poll::Ready(())
    })
    .await;
}

fn is_of_the_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

fn accepted<A: Application>(worker: &Rc<WorkerState<A>>, stream: TcpStream, remote: SocketAddr) {
    worker.heartbeat.beat();
    let generation = worker.generation();
    if worker.open.fetch_add(1, Relaxed) >= generation.server().max_connections {
        worker.open.fetch_sub(1, Relaxed);
        worker.stats.refused.add(1);
        if generation.shared.tls.is_none() {
            // One attempt: a client that cannot take it at once sees the connection close.
            let _ = stream.try_write(TOO_MANY);
        }
        return;
    }
    // Nagle's algorithm would delay the end of a large response until an acknowledgement arrives.
    let _ = stream.set_nodelay(true);
    connection::start(worker, &generation, stream, remote);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fixed_response_is_well_formed() {
        let text = std::str::from_utf8(TOO_MANY).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.ends_with(&format!("content-length: {}", body.len())), "{}", body.len());
        let json: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(json["status"], 503);
    }
}
