//! What story B left: a bounded pool of threads that block, connections waited for by *time*, one second each.
//!
//! Requests are read without blocking and wait, however many, in front of the pool of threads; a thread takes one and does its
//! three queries one after the other, taking a connection for each and giving it back. Who has waited a second for a connection
//! fails, and what the request has done so far was for nothing.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::runtime::Runtime;

use super::CONNECTIONS;
use super::queries::{Database, ids, json};

const THREADS: usize = 200;
const PATIENCE: Duration = Duration::from_secs(1);

/// A connection and the runtime that only it uses, so that a thread blocks while it works.
struct Blocking {
    runtime: Runtime,
    database: Database,
}

#[derive(Default)]
struct Pool {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    free: Vec<Blocking>,
    /// Who came when: first come, first served.
    next: u64,
    waiting: std::collections::BTreeSet<u64>,
}

impl Pool {
    /// A connection, waited for at most a second.
    fn take(&self) -> Option<Blocking> {
        let end = Instant::now() + PATIENCE;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let ticket = state.next;
        state.next += 1;
        state.waiting.insert(ticket);
        loop {
            if state.waiting.first() == Some(&ticket)
                && let Some(connection) = state.free.pop()
            {
                state.waiting.remove(&ticket);
                drop(state);
                self.changed.notify_all();
                return Some(connection);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                state.waiting.remove(&ticket);
                drop(state);
                self.changed.notify_all();
                return None;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn give(&self, connection: Blocking) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).free.push(connection);
        self.changed.notify_all();
    }

    fn with<T>(&self, query: impl FnOnce(&Blocking) -> Result<T, tokio_postgres::Error>) -> Result<T, &'static str> {
        let connection = self.take().ok_or("no connection within a second")?;
        let result = query(&connection);
        self.give(connection);
        result.map_err(|_| "the query failed")
    }

    fn request(&self, email: &str) -> Result<Vec<u8>, &'static str> {
        let customer = self.with(|it| it.runtime.block_on(it.database.customer(email)))?;
        let orders = self.with(|it| it.runtime.block_on(it.database.orders(customer.get(0))))?;
        let ids = ids(&orders);
        let items = self.with(|it| it.runtime.block_on(it.database.items(&ids)))?;
        Ok(json(&customer, &orders, &items))
    }
}

/// Serves until the process ends.
pub fn run(listen: SocketAddr, url: &str, ready: impl FnOnce(SocketAddr)) -> io::Result<()> {
    let pool = Arc::new(Pool::default());
    for _ in 0..CONNECTIONS {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let database = runtime.block_on(Database::connect(url, true)).map_err(io::Error::other)?;
        pool.give(Blocking { runtime, database });
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(THREADS).build()?;
    runtime.block_on(async move {
        let listener = tokio::net::TcpListener::bind(listen).await?;
        ready(listener.local_addr()?);
        loop {
            let (stream, _) = listener.accept().await?;
            let pool = pool.clone();
            let service = service_fn(move |request| answer(pool.clone(), request));
            let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            tokio::spawn(async { drop(connection.await) });
        }
    })
}

async fn answer(pool: Arc<Pool>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let email = request.uri().query().and_then(|query| query.strip_prefix("email=")).unwrap_or_default().to_owned();
    let done = tokio::task::spawn_blocking(move || pool.request(&email)).await;
    Ok(match done.unwrap_or(Err("the thread panicked")) {
        Ok(body) => Response::new(Full::new(body.into())),
        Err(why) => {
            let mut response = Response::new(Full::new(why.into()));
            *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
            response
        }
    })
}
