//! One worker's connections to one endpoint. It hands out free connections, opens more within the budget, and gives a
//! waiting call the first that comes: a returned connection or a new one.
//!
//! Tasks of the pool open connections, not the calls. So a dropped call does not waste a handshake, and a call does not
//! wait for a new connection while another is free.

use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::connection_budget::{ConnectPermit, PoolSignal};
use super::connection_queue::{ConnectionQueue, Waiter};
use crate::endpoint::Endpoint;
use crate::error::{ErrorKind, Failure};

/// Longest and shortest time between two checks of unused connections.
const LONGEST_TICK: Duration = Duration::from_secs(5);
const SHORTEST_TICK: Duration = Duration::from_millis(20);

/// What differs between HTTP/1.1 and HTTP/2: a connection is handed out whole or shared.
pub(crate) trait PoolKind: Sized + 'static {
    /// What a call gets.
    type Lease;
    /// The connections that the pool keeps.
    type Store: Default;

    /// Takes what a call can use now.
    fn take(pool: &Rc<Pool<Self>>, store: &mut Self::Store) -> Option<Self::Lease>;
    /// Whether to open more connections, with so many being opened and so many calls waiting.
    fn wants_more(endpoint: &Endpoint, store: &Self::Store, connecting: usize, waiting: usize) -> bool;
    /// Opens a connection and adds it to the store.
    fn connect(pool: Rc<Pool<Self>>, permit: ConnectPermit) -> impl Future<Output = Result<(), Failure>> + 'static;
    /// Closes connections that are closed by the peer or unused since `before` (`None`: any time), and then
    /// `release_requests` unused ones, those unused for longest first.
    fn close_unused(pool: &Pool<Self>, store: &mut Self::Store, before: Option<Instant>, release_requests: usize);
    /// Closes so many unused connections, those unused for longest first.
    fn close_idle(store: &mut Self::Store, count: usize);
    /// Connections in the store that no call uses.
    fn idle(store: &Self::Store) -> usize;
}

/// The connections of one worker to one endpoint, and the calls that wait for one.
pub(crate) struct Pool<K: PoolKind> {
    pub endpoint: Arc<Endpoint>,
    pub signal: Arc<PoolSignal>,
    /// Wakes the task that maintains the pool.
    pub waker: Waker,
    inner: RefCell<Inner<K>>,
}

struct Inner<K: PoolKind> {
    store: K::Store,
    queue: ConnectionQueue<K::Lease>,
    connecting: usize,
}

impl<K: PoolKind> fmt::Debug for Pool<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pool of {}", self.endpoint.address)
    }
}

impl<K: PoolKind> Pool<K> {
    pub fn new(endpoint: Arc<Endpoint>) -> Rc<Pool<K>> {
        let signal = Arc::new(PoolSignal::default());
        endpoint.budget.join(&signal);
        let inner =
            RefCell::new(Inner { store: K::Store::default(), queue: ConnectionQueue::default(), connecting: 0 });
        let pool = Rc::new(Pool { endpoint, waker: signal.clone().into(), signal, inner });
        tokio::task::spawn_local(maintain(Rc::downgrade(&pool), pool.signal.clone()));
        pool
    }

    /// A connection for a call whose request started at `age`.
    pub async fn checkout(self: &Rc<Self>, age: Instant) -> Result<K::Lease, Failure> {
        match self.take() {
            Some(lease) => Ok(lease),
            None => self.wait(age).await,
        }
    }

    /// Waits for a connection. To be called if there is no free one.
    pub async fn wait(self: &Rc<Self>, age: Instant) -> Result<K::Lease, Failure> {
        let waiter = self.inner.borrow_mut().queue.join(age);
        let wait = Wait { pool: self, waiter };
        self.open_connections();
        wait.await
    }

    /// A free connection.
    pub fn take(self: &Rc<Self>) -> Option<K::Lease> {
        let mut inner = self.inner.borrow_mut();
        let lease = K::take(self, &mut inner.store);
        self.publish_idle(&inner);
        lease
    }

    /// Changes the store, then serves waiting calls from it.
    pub fn with_store<R>(self: &Rc<Self>, change: impl FnOnce(&mut K::Store) -> R) -> R {
        let result = {
            let mut inner = self.inner.borrow_mut();
            let result = change(&mut inner.store);
            let released = self.endpoint.budget.release(&self.signal, K::idle(&inner.store), inner.queue.oldest());
            if released > 0 {
                K::close_idle(&mut inner.store, released);
            }
            self.publish_idle(&inner);
            result
        };
        self.refill();
        result
    }

    /// Serves waiting calls from the store.
    fn refill(self: &Rc<Self>) {
        let mut inner = self.inner.borrow_mut();
        if inner.queue.len() == 0 {
            return;
        }
        while inner.queue.len() > 0 {
            let Some(lease) = K::take(self, &mut inner.store) else { break };
            if let Err(lease) = inner.queue.serve(lease) {
                // The queue is not empty, so this is not reached. A lease must not be dropped while the pool is
                // borrowed.
                drop(inner);
                drop(lease);
                return;
            }
        }
        self.publish_idle(&inner);
    }

    /// Opens as many connections as the waiting calls can use and the budget allows.
    fn open_connections(self: &Rc<Self>) {
        loop {
            let oldest = {
                let inner = self.inner.borrow();
                if !K::wants_more(&self.endpoint, &inner.store, inner.connecting, inner.queue.len()) {
                    return;
                }
                inner.queue.oldest()
            };
            let age = oldest.unwrap_or_else(Instant::now);
            let Some(permit) = self.endpoint.budget.try_start(&self.signal, age) else { return };
            let mark = {
                let mut inner = self.inner.borrow_mut();
                inner.connecting += 1;
                inner.queue.next_number()
            };
            let pool = self.clone();
            tokio::task::spawn_local(async move {
                let limit = pool.endpoint.origin.connect_timeout;
                let result = timeout(limit, K::connect(pool.clone(), permit)).await.unwrap_or_else(|_| {
                    let detail = format!("{}: no connection within {} ms", pool.endpoint.address, limit.as_millis());
                    Err(Failure::new(ErrorKind::Connect, detail))
                });
                pool.inner.borrow_mut().connecting -= 1;
                match result {
                    Ok(()) => pool.refill(),
                    Err(failure) => pool.connect_failed(&failure, mark),
                }
                pool.open_connections();
            });
        }
    }

    /// Fails the oldest waiting call, for which the connection was opened. If the endpoint has no connection at all,
    /// fails all calls that waited when the attempt started: a dead endpoint must not cost each of them an attempt.
    fn connect_failed(&self, failure: &Failure, mark: u64) {
        tracing::debug!(endpoint = %self.endpoint.address, detail = %failure.detail, "connecting failed");
        let nobody_is_connected = self.endpoint.budget.load().0 == 0;
        self.inner.borrow_mut().queue.fail(failure, nobody_is_connected.then_some(mark));
    }

    fn close_unused(self: &Rc<Self>) {
        let release_requests = self.signal.release_requests.swap(0, Relaxed);
        let idle_timeout = self.endpoint.origin.idle_timeout;
        let now = Instant::now();
        let before = if self.endpoint.is_retired() { Some(now) } else { now.checked_sub(idle_timeout) };
        {
            let mut inner = self.inner.borrow_mut();
            K::close_unused(self, &mut inner.store, before, release_requests);
            self.publish_idle(&inner);
        }
        self.refill();
        self.open_connections();
    }

    fn publish_idle(&self, inner: &Inner<K>) {
        self.signal.idle.store(K::idle(&inner.store), Relaxed);
    }
}

impl<K: PoolKind> Drop for Pool<K> {
    fn drop(&mut self) {
        self.endpoint.budget.leave(&self.signal);
        self.signal.wake.notify_one();
    }
}

/// Maintains a pool: closes connections that are unused for long, requested by other workers, or retired, and opens
/// connections when the budget has room. Ends with the pool.
async fn maintain<K: PoolKind>(pool: Weak<Pool<K>>, signal: Arc<PoolSignal>) {
    let tick = match pool.upgrade() {
        Some(pool) => (pool.endpoint.origin.idle_timeout / 2).clamp(SHORTEST_TICK, LONGEST_TICK),
        None => return,
    };
    loop {
        tokio::select! {
            () = signal.wake.notified() => {}
            () = sleep(tick) => {}
        }
        let Some(pool) = pool.upgrade() else { return };
        pool.close_unused();
    }
}

/// A call that waits for a connection.
struct Wait<'a, K: PoolKind> {
    pool: &'a Rc<Pool<K>>,
    waiter: Rc<Waiter<K::Lease>>,
}

impl<K: PoolKind> Future for Wait<'_, K> {
    type Output = Result<K::Lease, Failure>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.waiter.poll(cx)
    }
}

impl<K: PoolKind> Drop for Wait<'_, K> {
    fn drop(&mut self) {
        self.pool.inner.borrow_mut().queue.remove(&self.waiter);
        // A connection that was given to a dropped call returns to the pool when its lease is dropped.
        drop(self.waiter.leave());
    }
}
