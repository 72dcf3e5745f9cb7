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

/// What a client above `max_connections` gets. Its request is not read.
const TOO_MANY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\n\
content-type: application/problem+json\r\ncontent-length: 126\r\n\r\n\
{\"type\":\"urn:fanin:problem:overloaded\",\"title\":\"The server is overloaded\",\"status\":503,\"reason\":\"max-connections\",\"detail\":\"\"}";

/// Accepts for ever. After an error that is the system's (no more files, no memory) it waits a little, instead of spinning.
pub(super) async fn run<A: Application>(worker: Rc<WorkerState<A>>, listener: Rc<TcpListener>) {
    loop {
        match listener.accept().await {
            Ok((stream, remote)) => accepted(&worker, stream, remote),
            Err(error) if of_the_connection(&error) => worker.stats.accept_errors.add(1),
            Err(error) => {
                worker.stats.accept_errors.add(1);
                tracing::error!(%error, "cannot accept connections; trying again in 50 ms");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// Takes what the kernel has accepted already, so that closing the socket resets nobody.
pub(super) async fn last<A: Application>(worker: &Rc<WorkerState<A>>, listener: &TcpListener) {
    poll_fn(|cx| {
        while let Poll::Ready(Ok((stream, remote))) = listener.poll_accept(cx) {
            accepted(worker, stream, remote);
        }
        Poll::Ready(())
    })
    .await;
}

fn of_the_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

fn accepted<A: Application>(worker: &Rc<WorkerState<A>>, stream: TcpStream, remote: SocketAddr) {
    worker.pulse.turn();
    let site = worker.site();
    if worker.open.fetch_add(1, Relaxed) >= site.server().max_connections {
        worker.open.fetch_sub(1, Relaxed);
        worker.stats.refused.add(1);
        if site.generation.tls.is_none() {
            // If the client cannot take it at once, closing says as much.
            let _ = stream.try_write(TOO_MANY);
        }
        return;
    }
    // Without it the end of a large response may wait for an acknowledgement.
    let _ = stream.set_nodelay(true);
    connection::start(worker, &site, stream, remote);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fixed_answer_is_well_formed() {
        let text = std::str::from_utf8(TOO_MANY).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.ends_with(&format!("content-length: {}", body.len())), "{}", body.len());
        let json: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(json["status"], 503);
    }
}
