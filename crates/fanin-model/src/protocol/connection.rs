//! One connection: its requests, its maximum age, its end.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;
use std::time::Duration;

use ::http::{Request, Response};
use fanin_tls::{Listener, Outcome};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use super::connection_state::{CloseReason, ConnectionState};
use super::reply::Reply;
use super::service::Service;
use super::serving::Serving;
use super::{grpc, rest};

/// Most time for a request's head over HTTP/1.1, and between requests.
const HEAD_TIMEOUT: Duration = Duration::from_secs(75);
/// Concurrent streams of one HTTP/2 connection. Further requests wait at the client.
const MAX_STREAMS: u32 = 1024;

/// Runs hyper's tasks on this thread.
#[derive(Clone, Copy, Debug)]
struct LocalExecutor;

impl<F: Future<Output = ()> + 'static> hyper::rt::Executor<F> for LocalExecutor {
    fn execute(&self, future: F) {
        tokio::task::spawn_local(future);
    }
}

/// What the requests of a connection share.
struct Shared {
    service: Arc<Service>,
    serving: Rc<Serving>,
    state: Rc<ConnectionState>,
    peer: SocketAddr,
}

/// Counts a connection as open until dropped.
struct OpenConnection {
    shared: Rc<Shared>,
    key: usize,
}

impl OpenConnection {
    fn new(service: Arc<Service>, serving: Rc<Serving>, peer: SocketAddr) -> OpenConnection {
        let state = Rc::new(ConnectionState::new(&service.models.config()));
        if serving.draining.get() {
            state.close(CloseReason::Drain);
        }
        let key = serving.connections.add(state.clone());
        OpenConnection { shared: Rc::new(Shared { service, serving, state, peer }), key }
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.shared.service.connections.fetch_sub(1, Relaxed);
        self.shared.serving.connections.remove(self.key);
    }
}

/// Why serving a connection stops.
enum Stop {
    /// The client closed it, broke the protocol, or reads too slowly.
    Now,
    /// Gracefully, once its requests are answered.
    Drain,
    /// Gracefully, within `max_connection_age_grace`: too old, or idle.
    Retire,
}

pub(super) async fn run(service: Arc<Service>, serving: Rc<Serving>, stream: TcpStream, peer: SocketAddr) {
    let open = OpenConnection::new(service, serving, peer);
    let shared = &open.shared;
    let within = shared.service.models.config().header_timeout;
    if !sends(&stream, &shared.state, within).await {
        return;
    }
    match shared.service.tls.load_full() {
        None => serve(shared, stream).await,
        // Without TLS, a connection has no room for its state.
        Some(listener) => Box::pin(serve_tls(shared, stream, listener, within)).await,
    }
    drop(open);
}

/// After the handshake, as any other connection.
async fn serve_tls(shared: &Rc<Shared>, stream: TcpStream, listener: Arc<Listener>, within: Duration) {
    let accepting = TlsAcceptor::from(listener.config().clone()).accept(stream);
    let mut accepting = pin!(tokio::time::timeout(within, accepting));
    let accepted = poll_fn(|cx| match accepting.as_mut().poll(cx) {
        Poll::Ready(accepted) => Poll::Ready(Some(accepted)),
        Poll::Pending => shared.state.poll_close(cx).map_or(Poll::Pending, |_| Poll::Ready(None)),
    });
    let handshakes = &shared.service.handshakes;
    let stream = match accepted.await {
        Some(Ok(Ok(stream))) => stream,
        Some(Ok(Err(error))) => {
            tracing::debug!(%error, remote = %shared.peer, "models: TLS handshake failed");
            return handshakes.count(Outcome::of_error(&error));
        }
        Some(Err(_)) => return handshakes.count(Outcome::TimedOut),
        None => return,
    };
    // Who may connect may use all models.
    if let Err(outcome) = listener.client(stream.get_ref().1) {
        return handshakes.count(outcome);
    }
    handshakes.count(Outcome::of(stream.get_ref().1));
    serve(shared, stream).await;
}

/// Serves the requests of a connection until it ends.
async fn serve(shared: &Rc<Shared>, stream: impl AsyncRead + AsyncWrite + Unpin + 'static) {
    let config = shared.service.models.config();
    let mut builder = Builder::new(LocalExecutor);
    builder.http1().timer(TokioTimer::new()).header_read_timeout(config.idle_timeout.min(HEAD_TIMEOUT));
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(config.keepalive)
        .keep_alive_timeout(config.keepalive_timeout)
        .max_concurrent_streams(MAX_STREAMS);
    let for_requests = shared.clone();
    let handler = service_fn(move |request: Request<Incoming>| {
        let shared = for_requests.clone();
        async move {
            let _request = shared.state.request();
            let mut response = handle(&shared, request).await;
            response.body_mut().attach(&shared.state);
            Ok::<_, Infallible>(response)
        }
    });
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), handler));
    // Jitter, so that connections opened together are not closed together.
    let age = |age: Duration| tokio::time::sleep(age.mul_f64(0.9 + 0.2 * fastrand::f64()));
    let mut age = pin!(config.max_connection_age.map(age));
    // Not `select!`: this is polled several times a request, and checking two cells costs next to nothing.
    let stop = poll_fn(|cx| {
        if connection.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Stop::Now);
        }
        match shared.state.poll_close(cx) {
            Some(CloseReason::SlowReader) => {
                shared.service.slow_readers.fetch_add(1, Relaxed);
                return Poll::Ready(Stop::Now);
            }
            Some(CloseReason::Drain) => return Poll::Ready(Stop::Drain),
            Some(CloseReason::Idle) => return Poll::Ready(Stop::Retire),
            None => {}
        }
        match age.as_mut().as_pin_mut().map(|age| age.poll(cx)) {
            Some(Poll::Ready(())) => Poll::Ready(Stop::Retire),
            _ => Poll::Pending,
        }
    });
    match stop.await {
        Stop::Now => {}
        Stop::Drain => {
            connection.as_mut().graceful_shutdown();
            // The server bounds how long draining may take.
            let _ = connection.await;
        }
        Stop::Retire => {
            connection.as_mut().graceful_shutdown();
            let _ = tokio::time::timeout(config.max_connection_age_grace, connection).await;
        }
    }
}

/// Waits for the first bytes of a client. `false` if none come in time, or the server drains. Before them it is not known which protocol
/// the client speaks, so that no timeout of HTTP applies.
async fn sends(stream: &TcpStream, state: &ConnectionState, within: Duration) -> bool {
    let mut first = pin!(tokio::time::timeout(within, stream.readable()));
    poll_fn(|cx| match first.as_mut().poll(cx) {
        Poll::Ready(first) => Poll::Ready(matches!(first, Ok(Ok(())))),
        Poll::Pending => match state.poll_close(cx) {
            Some(_) => Poll::Ready(false),
            None => Poll::Pending,
        },
    })
    .await
}

async fn handle(shared: &Shared, request: Request<Incoming>) -> Response<Reply> {
    let is_grpc = request
        .headers()
        .get(::http::header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
    if is_grpc {
        grpc::handle(&shared.service, &shared.serving, shared.peer, request).await
    } else {
        rest::handle(&shared.service, shared.peer, request).await
    }
}
