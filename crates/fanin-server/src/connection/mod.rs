//! A client's connection, from the first byte to the last.
//!
//! - `proxied`: behind a proxy that sends a PROXY header.
//! - `protocol_detection`: HTTP/1.1 or HTTP/2.
//! - `state`: phase and timeouts; `held_back`: bodies that are not read at present.
//! - `hyper_io`: the socket as hyper sees it; `coalesced_socket`: write coalescing.
//! - `upgraded`: a connection that goes on in another protocol.
//! - `calm`: the end of a connection whose client resets too many requests.
//! - `fast_rejection`, `pre_request_errors`: responses without hyper.

mod body_reader;
mod calm;
mod coalesced_socket;
mod fast_rejection;
pub(crate) mod fuzz;
mod held_back;
mod hyper_io;
mod pre_request_errors;
mod protocol_detection;
mod proxied;
mod state;
mod strict_head;
mod upgraded;

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};

use fanin_tls::{Listener, Outcome};
use http::StatusCode;
use hyper::rt::Executor;
use hyper::server::conn::{http1, http2};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::spawn_local;
use tokio_rustls::TlsAcceptor;

use coalesced_socket::CoalescedSocket;
pub(crate) use coalesced_socket::ResponseBatch;
pub(crate) use fast_rejection::FastRejection;
use hyper_io::HyperIo;
use protocol_detection::Prefix;
pub(crate) use state::{ConnectionState, HeldBack};

use crate::Application;
use crate::client;
use crate::metrics::Closed;
use crate::serve::Service;
use crate::worker::{WorkerGeneration, WorkerState};

/// Most open streams of an HTTP/2 connection. More wait at the client.
const MAX_STREAMS: u32 = 256;

/// Serves the connection in a task of its own. The caller has counted it in [`WorkerState::open`].
pub(crate) fn start<A: Application>(
    worker: &Rc<WorkerState<A>>,
    generation: &WorkerGeneration<A>,
    stream: TcpStream,
    remote: SocketAddr,
) {
    let open = Open::new(worker, remote);
    let tls = generation.shared.tls.clone();
    let server = generation.server();
    if server.proxy_protocol && client::is_trusted(server, remote.ip()) {
        spawn_local(proxied::serve(open, stream, tls));
        return;
    }
    if !open.set_client() {
        return;
    }
    match tls {
        None => spawn_local(serve(open, stream)),
        Some(tls) => spawn_local(serve_tls(open, stream, tls)),
    };
}

/// The same for a client in the same process.
#[cfg(test)]
pub(crate) fn start_in_process<A: Application>(worker: &Rc<WorkerState<A>>, stream: tokio::io::DuplexStream) {
    spawn_local(serve(Open::new(worker, ([127, 0, 0, 1], 1).into()), stream));
}

/// An open connection in the worker's table, until it is dropped.
struct Open<A: Application> {
    worker: Rc<WorkerState<A>>,
    conn: Rc<ConnectionState>,
    key: usize,
}

impl<A: Application> Open<A> {
    fn new(worker: &Rc<WorkerState<A>>, remote: SocketAddr) -> Open<A> {
        let conn = Rc::new(ConnectionState::new(remote, worker.now.clone(), worker.stats.clone()));
        let mut connections = worker.connections.borrow_mut();
        if connections.is_empty() {
            worker.first_connection.notify_one();
        }
        worker.stats.accepted.add(1);
        Open { worker: worker.clone(), key: connections.insert(conn.clone()), conn }
    }

    /// Its client is known. `false`: it has too many connections already.
    fn set_client(&self) -> bool {
        let (generation, address) = (self.worker.generation(), self.conn.client.remote().ip());
        let set = self.conn.limits.set_client(&self.worker.clients, generation.server(), address);
        set.map_err(|bound| self.worker.stats.client_limits[bound as usize].add(1)).is_ok()
    }

    /// Runs a part of the connection's life until it ends, times out, or the server drains. For parts before the first request.
    async fn unless_expired<T>(&self, part: impl Future<Output = T>) -> Result<T, Option<Closed>> {
        let mut part = pin!(part);
        poll_fn(|cx| {
            self.conn.register_waker(cx);
            self.worker.heartbeat.beat();
            if let Poll::Ready(done) = part.as_mut().poll(cx) {
                return Poll::Ready(Ok(done));
            }
            match self.conn.expired() {
                Some(closed) => Poll::Ready(Err(Some(closed))),
                None if self.worker.draining.get() => Poll::Ready(Err(None)),
                None => Poll::Pending,
            }
        })
        .await
    }
}

impl<A: Application> Drop for Open<A> {
    fn drop(&mut self) {
        drop(self.conn.take_takeover());
        self.worker.connections.borrow_mut().remove(self.key);
        self.worker.stats.closed.add(1);
        self.worker.open.fetch_sub(1, Relaxed);
    }
}

async fn serve_tls<A: Application>(open: Open<A>, stream: TcpStream, listener: Arc<Listener>) {
    open.conn.begin_handshake();
    let counted = match open.conn.limits.begin_handshake(open.worker.generation().server()) {
        Ok(counted) => counted,
        Err(bound) => return open.worker.stats.client_limits[bound as usize].add(1),
    };
    let acceptor = TlsAcceptor::from(listener.config().clone());
    let handshake = match open.unless_expired(acceptor.accept(stream)).await {
        Ok(handshake) => handshake,
        Err(Some(_)) => return open.worker.handshakes.count(Outcome::TimedOut),
        Err(None) => return,
    };
    drop(counted);
    let outcome = match handshake {
        Err(error) => {
            tracing::debug!(%error, remote = %open.conn.client.remote(), "TLS handshake failed");
            Outcome::of_error(&error)
        }
        Ok(stream) => {
            let connection = stream.get_ref().1;
            match listener.client(connection) {
                Err(outcome) => outcome,
                Ok(client) => {
                    open.worker.handshakes.count(Outcome::of(connection));
                    open.conn.set_certificate(client);
                    drop(listener);
                    match connection.alpn_protocol() {
                        Some(b"h2") => Box::pin(serve_http2(open, stream, Prefix::default())).await,
                        _ => serve_http1(open, stream, Prefix::default()).await,
                    }
                    return;
                }
            }
        }
    };
    open.worker.handshakes.count(outcome);
    open.worker.stats.tls_failures.add(1);
}

async fn serve<A, S>(open: Open<A>, mut stream: S)
where
    A: Application,
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    match open.unless_expired(protocol_detection::detect(&mut stream, || open.conn.on_read())).await {
        Ok(Ok((prefix, true))) => Box::pin(serve_http2(open, stream, prefix)).await,
        Ok(Ok((prefix, false))) => serve_http1(open, stream, prefix).await,
        Err(Some(Closed::Header)) => {
            let socket = CoalescedSocket::new(stream, open.conn.clone(), open.worker.response_batch.clone());
            send_head_timeout(&open, &socket).await;
        }
        // The client closed or sent nothing, or the server ends: no response is due.
        Ok(Err(_)) | Err(_) => {}
    }
}

async fn serve_http1<A, S>(open: Open<A>, stream: S, prefix: Prefix)
where
    A: Application,
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let generation = open.worker.generation();
    let socket = CoalescedSocket::new(stream, open.conn.clone(), open.worker.response_batch.clone());
    let io = HyperIo::new(socket.clone(), open.conn.clone(), open.worker.clone(), prefix);
    let service = Service::new(open.worker.clone(), open.conn.clone());
    let mut connection = http1::Builder::new()
        .header_read_timeout(None)
        .max_header_size(generation.server().max_header_size)
        .serve_connection(io, service);
    drop(generation);
    let mut draining = false;
    let ended = poll_fn(|cx| {
        open.conn.register_waker(cx);
        open.worker.heartbeat.beat();
        if let Poll::Ready(Err(error)) = socket.poll_unsent(cx) {
            return Poll::Ready(Ended::WriteFailed(error));
        }
        if let Poll::Ready(result) = Pin::new(&mut connection).poll(cx) {
            return Poll::Ready(Ended::ByItself(result));
        }
        // After the poll: a request whose bytes have arrived is served.
        if open.worker.draining.get() && !draining {
            draining = true;
            Pin::new(&mut connection).graceful_shutdown();
            if let Poll::Ready(result) = Pin::new(&mut connection).poll(cx) {
                return Poll::Ready(Ended::ByItself(result));
            }
        }
        open.conn.expired().map_or(Poll::Pending, |closed| Poll::Ready(Ended::Expired(closed)))
    })
    .await;
    // Of a connection that ended in any other way, the drop ends its request.
    let takeover = open.conn.take_takeover().filter(|_| matches!(ended, Ended::ByItself(Ok(()))));
    if let Some(takeover) = takeover {
        let parts = connection.into_parts();
        open.conn.change_task();
        // A task of its own, which has no room for the HTTP/1.1 connection.
        spawn_local(upgraded::serve(open, socket, parts.io, takeover, parts.read_buf.is_empty()));
        return;
    }
    match ended {
        Ended::ByItself(Err(error)) => {
            if error.is_parse() && !open.conn.has_pre_request_error() {
                open.worker.stats.protocol_errors.add(1);
            }
            tracing::debug!(%error, remote = %open.conn.client.remote(), "connection ended");
        }
        Ended::WriteFailed(error) => tracing::debug!(%error, remote = %open.conn.client.remote(), "connection ended"),
        Ended::Expired(Closed::Header) => send_head_timeout(&open, &socket).await,
        Ended::ByItself(Ok(())) | Ended::Expired(_) | Ended::TooManyResets => {}
    }
}

enum Ended {
    ByItself(hyper::Result<()>),
    /// A batched write failed.
    WriteFailed(std::io::Error),
    Expired(Closed),
    /// HTTP/2: the client resets too many requests.
    TooManyResets,
}

/// Sends 408 to a client whose request's head did not arrive in time. One attempt: if the socket has no room, nothing is sent.
async fn send_head_timeout<A: Application, S>(open: &Open<A>, socket: &CoalescedSocket<S>)
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    if !open.conn.is_receiving_head() || socket.is_batched() {
        return;
    }
    open.conn.on_pre_request_error();
    let response = pre_request_errors::response(StatusCode::REQUEST_TIMEOUT, "");
    let attempt = |cx: &mut Context<'_>| {
        ready!(socket.poll_unsent(cx))?;
        ready!(socket.with(|stream| stream.poll_write(cx, &response)))?;
        socket.poll_shutdown(cx)
    };
    let _: Poll<std::io::Result<()>> = poll_fn(|cx| Poll::Ready(attempt(cx))).await;
}

async fn serve_http2<A, S>(open: Open<A>, stream: S, prefix: Prefix)
where
    A: Application,
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    open.conn.set_http2();
    let generation = open.worker.generation();
    let socket = CoalescedSocket::new(stream, open.conn.clone(), open.worker.response_batch.clone());
    let io = HyperIo::new(socket.clone(), open.conn.clone(), open.worker.clone(), prefix);
    let service = Service::new(open.worker.clone(), open.conn.clone());
    let mut connection = http2::Builder::new(Local)
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(u32::try_from(generation.server().max_header_size).unwrap_or(u32::MAX))
        .serve_connection(io, service);
    drop(generation);
    let mut shutting_down = false;
    let ended = poll_fn(|cx| {
        open.conn.register_waker(cx);
        open.worker.heartbeat.beat();
        if let Poll::Ready(Err(error)) = socket.poll_unsent(cx) {
            return Poll::Ready(Ended::WriteFailed(error));
        }
        if open.conn.limits.is_over() {
            return Poll::Ready(Ended::TooManyResets);
        }
        if open.worker.draining.get() && !shutting_down {
            shutting_down = true;
            open.conn.begin_shutdown();
            Pin::new(&mut connection).graceful_shutdown();
        }
        if let Poll::Ready(result) = Pin::new(&mut connection).poll(cx) {
            return Poll::Ready(Ended::ByItself(result));
        }
        match open.conn.expired() {
            Some(Closed::Idle) if !shutting_down => {
                // Send GOAWAY and give the client as much time as after any last response.
                shutting_down = true;
                open.conn.begin_shutdown();
                Pin::new(&mut connection).graceful_shutdown();
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Some(closed) => Poll::Ready(Ended::Expired(closed)),
            None => Poll::Pending,
        }
    })
    .await;
    // Its requests end with it; none of them was reset.
    open.conn.limits.end();
    drop(connection);
    match ended {
        Ended::ByItself(Err(error)) => {
            if error.is_parse() {
                open.worker.stats.protocol_errors.add(1);
            }
            tracing::debug!(%error, remote = %open.conn.client.remote(), "connection ended");
        }
        Ended::TooManyResets => {
            tracing::debug!(remote = %open.conn.client.remote(), "the client resets too many requests");
            calm::send(&open, &socket).await;
        }
        _ => {}
    }
}

/// Runs the streams of HTTP/2 connections on their worker.
#[derive(Clone, Copy, Debug)]
struct Local;

impl<F: Future + 'static> Executor<F> for Local {
    fn execute(&self, future: F) {
        spawn_local(async move {
            future.await;
        });
    }
}
