//! HTTP/1.1: one call on a connection at a time, the most recently used connection first, so that what a peak has opened
//! falls idle and is closed.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::time::{Instant, timeout};

use super::budget::{Connecting, Open};
use super::pool::{Kind, Pool};
use super::{Attempt, Phase, Received, body, stream};
use crate::endpoint::Endpoint;
use crate::error::{ErrorKind, Failure};
use crate::headers;
use crate::metrics::Extra;

type Body = Full<Bytes>;

/// A connection that has answered completely may need a moment until it can take the next request.
const SETTLE: Duration = Duration::from_secs(1);
/// Kept connections that turn out to be closed before anything was sent on them. Each costs a loop and no request.
const MAX_STALE: usize = 8;

/// HTTP/1.1 connections.
#[derive(Debug)]
pub(crate) struct Http1;

/// Unused connections, the most recently used last.
#[derive(Default, Debug)]
pub(crate) struct Idle(Vec<(SendRequest<Body>, Instant)>);

/// A connection in use by one call. Dropping it closes the connection, unless it was given back.
#[derive(Debug)]
pub(crate) struct Lease {
    pool: Rc<Pool<Http1>>,
    /// Gone only after the lease has been given back.
    sender: Option<SendRequest<Body>>,
    /// Served a call before, so that the endpoint may have closed it meanwhile.
    kept: bool,
}

impl Drop for Lease {
    fn drop(&mut self) {
        // An unused lease was given to a call that went away; the connection is as good as before. After a request was put on
        // it and not answered to the end, it is not ready, and closes.
        if let Some(sender) = self.sender.take()
            && sender.is_ready()
        {
            give_back(&self.pool, sender);
        }
    }
}

fn give_back(pool: &Rc<Pool<Http1>>, sender: SendRequest<Body>) {
    if pool.endpoint.is_retired() {
        return;
    }
    pool.with_store(|store| store.0.push((sender, Instant::now())));
}

impl Kind for Http1 {
    type Lease = Lease;
    type Store = Idle;

    fn take(pool: &Rc<Pool<Http1>>, store: &mut Idle) -> Option<Lease> {
        while let Some((sender, _)) = store.0.pop() {
            if sender.is_ready() {
                return Some(Lease { pool: pool.clone(), sender: Some(sender), kept: true });
            }
        }
        None
    }

    fn wants_more(_: &Endpoint, _: &Idle, connecting: usize, waiting: usize) -> bool {
        connecting < waiting
    }

    async fn connect(pool: Rc<Pool<Http1>>, permit: Connecting) -> Result<(), Failure> {
        let endpoint = &pool.endpoint;
        let tcp = stream::connect(endpoint).await?;
        let sender = match &endpoint.origin.tls {
            None => handshake(endpoint, tcp, permit).await?,
            Some(tls) => handshake(endpoint, tls.handshake(tcp, endpoint).await?, permit).await?,
        };
        pool.with_store(|store| store.0.push((sender, Instant::now())));
        Ok(())
    }

    fn tidy(store: &mut Idle, before: Option<Instant>, surrender: usize) {
        store.0.retain(|(sender, since)| before.is_none_or(|before| *since > before) && !sender.is_closed());
        store.0.drain(..surrender.min(store.0.len()));
    }

    fn idle(store: &Idle) -> usize {
        store.0.len()
    }
}

async fn handshake<S>(endpoint: &Endpoint, stream: S, permit: Connecting) -> Result<SendRequest<Body>, Failure>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let failed = |error: hyper::Error| Failure::new(ErrorKind::Connect, format!("{}: {error}", endpoint.address));
    let (mut sender, connection) =
        http1::Builder::new().handshake::<_, Body>(TokioIo::new(stream)).await.map_err(failed)?;
    let open: Open = permit.opened();
    tokio::task::spawn_local(async move {
        // Errors of a connection reach the call that uses it; without one there is nobody to tell.
        let _ = connection.await;
        drop(open);
    });
    // A sender says that it is ready once its connection has been polled.
    sender.ready().await.map_err(failed)?;
    Ok(sender)
}

/// Sends one request and reads the whole answer.
pub(crate) async fn send(pool: &Rc<Pool<Http1>>, attempt: &Attempt<'_>) -> Result<Received, Failure> {
    let mut stale = 0;
    loop {
        attempt.phase.set(Phase::Connecting);
        let mut lease = pool.checkout(attempt.age).await?;
        let Some(sender) = lease.sender.as_mut() else {
            return Err(Failure::ours("a connection was used twice"));
        };
        attempt.phase.set(Phase::Sent);
        let request = attempt.http1_request()?;
        attempt.metrics.count(Extra::Sent);
        match sender.try_send_request(request).await {
            Ok(response) => {
                let (head, incoming) = response.into_parts();
                attempt.phase.set(Phase::Answering);
                if head.status.as_u16() < 200 {
                    let detail = format!("{}: status {} is not an answer", pool.endpoint.address, head.status.as_u16());
                    return Err(Failure::new(ErrorKind::Protocol, detail));
                }
                let body = body::collect(incoming, attempt).await?;
                finish(lease);
                let mut headers = head.headers;
                headers::detach(&mut headers);
                return Ok(Received { status: head.status, headers, body });
            }
            Err(mut error) => {
                let unsent = error.take_message().is_some();
                let error = error.into_error();
                // The endpoint closed a kept connection while the request was on its way. It is sent again if it surely was
                // not looked at, or if looking at it twice does no harm.
                let closed = error.is_incomplete_message() || error.is_canceled() || is_reset(&error);
                if lease.kept && stale < MAX_STALE && (unsent || (closed && attempt.safe && stale == 0)) {
                    stale += 1;
                    attempt.metrics.count(Extra::Resent);
                    drop(lease);
                    // All others have been unused for longer than this one: they share its fate, or soon will.
                    pool.with_store(|store| store.0.clear());
                    continue;
                }
                return Err(failure(&pool.endpoint, &error, unsent));
            }
        }
    }
}

/// The connection is free for the next call, at once in nearly all cases.
fn finish(mut lease: Lease) {
    let Some(mut sender) = lease.sender.take() else { return };
    let pool = lease.pool.clone();
    if sender.is_ready() {
        give_back(&pool, sender);
    } else if !sender.is_closed() {
        tokio::task::spawn_local(async move {
            if let Ok(Ok(())) = timeout(SETTLE, sender.ready()).await {
                give_back(&pool, sender);
            }
        });
    }
}

fn is_reset(error: &hyper::Error) -> bool {
    let io = std::error::Error::source(error).and_then(|source| source.downcast_ref::<std::io::Error>());
    io.is_some_and(|io| {
        matches!(
            io.kind(),
            std::io::ErrorKind::ConnectionReset
                | std::io::ErrorKind::BrokenPipe
                | std::io::ErrorKind::ConnectionAborted
        )
    })
}

fn failure(endpoint: &Endpoint, error: &hyper::Error, unsent: bool) -> Failure {
    let what = if error.is_incomplete_message() {
        "connection closed before the answer".to_owned()
    } else {
        match std::error::Error::source(error) {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        }
    };
    let failure = Failure::new(ErrorKind::Protocol, format!("{}: {what}", endpoint.address));
    if unsent { failure.unsent() } else { failure }
}
