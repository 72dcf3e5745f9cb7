//! The connections of all workers to one database server.
//!
//! A statement needs a connection of its own. Connections cost the database much and are few, so the whole process shares
//! them. Each is driven by the worker that opened it, and a statement prefers one of its own worker. The upstream's `limit`
//! bounds the statements, and the pool holds as many connections: whoever has a permit finds a connection or may open one.
//!
//! A call that is dropped while its statement runs leaves a connection in use. The worker's cleanup task has the database
//! cancel the statement, waits for its end, and only then returns the connection to the pool.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fanin_config::Rows;
use fanin_json::{Doc, Node};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout};

use super::access::Access;
use super::dialect::{Dialect, Statement};
use super::outage::Outage;
use crate::endpoint::{Endpoint, TransportData};
use crate::error::{ErrorKind, Failure};
use crate::limiter::{Limiter, OwnedPermit};
use crate::metrics::Extra;
use crate::transport::attempt::{Attempt, Phase, Received};
use crate::transport::connection_budget::{OpenConnection, PoolSignal};

/// How long cancelling a statement may take before the connection is closed instead.
const LONGEST_CLEANUP: Duration = Duration::from_secs(5);
/// How often unused connections are checked.
const LONGEST_TICK: Duration = Duration::from_secs(5);
const SHORTEST_TICK: Duration = Duration::from_millis(20);
/// Nesting of parameters. Flows bound it more tightly.
const MAX_DEPTH: usize = 128;

/// How to sign on to a database server, as its origin keeps it.
#[derive(Debug)]
pub(crate) struct Server<D> {
    access: Access,
    dialect: PhantomData<D>,
}

impl<D: Dialect> Server<D> {
    pub fn new(access: Access) -> Server<D> {
        Server { access, dialect: PhantomData }
    }
}

impl<D: Dialect> TransportData for Server<D> {
    fn endpoint_data(&self, max_connections: usize) -> Option<Box<dyn TransportData>> {
        Some(Box::new(EndpointPool(Pool::<D>::new(max_connections))))
    }
}

fn access<D: Dialect>(endpoint: &Endpoint) -> Option<&Access> {
    endpoint.origin.data().map(|server: &Server<D>| &server.access)
}

/// The pool of a server, as its endpoint keeps it.
#[derive(Debug)]
struct EndpointPool<D: Dialect>(Arc<Pool<D>>);

impl<D: Dialect> TransportData for EndpointPool<D> {
    fn retire(&self) {
        self.0.close_idle(None);
    }
}

/// The process's connections to one database server.
pub(crate) struct Pool<D: Dialect> {
    idle: Mutex<VecDeque<PooledConnection<D>>>,
    slots: Arc<Limiter>,
    outage: Outage,
    signal: Arc<PoolSignal>,
}

/// An unused connection.
struct PooledConnection<D: Dialect> {
    /// Boxed, because it moves with each statement.
    connection: Box<D::Connection>,
    /// The number of the worker that drives it.
    worker: usize,
    since: Instant,
    _open: OpenConnection,
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
            // Waiting calls have a permit of the upstream's limit, which bounds their number.
            slots: Arc::new(Limiter::new(max_connections, usize::MAX)),
            outage: Outage::default(),
            signal: Arc::default(),
        })
    }

    fn idle(&self) -> MutexGuard<'_, VecDeque<PooledConnection<D>>> {
        // No code that can panic runs under the lock.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The most recently used connection, if possible one of this worker.
    fn take(&self, worker: usize) -> Option<PooledConnection<D>> {
        let mut idle = self.idle();
        loop {
            let at =
                idle.iter().rposition(|connection| connection.worker == worker).unwrap_or(idle.len().checked_sub(1)?);
            let mut connection = idle.remove(at)?;
            if !D::is_closed(&mut connection.connection) {
                return Some(connection);
            }
        }
    }

    /// Returns the connection first and then its slot, so that the next owner of the slot finds it.
    fn put_back(&self, endpoint: &Endpoint, mut connection: PooledConnection<D>, slot: OwnedPermit) {
        let closed = D::is_broken(&mut connection.connection);
        if !endpoint.is_retired() && !closed {
            connection.since = Instant::now();
            self.idle().push_back(connection);
        }
        if closed && !D::DETECTS_CLOSE {
            self.close_idle(None);
        }
        drop(slot);
    }

    /// Closes connections that are unused since `before`; with `None` all.
    pub fn close_idle(&self, before: Option<Instant>) {
        let mut closed = Vec::new();
        let mut idle = self.idle();
        for mut connection in std::mem::take(&mut *idle) {
            let stays =
                before.is_some_and(|before| connection.since >= before) && !D::is_closed(&mut connection.connection);
            if stays { idle.push_back(connection) } else { closed.push(connection) }
        }
        drop(idle);
        drop(closed);
    }
}

/// One worker's access to the pool.
pub(crate) struct WorkerPool<D: Dialect> {
    endpoint: Arc<Endpoint>,
    pool: Arc<Pool<D>>,
    worker: usize,
    cleanup: mpsc::UnboundedSender<(PooledConnection<D>, OwnedPermit)>,
}

impl<D: Dialect> fmt::Debug for WorkerPool<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of {}", self.pool, self.endpoint.address)
    }
}

impl<D: Dialect> WorkerPool<D> {
    /// `None` if the endpoint is not of this kind of database.
    pub fn new(endpoint: &Arc<Endpoint>) -> Option<Rc<WorkerPool<D>>> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let EndpointPool(pool) = endpoint.data()?;
        // Holds no more than there are connections.
        let (cleanup, jobs) = mpsc::unbounded_channel();
        let local = Rc::new(WorkerPool {
            endpoint: endpoint.clone(),
            pool: pool.clone(),
            worker: NEXT.fetch_add(1, Relaxed),
            cleanup,
        });
        tokio::task::spawn_local(maintain(Rc::downgrade(&local), jobs));
        Some(local)
    }

    /// Runs the statement that an attempt's request names.
    pub async fn send(self: &Rc<Self>, attempt: &Attempt<'_>) -> Result<Received, Failure> {
        let body = Doc::parse(attempt.request.body.clone(), MAX_DEPTH)
            .map_err(|error| Failure::ours(format!("parameters cannot be read: {error}")))?;
        let sql;
        let mut job = Statement {
            upstream: &attempt.config.name,
            name: attempt.request.path.path().trim_start_matches('/'),
            sql: "",
            names: &[],
            params: body.root().elements().collect(),
            writes: !attempt.request.method.is_safe(),
            rows: Rows::Many,
            reset: attempt.config.reset,
            left: Duration::ZERO,
            max_answer: attempt.max_answer,
            phase: attempt.phase,
            unclean: Cell::new(false),
        };
        match attempt.config.statements.get(job.name) {
            Some(statement) => {
                job.sql = &statement.sql;
                job.names = &statement.params;
                // A batch has rows for many keys. How many one key may have is checked when they are split.
                job.rows = if statement.batch.is_some() { Rows::Many } else { statement.rows };
            }
            None => {
                // The text comes with the call, before its parameters.
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
        let Some(connection) = &mut lease.connection else { return Err(Failure::ours("a connection was used twice")) };
        let result = D::run(&mut connection.connection, &job).await;
        lease.unclean = job.unclean.get();
        result.map_err(|mut failure| {
            failure.detail = format!("{}: {}", self.endpoint.address, failure.detail).into();
            failure
        })
    }

    async fn lease(self: &Rc<Self>, attempt: &Attempt<'_>) -> Result<Lease<'_, D>, Failure> {
        attempt.phase.set(Phase::Connecting);
        let slots = &self.pool.slots;
        let slot = match slots.try_acquire() {
            Some(slot) => slot,
            None => Box::pin(slots.acquire(attempt.age))
                .await
                .map_err(|_| Failure::new(ErrorKind::Limit, "all connections are in use"))?,
        };
        let slot = slot.own(slots);
        let (connection, slot) = match self.pool.take(self.worker) {
            Some(connection) => (connection, slot),
            None => Box::pin(self.open(slot)).await?,
        };
        Ok(Lease { local: self, connection: Some(connection), slot: Some(slot), unclean: true })
    }

    /// Opens a connection in a task of its own: a dropped call does not waste it.
    async fn open(self: &Rc<Self>, slot: OwnedPermit) -> Result<(PooledConnection<D>, OwnedPermit), Failure> {
        self.pool.outage.check(&self.endpoint)?;
        let (reply, opened) = oneshot::channel();
        let local = self.clone();
        tokio::task::spawn_local(async move {
            let result = local.connect().await.map(|connection| (connection, slot));
            if let Err(Ok((connection, slot))) = reply.send(result) {
                local.pool.put_back(&local.endpoint, connection, slot);
            }
        });
        opened.await.unwrap_or_else(|_| Err(Failure::new(ErrorKind::Connect, "the worker ends")))
    }

    async fn connect(&self) -> Result<PooledConnection<D>, Failure> {
        let begun = Instant::now();
        let endpoint = &self.endpoint;
        let Some(access) = access::<D>(endpoint) else {
            return Err(Failure::ours("the endpoint is not a database"));
        };
        // The slots bound the connections. The budget only counts them for the metrics.
        let Some(permit) = endpoint.budget.try_start(&self.pool.signal, begun) else {
            return Err(Failure::new(ErrorKind::Limit, "all connections are in use"));
        };
        let limit = endpoint.origin.connect_timeout;
        let result = timeout(limit, D::connect(endpoint, access)).await.unwrap_or_else(|_| {
            let detail = format!("{}: no connection within {} ms", endpoint.address, limit.as_millis());
            Err(Failure::new(ErrorKind::Connect, detail))
        });
        self.pool.outage.settle(begun, result.as_ref().err());
        Ok(PooledConnection {
            connection: Box::new(result?),
            worker: self.worker,
            since: Instant::now(),
            _open: permit.opened(),
        })
    }

    async fn clean(self: Rc<Self>, mut connection: PooledConnection<D>, slot: OwnedPermit) {
        let Some(access) = access::<D>(&self.endpoint) else { return };
        let clean = timeout(LONGEST_CLEANUP, D::clean(&mut connection.connection, &self.endpoint, access)).await;
        if clean.unwrap_or(false) {
            self.pool.put_back(&self.endpoint, connection, slot);
        }
    }
}

/// The cleanup task of a worker.
async fn maintain<D: Dialect>(
    local: Weak<WorkerPool<D>>,
    mut jobs: mpsc::UnboundedReceiver<(PooledConnection<D>, OwnedPermit)>,
) {
    let tick = match local.upgrade() {
        Some(local) => (local.endpoint.origin.idle_timeout / 2).clamp(SHORTEST_TICK, LONGEST_TICK),
        None => return,
    };
    loop {
        tokio::select! {
            job = jobs.recv() => match (job, local.upgrade()) {
                (Some((connection, slot)), Some(local)) => {
                    tokio::task::spawn_local(local.clean(connection, slot));
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

/// A connection in use by a call.
struct Lease<'a, D: Dialect> {
    local: &'a WorkerPool<D>,
    connection: Option<PooledConnection<D>>,
    slot: Option<OwnedPermit>,
    /// The database may still run the statement, or the session is not as it was.
    unclean: bool,
}

impl<D: Dialect> Drop for Lease<'_, D> {
    fn drop(&mut self) {
        let (Some(connection), Some(slot)) = (self.connection.take(), self.slot.take()) else { return };
        match self.unclean {
            false => self.local.pool.put_back(&self.local.endpoint, connection, slot),
            // Without a cleanup task, at the worker's end, the connection is closed instead.
            true => drop(self.local.cleanup.send((connection, slot))),
        }
    }
}
