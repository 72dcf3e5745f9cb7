//! A client's connection, from the first byte to the last.

mod conn;
mod early;
mod io;
mod line;
mod shed;
mod sniff;

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};

use http::StatusCode;
use hyper::rt::Executor;
use hyper::server::conn::{http1, http2};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::spawn_local;
use tokio_rustls::TlsAcceptor;

pub(crate) use conn::Conn;
use io::Io;
pub(crate) use line::Departures;
use line::Line;
pub(crate) use shed::Shed;
use sniff::Prefix;

use crate::Application;
use crate::metrics::Closed;
use crate::serve::Service;
use crate::worker::{Site, WorkerState};

/// Streams of an HTTP/2 connection that may be open at once. More wait at the client.
const MAX_STREAMS: u32 = 256;

/// Serves the connection in a task of its own. It has been counted in [`WorkerState::open`].
pub(crate) fn start<A: Application>(
    worker: &Rc<WorkerState<A>>,
    site: &Site<A>,
    stream: TcpStream,
    remote: SocketAddr,
) {
    let open = Open::new(worker, remote);
    match &site.generation.tls {
        None => spawn_local(serve(open, stream)),
        Some(tls) => spawn_local(serve_tls(open, stream, TlsAcceptor::from(tls.clone()))),
    };
}

/// An open connection in the worker's table, until it is dropped.
struct Open<A: Application> {
    worker: Rc<WorkerState<A>>,
    conn: Rc<Conn>,
    key: usize,
}

impl<A: Application> Open<A> {
    fn new(worker: &Rc<WorkerState<A>>, remote: SocketAddr) -> Open<A> {
        let conn = Rc::new(Conn::new(remote, worker.now.clone(), worker.stats.clone()));
        let mut connections = worker.connections.borrow_mut();
        if connections.is_empty() {
            worker.first_connection.notify_one();
        }
        worker.stats.accepted.add(1);
        Open { worker: worker.clone(), key: connections.insert(conn.clone()), conn }
    }

    /// Runs a part of the connection's life until it ends, times out, or the server drains (which ends what has not become a
    /// request yet).
    async fn unless_expired<T>(&self, part: impl Future<Output = T>) -> Result<T, Option<Closed>> {
        let mut part = pin!(part);
        poll_fn(|cx| {
            self.conn.note_waker(cx);
            self.worker.pulse.turn();
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
        self.worker.connections.borrow_mut().remove(self.key);
        self.worker.stats.closed.add(1);
        self.worker.open.fetch_sub(1, Relaxed);
    }
}

async fn serve_tls<A: Application>(open: Open<A>, stream: TcpStream, acceptor: TlsAcceptor) {
    open.conn.handshake();
    let Ok(handshake) = open.unless_expired(acceptor.accept(stream)).await else { return };
    match handshake {
        Ok(stream) if stream.get_ref().1.alpn_protocol() == Some(b"h2") => {
            serve_http2(open, stream, Prefix::default()).await;
        }
        Ok(stream) => serve_http1(open, stream, Prefix::default()).await,
        Err(error) => {
            open.worker.stats.tls_failures.add(1);
            tracing::debug!(%error, remote = %open.conn.remote, "TLS handshake failed");
        }
    }
}

async fn serve<A: Application>(open: Open<A>, mut stream: TcpStream) {
    match open.unless_expired(sniff::sniff(&mut stream, || open.conn.has_read())).await {
        Ok(Ok((prefix, true))) => serve_http2(open, stream, prefix).await,
        Ok(Ok((prefix, false))) => serve_http1(open, stream, prefix).await,
        Err(Some(Closed::Header)) => {
            let line = Line::new(stream, open.conn.clone(), open.worker.departures.clone());
            too_slow(&open, &line).await;
        }
        // The client closed, stayed silent, or the server ends: nobody is owed an answer.
        Ok(Err(_)) | Err(_) => {}
    }
}

async fn serve_http1<A, S>(open: Open<A>, stream: S, prefix: Prefix)
where
    A: Application,
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let site = open.worker.site();
    let line = Line::new(stream, open.conn.clone(), open.worker.departures.clone());
    let io = Io::new(line.clone(), open.conn.clone(), open.worker.clone(), prefix);
    let service = Service::new(open.worker.clone(), open.conn.clone());
    let mut connection = http1::Builder::new()
        .header_read_timeout(None)
        .max_header_size(site.server().max_header_size)
        .serve_connection(io, service);
    drop(site);
    let mut draining = false;
    let ended = poll_fn(|cx| {
        open.conn.note_waker(cx);
        open.worker.pulse.turn();
        if let Poll::Ready(Err(error)) = line.poll_rest(cx) {
            return Poll::Ready(Ended::Unwritten(error));
        }
        if let Poll::Ready(result) = Pin::new(&mut connection).poll(cx) {
            return Poll::Ready(Ended::ByItself(result));
        }
        // Only now: a request whose bytes are here already has become one and is served.
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
    match ended {
        Ended::ByItself(Err(error)) => {
            if error.is_parse() && !open.conn.has_answered_early() {
                open.worker.stats.protocol_errors.add(1);
            }
            tracing::debug!(%error, remote = %open.conn.remote, "connection ended");
        }
        Ended::Unwritten(error) => tracing::debug!(%error, remote = %open.conn.remote, "connection ended"),
        Ended::Expired(Closed::Header) => too_slow(&open, &line).await,
        Ended::ByItself(Ok(())) | Ended::Expired(_) => {}
    }
}

enum Ended {
    ByItself(hyper::Result<()>),
    /// What was written did not get through.
    Unwritten(std::io::Error),
    Expired(Closed),
}

/// 408 to a client whose request's head has begun but does not end. It gets one attempt: the socket has room, or never mind.
async fn too_slow<A: Application, S>(open: &Open<A>, line: &Line<S>)
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    if !open.conn.is_in_head() || line.is_queued() {
        return;
    }
    open.conn.answers_early();
    let answer = early::answer(StatusCode::REQUEST_TIMEOUT, "");
    let attempt = |cx: &mut Context<'_>| {
        ready!(line.poll_rest(cx))?;
        ready!(line.with(|stream| stream.poll_write(cx, &answer)))?;
        line.poll_shutdown(cx)
    };
    let _: Poll<std::io::Result<()>> = poll_fn(|cx| Poll::Ready(attempt(cx))).await;
}

async fn serve_http2<A, S>(open: Open<A>, stream: S, prefix: Prefix)
where
    A: Application,
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    open.conn.speaks_http2();
    let site = open.worker.site();
    let line = Line::new(stream, open.conn.clone(), open.worker.departures.clone());
    let io = Io::new(line.clone(), open.conn.clone(), open.worker.clone(), prefix);
    let service = Service::new(open.worker.clone(), open.conn.clone());
    let mut connection = http2::Builder::new(Local)
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(u32::try_from(site.server().max_header_size).unwrap_or(u32::MAX))
        .serve_connection(io, service);
    drop(site);
    let mut leaving = false;
    let ended = poll_fn(|cx| {
        open.conn.note_waker(cx);
        open.worker.pulse.turn();
        if let Poll::Ready(Err(error)) = line.poll_rest(cx) {
            return Poll::Ready(Ended::Unwritten(error));
        }
        if open.worker.draining.get() && !leaving {
            leaving = true;
            open.conn.says_goodbye();
            Pin::new(&mut connection).graceful_shutdown();
        }
        if let Poll::Ready(result) = Pin::new(&mut connection).poll(cx) {
            return Poll::Ready(Ended::ByItself(result));
        }
        match open.conn.expired() {
            Some(Closed::Idle) if !leaving => {
                // Says goodbye; the client has as long as after any last answer.
                leaving = true;
                open.conn.says_goodbye();
                Pin::new(&mut connection).graceful_shutdown();
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Some(closed) => Poll::Ready(Ended::Expired(closed)),
            None => Poll::Pending,
        }
    })
    .await;
    if let Ended::ByItself(Err(error)) = ended {
        if error.is_parse() {
            open.worker.stats.protocol_errors.add(1);
        }
        tracing::debug!(%error, remote = %open.conn.remote, "connection ended");
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
