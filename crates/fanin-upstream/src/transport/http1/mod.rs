//! HTTP/1.1: one call on a connection at a time. The most recently used connection is taken first, so that connections
//! of a peak become unused and are closed.
//!
//! # Why not hyper's client
//! hyper runs a connection as a task of its own. A call hands its request over through a channel, is woken through
//! another, and gets its answer as a map of headers and a stream of parts, each with a wake-up. A flow's call needs a
//! small answer as a whole. So here everything runs in the call's own future, and dropping the call closes its
//! connection. The parser is the same, `httparse`; [`head`] and [`chunked`] are stricter about framing.
//! `tests/transports/differential.rs` compares the answers with hyper's.

mod chunked;
mod connection;
mod exchange;
pub(crate) mod fuzz;
mod head;
mod request;
mod streamed;
mod uploading;

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;

use tokio::time::Instant;

use super::attempt::{Attempt, Phase, Received};
use super::connection_budget::ConnectPermit;
use super::pool::{Pool, PoolKind};
use super::stream::{self, Stream};
use super::{body, write_coalescing};
use crate::endpoint::Endpoint;
use crate::error::{ErrorKind, Failure};
use crate::metrics::Extra;
use connection::{Connection, Shared};
use exchange::{Exchange, ExchangeError};

pub(crate) use request::header_lines;

/// Most kept connections that a call finds closed before anything was sent on them.
const MAX_STALE: usize = 8;

/// HTTP/1.1 connections.
#[derive(Debug)]
pub(crate) struct Http1;

/// Unused connections, the most recently used one last.
#[derive(Default, Debug)]
pub(crate) struct Idle(Vec<(Shared, Instant)>);

/// A connection in use by one call. Dropping it closes the connection, unless it was returned to the pool.
#[derive(Debug)]
pub(crate) struct Lease {
    pool: Rc<Pool<Http1>>,
    /// `None` only after the connection was returned.
    connection: Option<Shared>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        // An unused lease was given to a call that was dropped: the connection is as good as before.
        if let Some(connection) = self.connection.take() {
            Connection::withdraw(&connection);
            if !connection.borrow().busy {
                return_to_pool(&self.pool, connection, Instant::now());
            }
        }
    }
}

/// Returns a connection to the pool, which is woken when the endpoint closes it.
fn return_to_pool(pool: &Rc<Pool<Http1>>, connection: Shared, now: Instant) {
    let stays_quiet = connection.borrow_mut().stays_quiet(&pool.waker);
    if stays_quiet && !pool.endpoint.is_retired() {
        pool.with_store(|store| store.0.push((connection, now)));
    }
}

impl PoolKind for Http1 {
    type Lease = Lease;
    type Store = Idle;

    fn take(pool: &Rc<Pool<Http1>>, store: &mut Idle) -> Option<Lease> {
        while let Some((connection, _)) = store.0.pop() {
            let is_quiet = connection.borrow_mut().is_quiet();
            if is_quiet {
                return Some(Lease { pool: pool.clone(), connection: Some(connection) });
            }
        }
        None
    }

    fn wants_more(_: &Endpoint, _: &Idle, connecting: usize, waiting: usize) -> bool {
        connecting < waiting
    }

    async fn connect(pool: Rc<Pool<Http1>>, permit: ConnectPermit) -> Result<(), Failure> {
        let endpoint = &pool.endpoint;
        let tcp = stream::connect(endpoint.address).await?;
        let stream = match &endpoint.origin.tls {
            None => Stream::Tcp(tcp),
            Some(tls) => Stream::Tls(Box::new(tls.handshake(tcp, endpoint.address).await?)),
        };
        let mut connection = Connection::new(stream, permit.opened());
        if !connection.stays_quiet(&pool.waker) {
            let detail = format!("{}: closed as soon as it was open", endpoint.address);
            return Err(Failure::new(ErrorKind::Connect, detail));
        }
        // A call waits for it, even if the endpoint has been retired since.
        pool.with_store(|store| store.0.push((Rc::new(RefCell::new(connection)), Instant::now())));
        Ok(())
    }

    fn close_unused(pool: &Pool<Http1>, store: &mut Idle, before: Option<Instant>, release_requests: usize) {
        store.0.retain_mut(|(connection, since)| {
            before.is_none_or(|before| *since > before) && connection.borrow_mut().stays_quiet(&pool.waker)
        });
        Self::close_idle(store, release_requests);
    }

    fn close_idle(store: &mut Idle, count: usize) {
        store.0.drain(..count.min(store.0.len()));
    }

    fn idle(store: &Idle) -> usize {
        store.0.len()
    }
}

/// Sends one request and reads the whole answer.
pub(crate) async fn send(pool: &Rc<Pool<Http1>>, attempt: &Attempt<'_>) -> Result<Received, Failure> {
    let mut stale = 0;
    let mut now = attempt.begun;
    loop {
        attempt.phase.set(Phase::Connecting);
        let lease = match pool.take() {
            Some(lease) => lease,
            None => {
                let lease = pool.wait(attempt.age).await?;
                now = Instant::now();
                lease
            }
        };
        let Some(connection) = &lease.connection else {
            return Err(Failure::ours("a connection was used twice"));
        };
        let is_coalesced = connection.borrow().is_coalesced(attempt);
        if !is_coalesced {
            write_coalescing::after_ready_tasks().await;
        }
        attempt.phase.set(Phase::Sent);
        attempt.metrics.count(Extra::Sent);
        let is_reused = connection.borrow().served;
        let left = attempt.deadline.saturating_duration_since(now);
        let mut exchange = Exchange::new(connection, attempt, left);
        let ExchangeError { failure, gone } = match poll_fn(|cx| exchange.poll(cx)).await {
            Ok(_) if let Some(slot) = attempt.source => {
                let (received, body) = exchange.into_body()?;
                streamed::leave(slot, lease, body, attempt);
                return Ok(received);
            }
            Ok(complete) => {
                if !complete {
                    attempt.phase.set(Phase::Answering);
                    rest(&mut exchange, attempt).await?;
                }
                let received = exchange.finish()?;
                finish(lease, &received);
                return Ok(received);
            }
            Err(broken) => broken,
        };
        // The endpoint closed a kept connection. The request is sent again if it certainly was not processed, or if
        // processing it twice is harmless.
        let is_lost = attempt.upload.is_some_and(|upload| upload.is_taken());
        if is_reused && !is_lost && stale < MAX_STALE && (failure.unsent || (gone && attempt.safe && stale == 0)) {
            stale += 1;
            attempt.metrics.count(Extra::Resent);
            drop(lease);
            // All others have been unused for longer, and will be closed as well.
            pool.with_store(|store| store.0.clear());
            now = Instant::now();
            continue;
        }
        return Err(failure);
    }
}

/// Reads the rest of a body.
async fn rest(exchange: &mut Exchange<'_>, attempt: &Attempt<'_>) -> Result<(), Failure> {
    loop {
        let part = body::within(attempt.chunk_timeout, poll_fn(|cx| exchange.poll(cx))).await?;
        if part.map_err(|broken| broken.failure)? {
            return Ok(());
        }
    }
}

/// Returns the connection to the pool, unless it has to be closed.
fn finish(mut lease: Lease, received: &Received) {
    if let Some(connection) = lease.connection.take_if(|connection| !connection.borrow().busy) {
        return_to_pool(&lease.pool, connection, received.at);
    }
}
