//! What each client has open, and the bounds on it, so that one host cannot take what is for all.
//!
//! A client is an IPv4 address or an IPv6 network of 64 bits. An entry leaves the table with its last connection or request, and once its
//! resets are forgotten. The table is in shards: a connection locks one at its begin and end, a request only if a header names its client.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// For so long resets are counted together.
pub(crate) const WINDOW: Duration = Duration::from_secs(10);
const SHARDS: usize = 16;
/// With more entries than this, a shard forgets the resets of clients that have nothing open.
const MAX_SHARD: usize = 4096;

/// A bound on each client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bound {
    Connections,
    Handshakes,
    InProgress,
    Resets,
}

impl Bound {
    pub(crate) const ALL: [Bound; 4] = [Bound::Connections, Bound::Handshakes, Bound::InProgress, Bound::Resets];

    pub(crate) fn label(self) -> &'static str {
        match self {
            Bound::Connections => "connections",
            Bound::Handshakes => "handshakes",
            Bound::InProgress => "in-progress",
            Bound::Resets => "resets",
        }
    }
}

/// All clients of the process that have something open.
#[derive(Debug)]
pub(crate) struct Clients {
    shards: [Mutex<Shard>; SHARDS],
    hasher: RandomState,
    started: Instant,
    /// The window in which a client last had too many resets.
    over: AtomicU64,
}

#[derive(Debug, Default)]
struct Shard {
    clients: HashMap<IpAddr, Arc<Counts>>,
    /// The window of the last sweep.
    swept: u64,
}

#[derive(Debug, Default)]
struct Counts {
    connections: AtomicU64,
    handshakes: AtomicU64,
    in_progress: AtomicU64,
    /// The window in the upper half, the resets in it in the lower.
    resets: AtomicU64,
}

impl Counts {
    fn resets_in(&self, window: u64) -> u64 {
        let resets = self.resets.load(Relaxed);
        if resets >> 32 == window { resets & u64::from(u32::MAX) } else { 0 }
    }

    fn of(&self, bound: Bound) -> &AtomicU64 {
        match bound {
            Bound::Connections => &self.connections,
            Bound::Handshakes => &self.handshakes,
            Bound::InProgress => &self.in_progress,
            Bound::Resets => &self.resets,
        }
    }
}

impl Clients {
    pub(crate) fn new() -> Arc<Clients> {
        Arc::new(Clients {
            shards: Default::default(),
            hasher: RandomState::new(),
            started: Instant::now(),
            over: AtomicU64::new(0),
        })
    }

    /// From 1, so that no count belongs to window 0.
    fn window(&self, now: Instant) -> u64 {
        (now.saturating_duration_since(self.started).as_secs() / WINDOW.as_secs() + 1) & u64::from(u32::MAX)
    }

    fn shard(&self, key: &IpAddr) -> MutexGuard<'_, Shard> {
        let at = self.hasher.hash_one(key) as usize % SHARDS;
        self.shards[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The client with this address.
    pub(crate) fn client(self: &Arc<Self>, address: IpAddr) -> Client {
        let key = key(address);
        let mut shard = self.shard(&key);
        let window = self.window(Instant::now());
        if shard.swept != window {
            shard.swept = window;
            shard.clients.retain(|_, counts| Arc::strong_count(counts) > 1 || counts.resets_in(window) > 0);
        }
        let counts = shard.clients.entry(key).or_default().clone();
        Client { counts, clients: self.clone(), key: Some(key) }
    }

    /// A client that shares its counts with no other connection.
    pub(crate) fn alone(self: &Arc<Self>) -> Client {
        Client { counts: Arc::default(), clients: self.clone(), key: None }
    }

    /// Whether any client has had too many resets lately. Costs no lock.
    #[inline]
    pub(crate) fn any_over(&self, now: Instant) -> bool {
        let over = self.over.load(Relaxed);
        over != 0 && over == self.window(now)
    }

    /// How many clients there are.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().unwrap_or_else(PoisonError::into_inner).clients.len()).sum()
    }
}

/// An IPv6 host usually has a network of 64 bits for itself.
fn key(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6((v6.to_bits() & !u128::from(u64::MAX)).into()),
        v4 => v4,
    }
}

/// One client. It stays in the table as long as this exists.
#[derive(Debug)]
pub(crate) struct Client {
    counts: Arc<Counts>,
    clients: Arc<Clients>,
    /// `None`: it is not in the table.
    key: Option<IpAddr>,
}

impl Client {
    /// Takes one of what is bounded. `None`: the client has `max` of them.
    pub(crate) fn take(&self, bound: Bound, max: Option<usize>) -> Option<Taken> {
        let count = self.counts.of(bound);
        if count.fetch_add(1, Relaxed) >= max.map_or(u64::MAX, |max| max as u64) {
            count.fetch_sub(1, Relaxed);
            return None;
        }
        Some(Taken { counts: self.counts.clone(), bound })
    }

    /// Counts a reset. Whether there are too many now.
    pub(crate) fn reset(&self, max: usize, now: Instant) -> bool {
        let window = self.clients.window(now);
        let counted = self.counts.resets.fetch_update(Relaxed, Relaxed, |resets| {
            Some(if resets >> 32 == window { resets.saturating_add(1) } else { window << 32 | 1 })
        });
        let before = counted.map_or(0, |resets| if resets >> 32 == window { resets & u64::from(u32::MAX) } else { 0 });
        let over = before >= max as u64;
        if over {
            self.clients.over.store(window, Relaxed);
        }
        over
    }

    /// Whether there have been too many resets.
    #[inline]
    pub(crate) fn is_over(&self, max: usize, now: Instant) -> bool {
        self.clients.any_over(now) && self.counts.resets_in(self.clients.window(now)) > max as u64
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let Some(key) = self.key else { return };
        let mut shard = self.clients.shard(&key);
        let remembers = self.counts.resets_in(self.clients.window(Instant::now())) > 0;
        // Held by the table and by this only. Others take it under the lock.
        if Arc::strong_count(&self.counts) == 2 && (!remembers || shard.clients.len() > MAX_SHARD) {
            shard.clients.remove(&key);
        }
    }
}

/// One of what is bounded, until it is dropped. The client must outlive it, which keeps the entry in the table.
#[derive(Debug)]
pub(crate) struct Taken {
    counts: Arc<Counts>,
    bound: Bound,
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.counts.of(self.bound).fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_client_is_an_address_or_a_network() {
        let clients = Clients::new();
        let first = clients.client(ip("203.0.113.7"));
        let taken = first.take(Bound::Connections, Some(1)).unwrap();
        assert!(clients.client(ip("203.0.113.7")).take(Bound::Connections, Some(1)).is_none());
        assert!(clients.client(ip("::ffff:203.0.113.7")).take(Bound::Connections, Some(1)).is_none());
        assert!(clients.client(ip("203.0.113.8")).take(Bound::Connections, Some(1)).is_some());
        drop(taken);
        assert!(first.take(Bound::Connections, Some(1)).is_some());
        let network = clients.client(ip("2001:db8::1"));
        let _taken = network.take(Bound::InProgress, Some(1)).unwrap();
        assert!(clients.client(ip("2001:db8::2")).take(Bound::InProgress, Some(1)).is_none());
        assert!(clients.client(ip("2001:db8:0:1::1")).take(Bound::InProgress, Some(1)).is_some());
    }

    #[test]
    fn entries_leave_with_what_is_open() {
        let clients = Clients::new();
        let (one, other) = (clients.client(ip("203.0.113.7")), clients.client(ip("203.0.113.7")));
        assert_eq!(clients.len(), 1);
        drop(one);
        assert_eq!(clients.len(), 1);
        drop(other);
        assert_eq!(clients.len(), 0);
        drop(clients.alone());
        assert_eq!(clients.len(), 0);
    }

    #[test]
    fn resets_are_remembered_for_a_window_and_not_longer() {
        let clients = Clients::new();
        let (address, now) = (ip("203.0.113.7"), clients.started);
        let client = clients.client(address);
        assert!(!client.reset(2, now) && !client.reset(2, now) && !client.is_over(2, now));
        assert!(client.reset(2, now) && client.is_over(2, now));
        drop(client);
        let again = clients.client(address);
        assert!(again.is_over(2, now), "over a new connection too");
        let later = now + WINDOW;
        assert!(!again.is_over(2, later) && !again.reset(2, later));
    }

    #[test]
    fn many_clients_with_resets_do_not_fill_the_table() {
        let clients = Clients::new();
        for number in 0..(SHARDS * MAX_SHARD * 2) as u32 {
            clients.client(std::net::Ipv4Addr::from(number).into()).reset(9, clients.started);
        }
        assert!(clients.len() <= SHARDS * (MAX_SHARD + 1), "{}", clients.len());
    }
}
