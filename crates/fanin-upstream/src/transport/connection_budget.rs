//! Bounds the connections to one endpoint over the whole process, and how many of them are opened at once. A cold
//! server that gets 256 calls must not open 256 connections before the first is free again.
//!
//! Opening and closing are rare, so a mutex guards the counts. A pool that is refused is woken when there is room.
//! *Every* refused pool is woken and asks again if it still needs to, so that room is never lost on a pool whose calls
//! have gone.
//!
//! A connection that is free on one worker while an older call waits on another is closed, so that the other can open one:
//! connections cannot move between threads.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Wake;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// A pool whose own calls wait keeps a connection unless another worker's call is older by this. Below it, the new connection
/// would cost more than the order is worth.
const SLACK: Duration = Duration::from_millis(10);

/// What other threads see of a worker's pool.
#[derive(Debug, Default)]
pub(crate) struct PoolSignal {
    /// Wakes the task that maintains the pool.
    pub wake: Notify,
    /// Unused connections of the pool.
    pub idle: AtomicUsize,
    /// Unused connections that the pool should close so that another worker can open one.
    pub release_requests: AtomicUsize,
}

impl Wake for PoolSignal {
    fn wake(self: Arc<Self>) {
        self.wake.notify_one();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.wake.notify_one();
    }
}

/// The process's connections to one endpoint.
#[derive(Debug)]
pub(crate) struct ConnectionBudget {
    max_open: usize,
    max_connecting: usize,
    /// Pools that were refused because all connections are open.
    starved: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    open: usize,
    connecting: usize,
    pools: Vec<Arc<PoolSignal>>,
    denied: Vec<Denied>,
    /// Connections that pools have given up for others and that are not closed yet.
    releasing: usize,
}

/// A pool that was refused a connection.
#[derive(Debug)]
struct Denied {
    pool: Arc<PoolSignal>,
    /// When the request of its oldest waiting call started.
    age: Instant,
    /// All connections were open; else too many were being opened.
    full: bool,
}

impl ConnectionBudget {
    pub fn new(max_open: usize, max_connecting: usize) -> Arc<ConnectionBudget> {
        Arc::new(ConnectionBudget { max_open, max_connecting, starved: AtomicUsize::new(0), state: Mutex::default() })
    }

    /// Open connections, and connections that are being opened.
    pub fn load(&self) -> (usize, usize) {
        let state = self.lock();
        (state.open, state.connecting)
    }

    /// Registers a pool, so that others can ask it for an unused connection.
    pub fn join(&self, pool: &Arc<PoolSignal>) {
        self.lock().pools.push(pool.clone());
    }

    pub fn leave(&self, pool: &Arc<PoolSignal>) {
        let mut state = self.lock();
        state.pools.retain(|other| !Arc::ptr_eq(other, pool));
        state.denied.retain(|other| !Arc::ptr_eq(&other.pool, pool));
        self.count_starved(&state);
    }

    /// Allows one connection to be opened. Otherwise the pool is woken when there is room. `age`: when the request of the
    /// pool's oldest waiting call started.
    pub fn try_start(self: &Arc<Self>, pool: &Arc<PoolSignal>, age: Instant) -> Option<ConnectPermit> {
        let mut state = self.lock();
        let full = state.open + state.connecting >= self.max_open;
        if !full && state.connecting < self.max_connecting {
            state.connecting += 1;
            return Some(ConnectPermit { budget: self.clone() });
        }
        state.denied.retain(|other| !Arc::ptr_eq(&other.pool, pool));
        let at = state.denied.partition_point(|other| other.age <= age);
        state.denied.insert(at, Denied { pool: pool.clone(), age, full });
        self.count_starved(&state);
        if full {
            let rich = state.pools.iter().filter(|other| !Arc::ptr_eq(other, pool));
            let spare = |other: &&Arc<PoolSignal>| other.idle.load(Relaxed) > other.release_requests.load(Relaxed);
            if let Some(rich) = rich.filter(spare).max_by_key(|other| other.idle.load(Relaxed)) {
                rich.release_requests.fetch_add(1, Relaxed);
                rich.wake.notify_one();
            }
        }
        None
    }

    /// How many of a pool's `idle` connections it should close for calls of other workers: one for each worker with an older call,
    /// or with any call if none of its own waits. `own`: when the request of its own oldest waiting call started.
    #[inline]
    pub fn release(&self, pool: &Arc<PoolSignal>, idle: usize, own: Option<Instant>) -> usize {
        if idle == 0 || self.starved.load(Relaxed) == 0 { 0 } else { self.release_to_starved(pool, idle, own) }
    }

    #[cold]
    fn release_to_starved(&self, pool: &Arc<PoolSignal>, idle: usize, own: Option<Instant>) -> usize {
        let mut state = self.lock();
        let is_older = |other: &&Denied| other.full && own.is_none_or(|own| other.age + SLACK < own);
        let others = state.denied.iter().filter(|other| !Arc::ptr_eq(&other.pool, pool)).filter(is_older).count();
        let released = others.saturating_sub(state.releasing).min(idle);
        state.releasing += released;
        released
    }

    fn count_starved(&self, state: &State) {
        self.starved.store(state.denied.iter().filter(|pool| pool.full).count(), Relaxed);
    }

    /// Has every pool check its connections.
    pub fn wake_all(&self) {
        self.lock().pools.iter().for_each(|pool| pool.wake.notify_one());
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        change(&mut state);
        for denied in state.denied.drain(..) {
            denied.pool.wake.notify_one();
        }
        self.count_starved(&state);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code that can panic runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right to open one connection.
#[derive(Debug)]
pub(crate) struct ConnectPermit {
    budget: Arc<ConnectionBudget>,
}

impl ConnectPermit {
    /// The connection is open.
    pub fn opened(self) -> OpenConnection {
        let budget = self.budget.clone();
        budget.change(|state| state.open += 1);
        OpenConnection { budget }
    }
}

impl Drop for ConnectPermit {
    fn drop(&mut self) {
        self.budget.change(|state| state.connecting -= 1);
    }
}

/// One open connection. Held by the task that drives it.
#[derive(Debug)]
pub(crate) struct OpenConnection {
    budget: Arc<ConnectionBudget>,
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.budget.change(|state| {
            state.open -= 1;
            state.releasing = state.releasing.saturating_sub(1);
        });
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn now() -> Instant {
        Instant::now()
    }

    fn pool(budget: &ConnectionBudget) -> Arc<PoolSignal> {
        let pool = Arc::new(PoolSignal::default());
        budget.join(&pool);
        pool
    }

    #[test]
    fn connecting_and_open_connections_have_separate_bounds() {
        let budget = ConnectionBudget::new(3, 2);
        let pool = pool(&budget);
        let first = budget.try_start(&pool, now()).unwrap();
        let second = budget.try_start(&pool, now()).unwrap();
        assert!(budget.try_start(&pool, now()).is_none(), "two are being opened");
        assert!(pool.wake.notified().now_or_never().is_none());
        let first = first.opened();
        assert!(pool.wake.notified().now_or_never().is_some(), "there is room, and the pool is woken");
        let third = budget.try_start(&pool, now()).unwrap();
        assert!(budget.try_start(&pool, now()).is_none());
        let (second, third) = (second.opened(), third.opened());
        assert_eq!(budget.load(), (3, 0));
        assert!(budget.try_start(&pool, now()).is_none(), "three are open");
        drop((first, second, third));
        assert_eq!(budget.load(), (0, 0));
    }

    #[test]
    fn a_full_budget_frees_an_unused_connection_of_another_worker() {
        let budget = ConnectionBudget::new(1, 1);
        let (rich, poor) = (pool(&budget), pool(&budget));
        let open = budget.try_start(&rich, now()).unwrap().opened();
        assert!(budget.try_start(&poor, now()).is_none());
        assert_eq!(rich.release_requests.load(Relaxed), 0, "nothing unused to ask for");
        rich.idle.store(1, Relaxed);
        assert!(budget.try_start(&poor, now()).is_none());
        assert!(budget.try_start(&poor, now()).is_none());
        assert_eq!(rich.release_requests.load(Relaxed), 1, "asked once");
        assert!(rich.wake.notified().now_or_never().is_some());
        drop(open);
        assert!(poor.wake.notified().now_or_never().is_some());
        assert!(budget.try_start(&poor, now()).is_some());
    }

    #[test]
    fn a_free_connection_is_given_up_for_an_older_call_of_another_worker() {
        let budget = ConnectionBudget::new(2, 2);
        let (rich, poor, other) = (pool(&budget), pool(&budget), pool(&budget));
        let open = [(); 2].map(|()| budget.try_start(&rich, now()).unwrap().opened());
        assert_eq!(budget.release(&rich, 2, None), 0, "no other worker waits");
        let old = now();
        assert!(budget.try_start(&poor, old).is_none());
        assert_eq!(budget.release(&rich, 0, None), 0, "it has none to give");
        assert_eq!(budget.release(&poor, 1, None), 0, "its own call is no other worker's");
        assert_eq!(budget.release(&rich, 1, Some(old)), 0, "its own call is as old");
        assert_eq!(budget.release(&rich, 1, Some(old + 2 * SLACK)), 1);
        assert_eq!(budget.release(&rich, 1, None), 0, "one is on its way");
        assert!(budget.try_start(&other, old).is_none());
        assert_eq!(budget.release(&rich, 2, None), 1, "one for each worker");
        drop(open);
        assert!(poor.wake.notified().now_or_never().is_some());
        assert!(budget.try_start(&poor, old).is_some());
        assert_eq!(budget.release(&rich, 2, None), 0, "all have been woken");
    }
}
