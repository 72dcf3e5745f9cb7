//! A cache of whole answers. An answer is used for `ttl`, then for `stale` while a new one is fetched, and for
//! `stale_if_error` when the upstream fails.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use quick_cache::sync::Cache as EntryMap;
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};
use tokio::time::Instant;

use super::lifetime::Lifetime;
use super::{OperationMetrics, ParsedAnswer, RequestKey};

/// Memory of an entry besides key and answer: the map's slot and the eviction queues.
const OVERHEAD: usize = 160;
/// A cache of this size or larger is sharded.
pub(super) const SPLIT: usize = 4 << 20;

/// The cached answers of one operation. Bounded in bytes; the least used answers are evicted.
pub struct Cache {
    config: fanin_config::Cache,
    entries: EntryMap<RequestKey, Entry, WeighEntry>,
    metrics: Arc<OperationMetrics>,
}

#[derive(Clone)]
struct Entry {
    ready: Arc<ParsedAnswer>,
    /// When the call started. The answer of an earlier call never replaces that of a later one.
    begun: Instant,
    fresh_until: Instant,
    stale_until: Instant,
    usable_on_error_until: Instant,
    /// Bytes that it counts for. Fixed when it is stored, though documents grow when they are read.
    weight: u64,
}

#[derive(Clone)]
struct WeighEntry;

impl Weighter<RequestKey, Entry> for WeighEntry {
    fn weight(&self, _: &RequestKey, entry: &Entry) -> u64 {
        entry.weight
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cache of {} answers, {} bytes", self.len(), self.bytes())
    }
}

/// The result of a lookup.
#[derive(Debug)]
pub enum CacheLookup {
    /// An answer.
    Fresh(Arc<ParsedAnswer>),
    /// An answer that may be used while a new one is fetched.
    Stale(Arc<ParsedAnswer>),
    /// Nothing that may be used.
    Miss,
}

impl Cache {
    /// An empty cache.
    pub fn new(config: &fanin_config::Cache, counts: Arc<OperationMetrics>) -> Cache {
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
        Cache { config: config.clone(), entries, metrics: counts }
    }

    /// Looks up a call.
    pub fn lookup(&self, key: &RequestKey) -> CacheLookup {
        let now = Instant::now();
        match self.entries.get(key) {
            Some(entry) if now < entry.fresh_until => {
                OperationMetrics::increment(&self.metrics.cache_hits);
                CacheLookup::Fresh(entry.ready)
            }
            Some(entry) if now < entry.stale_until => {
                OperationMetrics::increment(&self.metrics.cache_stale);
                CacheLookup::Stale(entry.ready)
            }
            _ => {
                OperationMetrics::increment(&self.metrics.cache_misses);
                CacheLookup::Miss
            }
        }
    }

    /// A fresh answer that was stored since the first lookup. Does not change the metrics.
    pub fn lookup_fresh(&self, key: &RequestKey) -> Option<Arc<ParsedAnswer>> {
        self.entries.get(key).filter(|entry| Instant::now() < entry.fresh_until).map(|entry| entry.ready)
    }

    /// An old answer in place of a failure of the upstream.
    pub fn lookup_if_error(&self, key: &RequestKey) -> Option<Arc<ParsedAnswer>> {
        let entry = self.entries.get(key).filter(|entry| Instant::now() < entry.usable_on_error_until)?;
        OperationMetrics::increment(&self.metrics.cache_saved);
        Some(entry.ready)
    }

    /// Stores an answer if it may be cached. `fine` tells whether the call accepts its status; `begun` is when the call
    /// started.
    pub fn store(&self, key: &RequestKey, ready: &Arc<ParsedAnswer>, fine: bool, begun: Instant) {
        let Some(times) = Lifetime::of_answer(&self.config, &ready.answer, fine) else { return };
        if self.entries.peek(key).is_some_and(|entry| entry.begun > begun) {
            return;
        }
        let fresh_until = Instant::now() + times.ttl;
        let ready = ready.detached();
        let entry = Entry {
            weight: (key.len() + ready.memory() + OVERHEAD) as u64,
            ready: Arc::new(ready),
            begun,
            fresh_until,
            stale_until: fresh_until + times.stale,
            usable_on_error_until: fresh_until + times.stale_if_error,
        };
        self.entries.insert(key.clone(), entry);
    }

    /// The number of cached answers.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes that the cached answers take.
    pub fn bytes(&self) -> u64 {
        self.entries.weight()
    }

    /// The counter of hits.
    pub fn hits(&self) -> &AtomicU64 {
        &self.metrics.cache_hits
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use fanin_json::Doc;
    use http::header::CACHE_CONTROL;
    use http::{HeaderMap, HeaderValue, StatusCode};

    use super::*;
    use crate::request::{Answer, Request};
    use crate::shared::Body;

    const SECOND: Duration = Duration::from_secs(1);

    fn cache(change: impl FnOnce(&mut fanin_config::Cache)) -> Cache {
        let mut config = fanin_config::Cache::new(10 * SECOND);
        change(&mut config);
        Cache::new(&config, Arc::default())
    }

    fn key(path: &str) -> RequestKey {
        RequestKey::of(&Request::get(path))
    }

    fn ready(status: u16, control: &'static str, body: &str) -> Arc<ParsedAnswer> {
        let mut headers = HeaderMap::new();
        if !control.is_empty() {
            headers.insert(CACHE_CONTROL, HeaderValue::from_static(control));
        }
        let doc = Doc::parse(Bytes::copy_from_slice(body.as_bytes()), 8).unwrap();
        let answer = Answer {
            status: StatusCode::from_u16(status).unwrap(),
            headers: headers.into(),
            body: doc.bytes().clone(),
            elapsed: Duration::ZERO,
            unrequested_part: false,
        };
        Arc::new(ParsedAnswer { answer, body: Body::Json(doc) })
    }

    fn store(cache: &Cache, path: &str, ready: &Arc<ParsedAnswer>) {
        cache.store(&key(path), ready, ready.answer.status.is_success(), Instant::now());
    }

    fn state(cache: &Cache, path: &str) -> &'static str {
        match cache.lookup(&key(path)) {
            CacheLookup::Fresh(_) => "fresh",
            CacheLookup::Stale(_) => "stale",
            CacheLookup::Miss => "nothing",
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_fresh_then_stale_then_used_on_error_then_gone() {
        let cache = cache(|config| {
            config.stale = 5 * SECOND;
            config.stale_if_error = 20 * SECOND;
        });
        assert_eq!(state(&cache, "/a"), "nothing");
        store(&cache, "/a", &ready(200, "no-store", "1"));
        for (after, expected, saves) in
            [(9, "fresh", true), (3, "stale", true), (4, "nothing", true), (20, "nothing", false)]
        {
            tokio::time::advance(after * SECOND).await;
            assert_eq!((state(&cache, "/a"), cache.lookup_if_error(&key("/a")).is_some()), (expected, saves));
        }
        assert_eq!(state(&cache, "/b"), "nothing");
    }

    #[tokio::test(start_paused = true)]
    async fn failures_are_not_cached_and_absences_only_with_negative() {
        let plain = cache(|_| {});
        for status in [301, 400, 404, 410, 429, 500, 503] {
            store(&plain, "/a", &ready(status, "", "1"));
        }
        assert!(plain.is_empty());
        let negative = cache(|config| config.negative = 2 * SECOND);
        store(&negative, "/a", &ready(404, "", "1"));
        store(&negative, "/b", &ready(400, "", "1"));
        assert_eq!((state(&negative, "/a"), state(&negative, "/b")), ("fresh", "nothing"));
        tokio::time::advance(3 * SECOND).await;
        assert_eq!(state(&negative, "/a"), "nothing");
    }

    #[tokio::test(start_paused = true)]
    async fn an_older_answer_does_not_replace_a_newer_one() {
        let cache = cache(|_| {});
        let early = Instant::now();
        tokio::time::advance(SECOND).await;
        cache.store(&key("/a"), &ready(200, "", "2"), true, Instant::now());
        cache.store(&key("/a"), &ready(200, "", "1"), true, early);
        let CacheLookup::Fresh(found) = cache.lookup(&key("/a")) else { panic!("it is there") };
        assert_eq!(found.answer.body, "2");
    }

    #[tokio::test(start_paused = true)]
    async fn reading_a_cached_answer_does_not_change_its_weight() {
        let cache = cache(|config| config.max_size = 3000);
        for at in 0..100 {
            store(&cache, &format!("/{}", at % 7), &ready(200, "", r#"[1,2,3,[4,5,[6]],{"a":1}]"#));
            let CacheLookup::Fresh(found) = cache.lookup(&key(&format!("/{}", at % 7))) else { continue };
            let Body::Json(doc) = &found.body else { panic!("{found:?}") };
            let bound = doc.memory_at_most();
            assert_eq!(doc.root().len(), Some(5));
            assert!(doc.is_indexed() && doc.memory() <= bound && bound == doc.memory_at_most());
            assert!(cache.bytes() <= 3000, "{} bytes", cache.bytes());
        }
        assert!(!cache.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn the_cache_is_bounded_in_bytes() {
        let cache = cache(|config| config.max_size = 100_000);
        let body = format!("\"{}\"", "x".repeat(1000));
        for at in 0..1000 {
            store(&cache, &format!("/{at}"), &ready(200, "", &body));
            assert!(cache.bytes() <= 100_000, "{} bytes", cache.bytes());
        }
        assert!(cache.len() > 10, "{cache:?}");
        // What would be larger than the whole is not kept at all.
        store(&cache, "/large", &ready(200, "", &format!("\"{}\"", "x".repeat(200_000))));
        assert_eq!(state(&cache, "/large"), "nothing");
        assert!(cache.bytes() <= 100_000);
    }
}
