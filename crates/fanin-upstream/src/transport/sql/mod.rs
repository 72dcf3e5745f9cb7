//! Databases: a pool of connections that all workers share, and what every dialect has in common.
//!
//! A statement needs a connection for itself, connections are dear to the database and few, so they are the process's and
//! not a worker's: each is driven by the worker that opened it, and whoever has a statement takes one, rather one of its own
//! worker. How many statements may run is the upstream's `limit`; the pool holds as many connections, so that who has a
//! place below the limit finds a connection or may open one.
//!
//! A call that is dropped while its statement runs leaves a connection in use. The worker's janitor has the database cancel
//! the statement, waits for its end, and only then gives the connection back.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use fanin_config::Rows;
use fanin_json::{Doc, Node};
use http::{HeaderMap, StatusCode};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout};

use super::budget::{Open, PoolSignal};
use super::{Attempt, Phase, Received};
use crate::endpoint::Endpoint;
use crate::error::{ErrorKind, Failure, WORDS};
use crate::limit::{Limit, Owned};
use crate::metrics::Extra;
use access::Access;
use outage::Outage;

pub(crate) mod access;
pub(crate) mod mysql;
mod mysql_params;
mod mysql_values;
mod outage;
pub(crate) mod postgres;

/// How long cancelling a statement may take before the connection is given up.
const LONGEST_CLEANUP: Duration = Duration::from_secs(5);
/// How often unused connections are looked at, at most.
const LONGEST_TICK: Duration = Duration::from_secs(5);
const SHORTEST_TICK: Duration = Duration::from_millis(20);
/// Parameters are values of a flow, which bounds their depth more tightly.
const MAX_DEPTH: usize = 128;

/// What one database does otherwise than another.
pub(crate) trait Dialect: Sized + Send + Sync + 'static {
    /// A connection, signed on.
    type Connection: Send + 'static;
    /// Whether it is seen that the other end has closed a connection before a statement is sent on it. Where it is not, one that
    /// turns out to be closed speaks against all that are unused at that time: most often the server is gone.
    const SEES_CLOSING: bool;

    /// Connects and signs on.
    fn connect(endpoint: &Arc<Endpoint>, access: &Access) -> impl Future<Output = Result<Self::Connection, Failure>>;
    /// Whether the connection is known to be of no more use.
    fn is_closed(connection: &mut Self::Connection) -> bool;
    /// The same right after a statement on it has ended, when what came since need not be looked for: that is done when it is
    /// taken the next time.
    fn is_broken(connection: &mut Self::Connection) -> bool {
        Self::is_closed(connection)
    }
    /// Runs one statement. What the database itself says to it is an answer, with a status.
    fn run(connection: &mut Self::Connection, job: &Job<'_>) -> impl Future<Output = Result<Received, Failure>>;
    /// Cancels what a call that has gone may have left running. Whether the connection is as good as new then.
    fn clean(
        connection: &mut Self::Connection,
        endpoint: &Arc<Endpoint>,
        access: &Access,
    ) -> impl Future<Output = bool>;
}

/// One statement to run.
pub(crate) struct Job<'a> {
    /// What messages call it: its name, or `query`.
    pub name: &'a str,
    pub sql: &'a str,
    /// Names of the parameters, as far as they have any.
    pub names: &'a [String],
    pub params: Vec<Node<'a>>,
    pub writes: bool,
    pub rows: Rows,
    /// What is left of the call's time.
    pub left: Duration,
    pub max_answer: usize,
    pub phase: &'a Cell<Phase>,
    /// Set if the database may still be at work on it when the job has ended.
    pub running: Cell<bool>,
}

impl Job<'_> {
    /// A parameter as messages call it, counted from 0.
    pub fn param(&self, index: usize) -> String {
        match self.names.get(index) {
            Some(name) => format!("parameter {} ({name}) of {}", index + 1, self.name),
            None => format!("parameter {} of {}", index + 1, self.name),
        }
    }
}

/// The connections of the process to one database server.
pub(crate) struct Pool<D: Dialect> {
    idle: Mutex<VecDeque<Kept<D>>>,
    slots: Arc<Limit>,
    outage: Outage,
    signal: Arc<PoolSignal>,
}

/// A connection that no call uses.
struct Kept<D: Dialect> {
    /// Boxed: it goes from hand to hand with each statement.
    connection: Box<D::Connection>,
    /// The worker that drives it.
    home: usize,
    since: Instant,
    _open: Open,
}

impl<D: Dialect> fmt::Debug for Pool<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pool with {} unused connections", self.idle().len())
    }
}

impl<D: Dialect> Pool<D> {
    pub fn new(max_connections: usize) -> Arc<Pool<D>> {
        Arc::new(Pool {
            idle: Mutex::default(),
            // Who waits here has a place below the upstream's limit, which bounds how many they are.
            slots: Arc::new(Limit::new(max_connections, usize::MAX)),
            outage: Outage::default(),
            signal: Arc::default(),
        })
    }

    fn idle(&self) -> MutexGuard<'_, VecDeque<Kept<D>>> {
        // No code that can panic runs under the lock.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection used last, rather one of this worker.
    fn take(&self, home: usize) -> Option<Kept<D>> {
        let mut idle = self.idle();
        loop {
            let at = idle.iter().rposition(|kept| kept.home == home).unwrap_or(idle.len().checked_sub(1)?);
            let mut kept = idle.remove(at)?;
            if !D::is_closed(&mut kept.connection) {
                return Some(kept);
            }
        }
    }

    /// Gives back a connection and then the right to it, so that whoever gets that finds this one.
    fn give(&self, endpoint: &Endpoint, mut kept: Kept<D>, slot: Owned) {
        let closed = D::is_broken(&mut kept.connection);
        if !endpoint.is_retired() && !closed {
            kept.since = Instant::now();
            self.idle().push_back(kept);
        }
        if closed && !D::SEES_CLOSING {
            self.close_idle(None);
        }
        drop(slot);
    }

    /// Closes what has been unused since `before`, or all.
    pub fn close_idle(&self, before: Option<Instant>) {
        let mut closed = Vec::new();
        let mut idle = self.idle();
        for mut kept in std::mem::take(&mut *idle) {
            let stays = before.is_some_and(|before| kept.since >= before) && !D::is_closed(&mut kept.connection);
            if stays { idle.push_back(kept) } else { closed.push(kept) }
        }
        drop(idle);
        drop(closed);
    }
}

/// One worker's way to the pool.
pub(crate) struct Local<D: Dialect> {
    endpoint: Arc<Endpoint>,
    pool: Arc<Pool<D>>,
    home: usize,
    janitor: mpsc::UnboundedSender<(Kept<D>, Owned)>,
}

impl<D: Dialect> fmt::Debug for Local<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of {}", self.pool, self.endpoint.address)
    }
}

impl<D: Dialect> Local<D> {
    pub fn new(endpoint: &Arc<Endpoint>, pool: &Arc<Pool<D>>) -> Rc<Local<D>> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        // No more in it than there are connections.
        let (janitor, jobs) = mpsc::unbounded_channel();
        let local = Rc::new(Local {
            endpoint: endpoint.clone(),
            pool: pool.clone(),
            home: NEXT.fetch_add(1, Relaxed),
            janitor,
        });
        tokio::task::spawn_local(keep(Rc::downgrade(&local), jobs));
        local
    }

    /// Runs the statement that an attempt's request stands for.
    pub async fn send(self: &Rc<Self>, attempt: &Attempt<'_>) -> Result<Received, Failure> {
        let body = Doc::parse(attempt.request.body.clone(), MAX_DEPTH)
            .map_err(|error| Failure::ours(format!("parameters cannot be read: {error}")))?;
        let sql;
        let mut job = Job {
            name: attempt.request.path.path().trim_start_matches('/'),
            sql: "",
            names: &[],
            params: body.root().elements().collect(),
            writes: !attempt.request.method.is_safe(),
            rows: Rows::Many,
            left: Duration::ZERO,
            max_answer: attempt.max_answer,
            phase: attempt.phase,
            running: Cell::new(false),
        };
        match attempt.config.statements.get(job.name) {
            Some(statement) => {
                job.sql = &statement.sql;
                job.names = &statement.params;
                // A batch has rows for many keys; how many one may have is seen where they are split again.
                job.rows = if statement.batch.is_some() { Rows::Many } else { statement.rows };
            }
            None => {
                // The text came with the call, before its parameters.
                let text = (!job.params.is_empty()).then(|| job.params.remove(0)).and_then(Node::as_str);
                sql = text.ok_or_else(|| Failure::ours(format!("there is no statement {}", job.name)))?;
                job.sql = &sql;
                if job.name == "query_one" {
                    job.rows = Rows::One;
                }
            }
        }
        let mut lease = self.lease(attempt).await?;
        attempt.phase.set(Phase::Sent);
        attempt.metrics.count(Extra::Sent);
        job.left = attempt.deadline.saturating_duration_since(Instant::now());
        let Some(kept) = &mut lease.kept else { return Err(Failure::ours("a connection was used twice")) };
        let result = D::run(&mut kept.connection, &job).await;
        lease.running = job.running.get();
        result.map_err(|mut failure| {
            failure.detail = format!("{}: {}", self.endpoint.address, failure.detail).into();
            failure
        })
    }

    async fn lease(self: &Rc<Self>, attempt: &Attempt<'_>) -> Result<Lease<'_, D>, Failure> {
        attempt.phase.set(Phase::Connecting);
        let slots = &self.pool.slots;
        let slot = match slots.try_enter() {
            Some(slot) => slot,
            None => Box::pin(slots.enter(attempt.age))
                .await
                .map_err(|_| Failure::new(ErrorKind::Limit, "all connections are in use"))?,
        };
        let slot = slot.own(slots);
        let (kept, slot) = match self.pool.take(self.home) {
            Some(kept) => (kept, slot),
            None => Box::pin(self.open(slot)).await?,
        };
        Ok(Lease { local: self, kept: Some(kept), slot: Some(slot), running: true })
    }

    /// Opens a connection by a task of its own: a call that gives up does not waste it.
    async fn open(self: &Rc<Self>, slot: Owned) -> Result<(Kept<D>, Owned), Failure> {
        self.pool.outage.check(&self.endpoint)?;
        let (reply, opened) = oneshot::channel();
        let local = self.clone();
        tokio::task::spawn_local(async move {
            let result = local.connect().await.map(|kept| (kept, slot));
            if let Err(Ok((kept, slot))) = reply.send(result) {
                local.pool.give(&local.endpoint, kept, slot);
            }
        });
        opened.await.unwrap_or_else(|_| Err(Failure::new(ErrorKind::Connect, "the worker ends")))
    }

    async fn connect(&self) -> Result<Kept<D>, Failure> {
        let begun = Instant::now();
        let endpoint = &self.endpoint;
        let Some(access) = endpoint.origin.backend.access() else {
            return Err(Failure::ours("the endpoint is no database"));
        };
        // The slots bound the connections already; the budget counts them for the metrics.
        let Some(permit) = endpoint.budget.try_start(&self.pool.signal) else {
            return Err(Failure::new(ErrorKind::Limit, "all connections are in use"));
        };
        let limit = endpoint.origin.connect_timeout;
        let result = timeout(limit, D::connect(endpoint, access)).await.unwrap_or_else(|_| {
            let detail = format!("{}: no connection within {} ms", endpoint.address, limit.as_millis());
            Err(Failure::new(ErrorKind::Connect, detail))
        });
        self.pool.outage.settle(begun, result.as_ref().err());
        Ok(Kept { connection: Box::new(result?), home: self.home, since: Instant::now(), _open: permit.opened() })
    }

    async fn clean(self: Rc<Self>, mut kept: Kept<D>, slot: Owned) {
        let Some(access) = self.endpoint.origin.backend.access() else { return };
        let clean = timeout(LONGEST_CLEANUP, D::clean(&mut kept.connection, &self.endpoint, access)).await;
        if clean.unwrap_or(false) {
            self.pool.give(&self.endpoint, kept, slot);
        }
    }
}

/// The janitor of a worker.
async fn keep<D: Dialect>(local: Weak<Local<D>>, mut jobs: mpsc::UnboundedReceiver<(Kept<D>, Owned)>) {
    let tick = match local.upgrade() {
        Some(local) => (local.endpoint.origin.idle_timeout / 2).clamp(SHORTEST_TICK, LONGEST_TICK),
        None => return,
    };
    loop {
        tokio::select! {
            job = jobs.recv() => match (job, local.upgrade()) {
                (Some((kept, slot)), Some(local)) => {
                    tokio::task::spawn_local(local.clean(kept, slot));
                }
                _ => return,
            },
            () = sleep(tick) => {
                let Some(local) = local.upgrade() else { return };
                let since = Instant::now().checked_sub(local.endpoint.origin.idle_timeout);
                local.pool.close_idle(since.filter(|_| !local.endpoint.is_retired()));
            }
        }
    }
}

/// A connection in a call's hands.
struct Lease<'a, D: Dialect> {
    local: &'a Local<D>,
    kept: Option<Kept<D>>,
    slot: Option<Owned>,
    /// The statement may still run.
    running: bool,
}

impl<D: Dialect> Drop for Lease<'_, D> {
    fn drop(&mut self) {
        let (Some(kept), Some(slot)) = (self.kept.take(), self.slot.take()) else { return };
        match self.running {
            false => self.local.pool.give(&self.local.endpoint, kept, slot),
            // Without a janitor, so at the worker's end, the connection is closed instead.
            true => drop(self.local.janitor.send((kept, slot))),
        }
    }
}

/// A good answer.
fn answer(body: Vec<u8>) -> Received {
    Received { status: StatusCode::OK, headers: HeaderMap::new().into(), body: Bytes::from(body), at: Instant::now() }
}

/// What the database says against a statement: a status as HTTP would give, JSON for flows, words for the log.
#[cold]
fn refusal(status: StatusCode, code: &str, message: &str, more: &[(&str, Option<&str>)]) -> Received {
    let mut body = Vec::new();
    let mut out = fanin_json::Writer::new(&mut body);
    out.begin_object();
    for (key, value) in [("code", Some(code)), ("message", Some(message))].iter().chain(more) {
        if let Some(value) = value {
            out.key(key);
            out.str(value);
        }
    }
    out.end_object();
    let mut headers = HeaderMap::new();
    headers.insert(WORDS, crate::error::words(&format!("{code}: {message}")));
    Received { status, headers: headers.into(), body: Bytes::from(body), at: Instant::now() }
}

/// A statement that was called wrongly: nothing was sent.
#[cold]
fn wrong(message: impl AsRef<str>) -> Received {
    refusal(StatusCode::BAD_REQUEST, "fanin", message.as_ref(), &[])
}

#[cold]
fn too_large(max_answer: usize) -> Failure {
    Failure::new(ErrorKind::TooLarge, format!("the rows are larger than {max_answer} bytes (max_answer)"))
}
