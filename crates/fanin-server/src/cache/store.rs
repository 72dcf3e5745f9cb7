//! The kept responses of one route.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fanin_config::ResponseCache;
use http::HeaderMap;
use http::uri::PathAndQuery;
use quick_cache::sync::Cache as EntryMap;
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};
use tokio::time::Instant;

use super::flight::Flights;
use super::key::{Key, Varies, primary};
use super::stored::Stored;
use super::tags::Purges;
use crate::RouteSpec;

/// How long requests for a target do not wait for each other, since its response was not for others.
const PASSING: Duration = Duration::from_secs(10);
/// A cache of this size or larger is sharded.
const SPLIT: usize = 4 << 20;

/// The kept responses of one route, for all workers. Bounded in bytes; the least used ones are evicted.
pub(crate) struct RouteCache {
    pub(super) config: ResponseCache,
    /// Requests that may wait for others.
    pub(super) most_waiting: usize,
    entries: EntryMap<Box<[u8]>, Entry, WeighEntry>,
    pub(super) flights: Arc<Flights>,
    pub(super) purges: Arc<Purges>,
    /// The last epoch of what responses vary by.
    epoch: AtomicU64,
    /// Changes of targets, which requests without a flight must not miss.
    changes: AtomicU64,
}

#[derive(Clone)]
enum Entry {
    Response(Arc<Stored>),
    /// The responses of this target are kept under longer keys.
    Varies(Arc<Varies>),
    /// The last response was not for others.
    Passing(Instant),
}

#[derive(Clone)]
struct WeighEntry;

impl Weighter<Box<[u8]>, Entry> for WeighEntry {
    fn weight(&self, key: &Box<[u8]>, entry: &Entry) -> u64 {
        match entry {
            Entry::Response(stored) => stored.memory(key.len()),
            Entry::Varies(varies) => (200 + key.len() + varies.memory()) as u64,
            Entry::Passing(_) => (160 + key.len()) as u64,
        }
    }
}

impl fmt::Debug for RouteCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cache of {} responses, {} bytes", self.len(), self.bytes())
    }
}

/// What is known of a request's response.
pub(super) struct Found {
    /// The key of the response, as far as it is known what it varies by.
    pub(super) key: Key,
    pub(super) stored: Option<Arc<Stored>>,
    /// Other responses of the target are kept.
    pub(super) varies: bool,
    /// Requests for the target do not wait for each other.
    pub(super) passing: bool,
}

impl RouteCache {
    pub(super) fn new(spec: &RouteSpec, config: &ResponseCache, purges: Arc<Purges>) -> RouteCache {
        let options = OptionsBuilder::new()
            .shards(if config.max_size >= SPLIT { 4 } else { 1 })
            .estimated_items_capacity((config.max_size / 4096).clamp(16, 1 << 16))
            .weight_capacity(config.max_size as u64)
            .build();
        let entries = match options {
            Ok(options) => {
                EntryMap::with_options(options, WeighEntry, DefaultHashBuilder::default(), Default::default())
            }
            // Every option is set, so this is never reached; it would be the same in one piece.
            Err(_) => EntryMap::with_weighter(16, config.max_size as u64, WeighEntry),
        };
        RouteCache {
            config: config.clone(),
            most_waiting: spec.limit.saturating_add(spec.max_waiting),
            entries,
            flights: Arc::default(),
            purges,
            epoch: AtomicU64::new(0),
            changes: AtomicU64::new(0),
        }
    }

    /// Looks a request up. `coding` is the encoding that Fanin has chosen for its response.
    pub(super) fn find(&self, primary: &[u8], headers: &HeaderMap, coding: Option<&str>, now: Instant) -> Found {
        let found = |stored, passing| Found { key: Key::from_slice(primary), stored, varies: false, passing };
        match self.entries.get(primary) {
            None => found(None, false),
            Some(Entry::Response(stored)) => found(self.unpurged(primary, stored), false),
            Some(Entry::Passing(until)) => found(None, now < until),
            Some(Entry::Varies(varies)) => {
                let key = varies.key(primary, headers, coding);
                let stored = match self.entries.get(&*key) {
                    Some(Entry::Response(stored)) => self.unpurged(&key, stored),
                    _ => None,
                };
                Found { key, stored, varies: true, passing: false }
            }
        }
    }

    fn unpurged(&self, key: &[u8], stored: Arc<Stored>) -> Option<Arc<Stored>> {
        if self.purges.is_purged(&stored.tags, stored.made) {
            self.entries.remove(key);
            return None;
        }
        Some(stored)
    }

    /// Keeps a response.
    pub(super) fn insert(
        &self,
        primary: &[u8],
        request: &HeaderMap,
        coding: Option<&str>,
        stored: Stored,
    ) -> Option<Key> {
        let Ok(varies) = Varies::of(&self.config, &stored.headers, stored.is_encoded_here, 0) else {
            self.pass(primary);
            return None;
        };
        let known = self.entries.peek(primary);
        let Some(mut varies) = varies else {
            if let Some(Entry::Response(known)) = &known
                && known.begun > stored.begun
            {
                return None;
            }
            self.entries.insert(primary.into(), Entry::Response(Arc::new(stored)));
            return Some(Key::from_slice(primary));
        };
        match known {
            Some(Entry::Varies(known)) if known.is_like(&varies) => varies.epoch = known.epoch,
            _ => {
                varies.epoch = self.epoch.fetch_add(1, Ordering::Relaxed) + 1;
            }
        }
        let key = varies.key(primary, request, coding);
        // Again and again, so that it is not evicted before those that it leads to.
        self.entries.insert(primary.into(), Entry::Varies(Arc::new(varies)));
        self.entries.insert(key.as_slice().into(), Entry::Response(Arc::new(stored)));
        Some(key)
    }

    /// The last response of a target was not for others.
    pub(super) fn pass(&self, primary: &[u8]) {
        self.entries.insert(primary.into(), Entry::Passing(Instant::now() + PASSING));
    }

    pub(super) fn remove(&self, key: &[u8]) {
        self.entries.remove(key);
    }

    /// The target has changed (RFC 9111, 4.4).
    pub(crate) fn invalidate(&self, host: &str, target: &PathAndQuery) {
        let primary = primary(&self.config, host, target);
        self.changes.fetch_add(1, Ordering::AcqRel);
        self.flights.spoil(&primary);
        self.entries.remove(&*primary);
    }

    /// The same for all hosts. Looks at every entry.
    pub(crate) fn purge_target(&self, target: &PathAndQuery) {
        self.changes.fetch_add(1, Ordering::AcqRel);
        self.flights.spoil(b"");
        let wanted = primary(&self.config, "", target);
        self.entries.retain(|key, _| {
            let at = memchr::memchr(b'\n', key).unwrap_or(0);
            let end = key[at..].strip_prefix(&*wanted);
            !end.is_some_and(|end| end.is_empty() || end[0] == 0)
        });
    }

    /// Removes everything.
    pub(crate) fn clear(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
        self.flights.spoil(b"");
        self.entries.clear();
    }

    /// The number of changes.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Entries in it.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Bytes in it.
    pub(crate) fn bytes(&self) -> u64 {
        self.entries.weight()
    }
}
