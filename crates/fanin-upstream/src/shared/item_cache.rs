//! A cache of single items of batched operations.
//!
//! An item is found by its request without keys and fields, and by its key. A call for several keys requests only those
//! that are missing. An item serves calls whose fields are among those that it was fetched with. A call that needs more
//! requests the fields of both, so that calls with different fields do not evict each other's items.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use http::StatusCode;
use quick_cache::sync::Cache as EntryMap;
use quick_cache::{DefaultHashBuilder, Equivalent, OptionsBuilder, Weighter};
use tokio::time::Instant;

use super::cache::SPLIT;
use super::lifetime::Lifetime;
use super::{Item, OperationMetrics, ParsedAnswer, RequestKey};
use crate::request::Answer;

/// Memory of an entry besides key and item: the map's slot, the eviction queues, the mark of its refresh.
const OVERHEAD: usize = 200;

/// Requested fields of an item; `None` for all.
pub type Fields = Option<Arc<[Box<str>]>>;

/// Identifies an item: the request, and the key.
#[derive(Clone, Copy, Debug, Hash)]
pub struct ItemKey<'a> {
    /// The request without keys and fields.
    pub of: &'a RequestKey,
    /// The key's text.
    pub text: &'a str,
    /// Whether the key is a string, where that makes a difference.
    pub quoted: bool,
}

/// The owned form. The same field order, because both must have the same hash.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct OwnedItemKey {
    of: RequestKey,
    text: Box<str>,
    quoted: bool,
}

impl Equivalent<OwnedItemKey> for ItemKey<'_> {
    fn equivalent(&self, key: &OwnedItemKey) -> bool {
        *self.text == *key.text && self.quoted == key.quoted && *self.of == key.of
    }
}

/// What is cached for a key.
#[derive(Clone, Debug)]
pub enum CachedItem {
    /// An item, possibly an absent one.
    Item(Item),
    /// An answer without items to a request for this key alone: a 404 or 410.
    Answer(Arc<ParsedAnswer>),
}

#[derive(Clone)]
struct Entry {
    cached: CachedItem,
    fields: Fields,
    /// When the call started. The item of an earlier call never replaces that of a later one.
    begun: Instant,
    fresh_until: Instant,
    stale_until: Instant,
    usable_on_error_until: Instant,
    /// A background refresh is running.
    refreshing: Arc<AtomicBool>,
    /// Bytes that it counts for. Fixed when it is stored, though documents grow when they are read.
    weight: u64,
}

#[derive(Clone)]
struct WeighEntry;

impl Weighter<OwnedItemKey, Entry> for WeighEntry {
    fn weight(&self, _: &OwnedItemKey, entry: &Entry) -> u64 {
        entry.weight
    }
}

/// The result of a lookup.
#[derive(Debug)]
pub enum ItemLookup {
    /// The item with all wanted fields.
    Fresh(CachedItem),
    /// A stale item with all wanted fields, which may be used while it is refreshed: with its fields, and with the
    /// claim to refresh it if nobody else has that.
    Stale(CachedItem, Fields, Option<RefreshClaim>),
    /// No usable item. If there is one that lacks fields, its fields.
    Miss(Option<Fields>),
}

/// The right to refresh an item in the background. Dropping it gives it up.
#[derive(Debug)]
pub struct RefreshClaim(Arc<AtomicBool>);

impl Drop for RefreshClaim {
    fn drop(&mut self) {
        self.0.store(false, Relaxed);
    }
}

/// The cached items of one operation. Bounded in bytes; the least used items are evicted.
pub struct ItemCache {
    config: fanin_config::Cache,
    /// In the answers, each item stands under its key.
    keyed: bool,
    /// A key without values is not absent: a statement with `rows = "many"`.
    empty_is_present: bool,
    entries: EntryMap<OwnedItemKey, Entry, WeighEntry>,
    metrics: Arc<OperationMetrics>,
}

impl fmt::Debug for ItemCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cache of {} items, {} bytes", self.len(), self.bytes())
    }
}

impl ItemCache {
    /// An empty cache for items of such answers.
    pub fn new(config: &fanin_config::Cache, batch: &fanin_config::Batch, counts: Arc<OperationMetrics>) -> ItemCache {
        let options = OptionsBuilder::new()
            .shards(if config.max_size >= SPLIT { 4 } else { 1 })
            .estimated_items_capacity((config.max_size / 1024).clamp(16, 1 << 16))
            .weight_capacity(config.max_size as u64)
            .build();
        let entries = match options {
            Ok(options) => {
                EntryMap::with_options(options, WeighEntry, DefaultHashBuilder::default(), Default::default())
            }
            // Every option is set, so this is never reached; it would be the same in one piece.
            Err(_) => EntryMap::with_weighter(16, config.max_size as u64, WeighEntry),
        };
        let empty_is_present = batch.rows == Some(fanin_config::Rows::Many);
        ItemCache {
            config: config.clone(),
            keyed: batch.match_field.is_none(),
            empty_is_present,
            entries,
            metrics: counts,
        }
    }

    /// Looks up a key for a call that needs these fields. `alone`: the call requests no other key. `refreshes`: the
    /// call could refresh a stale item.
    pub fn lookup(&self, key: ItemKey<'_>, fields: Option<&[Box<str>]>, alone: bool, refreshes: bool) -> ItemLookup {
        let now = Instant::now();
        if let Some(entry) = self.entries.get(&key) {
            let usable = now < entry.fresh_until || refreshes && now < entry.stale_until;
            if usable && !entry.serves(fields, alone) {
                OperationMetrics::increment(&self.metrics.cache_misses);
                return ItemLookup::Miss(matches!(entry.cached, CachedItem::Item(_)).then_some(entry.fields));
            }
            if now < entry.fresh_until {
                OperationMetrics::increment(&self.metrics.cache_hits);
                return ItemLookup::Fresh(entry.cached);
            }
            if usable {
                OperationMetrics::increment(&self.metrics.cache_stale);
                // Not `then_some`, which would always build a claim, and dropping that would give up another's.
                let claim = (!entry.refreshing.swap(true, Relaxed)).then(|| RefreshClaim(entry.refreshing));
                return ItemLookup::Stale(entry.cached, entry.fields, claim);
            }
        }
        OperationMetrics::increment(&self.metrics.cache_misses);
        ItemLookup::Miss(None)
    }

    /// A fresh item that was stored since the first lookup. Does not change the metrics.
    pub fn lookup_fresh(&self, key: ItemKey<'_>, fields: Option<&[Box<str>]>) -> Option<Item> {
        let entry = self.entries.get(&key).filter(|entry| Instant::now() < entry.fresh_until)?;
        entry.item(fields)
    }

    /// An old item in place of a failure of the upstream. [`Self::count_used_on_error`] counts it.
    pub fn lookup_if_error(&self, key: ItemKey<'_>, fields: Option<&[Box<str>]>) -> Option<Item> {
        let entry = self.entries.get(&key).filter(|entry| Instant::now() < entry.usable_on_error_until)?;
        entry.item(fields)
    }

    /// Counts old items that were used in place of failures.
    pub fn count_used_on_error(&self, items: usize) {
        self.metrics.cache_saved.fetch_add(items as u64, Relaxed);
    }

    /// Stores an answer's items, if they may be cached. `fields` are those of the request; `begun` is when the call
    /// started.
    pub fn store<'a>(
        &self,
        answer: &Answer,
        fields: &Fields,
        begun: Instant,
        items: impl Iterator<Item = (ItemKey<'a>, Item)>,
    ) {
        let (present, absent) = (Lifetime::present(&self.config, answer), Lifetime::absent(&self.config, answer));
        if present.is_none() && absent.is_none() {
            return;
        }
        // Copied once for all items, out of the buffer that was read.
        let head = Arc::new(answer.detached(bytes::Bytes::new()));
        for (key, item) in items {
            let missing = item.is_absent() && !self.empty_is_present;
            // An absent item has no members, whichever were requested.
            let (times, fields) = if missing { (absent, &None) } else { (present, fields) };
            let Some(times) = times else {
                self.forget(key, begun);
                continue;
            };
            self.insert(key, CachedItem::Item(item.detached(self.keyed, &head)), fields.clone(), begun, times);
        }
    }

    /// Stores a 404 or 410 to a request for this key alone, if `negative` allows it.
    pub fn store_answer(&self, key: ItemKey<'_>, ready: &ParsedAnswer, fields: &Fields, begun: Instant) {
        if !matches!(ready.answer.status, StatusCode::NOT_FOUND | StatusCode::GONE) {
            return;
        }
        let Some(times) = Lifetime::absent(&self.config, &ready.answer) else { return };
        self.insert(key, CachedItem::Answer(Arc::new(ready.detached())), fields.clone(), begun, times);
    }

    fn insert(&self, key: ItemKey<'_>, cached: CachedItem, fields: Fields, begun: Instant, times: Lifetime) {
        if self.entries.peek(&key).is_some_and(|entry| entry.begun > begun) {
            return;
        }
        let fresh_until = Instant::now() + times.ttl;
        let names: usize = fields.iter().flat_map(|fields| fields.iter()).map(|field| field.len() + 16).sum();
        let memory = match &cached {
            CachedItem::Item(item) => item.memory(),
            CachedItem::Answer(ready) => ready.memory(),
        };
        let entry = Entry {
            weight: (key.of.len() + key.text.len() + names + memory + OVERHEAD) as u64,
            cached,
            fields,
            begun,
            fresh_until,
            stale_until: fresh_until + times.stale,
            usable_on_error_until: fresh_until + times.stale_if_error,
            refreshing: Arc::default(),
        };
        let key = OwnedItemKey { of: key.of.clone(), text: key.text.into(), quoted: key.quoted };
        self.entries.insert(key, entry);
    }

    /// Removes an item that a newer answer has replaced, though that one may not be cached.
    fn forget(&self, key: ItemKey<'_>, begun: Instant) {
        self.entries.remove_if(&key, |entry| entry.begun <= begun);
    }

    /// The number of cached items.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes that the cached items take.
    pub fn bytes(&self) -> u64 {
        self.entries.weight()
    }
}

impl Entry {
    fn serves(&self, fields: Option<&[Box<str>]>, alone: bool) -> bool {
        match (&self.cached, &self.fields) {
            // Only the upstream knows what the status would be for other fields.
            (CachedItem::Answer(_), have) => alone && have.as_deref() == fields,
            (CachedItem::Item(_), None) => true,
            (CachedItem::Item(_), Some(have)) => {
                fields.is_some_and(|fields| fields.iter().all(|field| have.contains(field)))
            }
        }
    }

    fn item(self, fields: Option<&[Box<str>]>) -> Option<Item> {
        match self.serves(fields, false) {
            true => match self.cached {
                CachedItem::Item(item) => Some(item),
                CachedItem::Answer(_) => None,
            },
            false => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fanin_config::{Batch, Rows};
    use fanin_json::Doc;
    use http::HeaderMap;
    use http::header::{CACHE_CONTROL, HeaderValue};

    use super::*;
    use crate::request::Request;

    const SECOND: Duration = Duration::from_secs(1);

    fn cache(batch: &Batch, change: impl FnOnce(&mut fanin_config::Cache)) -> ItemCache {
        let mut config = fanin_config::Cache::new(10 * SECOND);
        change(&mut config);
        ItemCache::new(&config, batch, Arc::default())
    }

    fn list() -> Batch {
        Batch { match_field: Some("id".into()), ..Batch::new("ids") }
    }

    fn fields(names: &[&str]) -> Fields {
        Some(names.iter().map(|name| (*name).into()).collect())
    }

    fn of(user: &'static str) -> RequestKey {
        let mut request = Request::get("/p");
        request.headers.insert("authorization", HeaderValue::from_static(user));
        RequestKey::of(&request)
    }

    fn key<'a>(of: &'a RequestKey, text: &'a str) -> ItemKey<'a> {
        ItemKey { of, text, quoted: false }
    }

    fn answer(status: u16, control: &'static str) -> Answer {
        let mut headers = HeaderMap::new();
        if !control.is_empty() {
            headers.insert(CACHE_CONTROL, HeaderValue::from_static(control));
        }
        let status = StatusCode::from_u16(status).unwrap();
        Answer { status, headers: headers.into(), body: "".into(), elapsed: Duration::ZERO, unrequested_part: false }
    }

    fn item(text: &str) -> Item {
        let doc = Doc::parse(bytes::Bytes::copy_from_slice(text.as_bytes()), 8).unwrap();
        let at = doc.root().at();
        Item { answer: Arc::new(answer(200, "")), values: [(doc, at)].into_iter().collect() }
    }

    fn nothing() -> Item {
        Item { answer: Arc::new(answer(200, "")), values: Default::default() }
    }

    fn store(items: &ItemCache, of: &RequestKey, text: &str, fields: &Fields, item: Item) {
        items.store(&answer(200, ""), fields, Instant::now(), std::iter::once((key(of, text), item)));
    }

    /// What it has of a key, and the item's text.
    fn state(items: &ItemCache, key: ItemKey<'_>, fields: &Fields) -> String {
        let text = |cached: CachedItem| match cached {
            CachedItem::Item(item) => {
                item.nodes().map(|node| String::from_utf8_lossy(node.raw()).into_owned()).collect()
            }
            CachedItem::Answer(ready) => ready.answer.status.as_str().to_owned(),
        };
        match items.lookup(key, fields.as_deref(), true, true) {
            ItemLookup::Fresh(cached) => format!("fresh {}", text(cached)),
            ItemLookup::Stale(cached, _, claim) => format!("stale {} {}", text(cached), claim.is_some()),
            ItemLookup::Miss(None) => "nothing".to_owned(),
            ItemLookup::Miss(Some(have)) => format!("only {have:?}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_item_serves_calls_for_no_more_than_it_was_fetched_with() {
        let (items, a) = (cache(&list(), |_| {}), of("a"));
        store(&items, &a, "1", &fields(&["name", "price"]), item("1"));
        assert_eq!(state(&items, key(&a, "1"), &fields(&["price"])), "fresh 1");
        assert_eq!(state(&items, key(&a, "1"), &fields(&[])), "fresh 1");
        assert_eq!(state(&items, key(&a, "1"), &fields(&["stock"])), r#"only Some(["name", "price"])"#);
        assert_eq!(state(&items, key(&a, "1"), &None), r#"only Some(["name", "price"])"#);
        store(&items, &a, "1", &None, item("2"));
        for wanted in [None, fields(&["stock"])] {
            assert_eq!(state(&items, key(&a, "1"), &wanted), "fresh 2");
        }
        tokio::time::advance(11 * SECOND).await;
        assert_eq!(state(&items, key(&a, "1"), &fields(&["x"])), "nothing", "what is over widens nothing");
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_gets_anothers() {
        let (items, a, b) = (cache(&list(), |_| {}), of("a"), of("b"));
        store(&items, &a, "1", &None, item("1"));
        assert_eq!(state(&items, key(&b, "1"), &None), "nothing");
        assert_eq!(state(&items, ItemKey { quoted: true, ..key(&a, "1") }, &None), "nothing");
        assert_eq!(state(&items, key(&a, "2"), &None), "nothing");
        assert_eq!(state(&items, key(&a, "1"), &None), "fresh 1");
    }

    #[tokio::test(start_paused = true)]
    async fn a_stale_item_has_one_refresh_and_serves_on_error_for_longer() {
        let a = of("a");
        let items = cache(&list(), |config| (config.stale, config.stale_if_error) = (5 * SECOND, 20 * SECOND));
        store(&items, &a, "1", &None, item("1"));
        tokio::time::advance(11 * SECOND).await;
        let ItemLookup::Stale(_, _, Some(claim)) = items.lookup(key(&a, "1"), None, false, true) else {
            panic!("stale")
        };
        assert_eq!(state(&items, key(&a, "1"), &None), "stale 1 false");
        drop(claim);
        assert_eq!(state(&items, key(&a, "1"), &None), "stale 1 true");
        assert!(matches!(items.lookup(key(&a, "1"), None, false, false), ItemLookup::Miss(None)), "who cannot refresh");
        tokio::time::advance(5 * SECOND).await;
        assert_eq!(state(&items, key(&a, "1"), &None), "nothing");
        assert!(
            items.lookup_if_error(key(&a, "1"), None).is_some() && items.lookup_fresh(key(&a, "1"), None).is_none()
        );
        tokio::time::advance(15 * SECOND).await;
        assert!(items.lookup_if_error(key(&a, "1"), None).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn absent_items_are_cached_only_with_negative_and_replace_old_ones() {
        let (a, plain) = (of("a"), cache(&list(), |_| {}));
        store(&plain, &a, "1", &None, item("1"));
        store(&plain, &a, "1", &None, nothing());
        assert_eq!(state(&plain, key(&a, "1"), &None), "nothing");
        let negative = cache(&list(), |config| config.negative = 2 * SECOND);
        store(&negative, &a, "1", &fields(&["x"]), nothing());
        assert_eq!(state(&negative, key(&a, "1"), &None), "fresh ", "whichever fields are requested");
        tokio::time::advance(3 * SECOND).await;
        assert_eq!(state(&negative, key(&a, "1"), &None), "nothing");
        // No rows are an answer where there may be any number.
        let rows = cache(&Batch { rows: Some(Rows::Many), ..list() }, |_| {});
        store(&rows, &a, "1", &None, nothing());
        assert_eq!(state(&rows, key(&a, "1"), &None), "fresh ");
    }

    #[tokio::test(start_paused = true)]
    async fn a_404_is_cached_for_its_key_alone() {
        let (a, items) = (of("a"), cache(&list(), |config| config.negative = 2 * SECOND));
        let ready = |status| ParsedAnswer { answer: answer(status, ""), body: crate::shared::Body::Text };
        items.store_answer(key(&a, "1"), &ready(404), &None, Instant::now());
        items.store_answer(key(&a, "2"), &ready(400), &None, Instant::now());
        assert_eq!(state(&items, key(&a, "1"), &None), "fresh 404");
        assert_eq!(state(&items, key(&a, "2"), &None), "nothing");
        assert!(matches!(items.lookup(key(&a, "1"), None, false, true), ItemLookup::Miss(None)), "not among others");
        assert_eq!(state(&items, key(&a, "1"), &fields(&["x"])), "nothing");
    }

    #[tokio::test(start_paused = true)]
    async fn cache_control_applies_to_all_items_of_an_answer() {
        let (a, items) = (of("a"), cache(&list(), |config| config.cache_control = true));
        let both = || [(key(&a, "1"), item("1")), (key(&a, "2"), nothing())].into_iter();
        items.store(&answer(200, "no-store"), &None, Instant::now(), both());
        assert!(items.is_empty());
        items.store(&answer(200, "max-age=3"), &None, Instant::now(), both());
        assert_eq!([state(&items, key(&a, "1"), &None), state(&items, key(&a, "2"), &None)], ["fresh 1", "fresh "]);
        tokio::time::advance(4 * SECOND).await;
        assert_eq!(state(&items, key(&a, "1"), &None), "nothing");
    }

    #[tokio::test(start_paused = true)]
    async fn an_older_item_does_not_replace_a_newer_one() {
        let (a, items) = (of("a"), cache(&list(), |_| {}));
        let early = Instant::now();
        tokio::time::advance(SECOND).await;
        store(&items, &a, "1", &None, item("2"));
        for old in [item("1"), nothing()] {
            items.store(&answer(200, ""), &None, early, std::iter::once((key(&a, "1"), old)));
            assert_eq!(state(&items, key(&a, "1"), &None), "fresh 2");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_cache_is_bounded_in_bytes() {
        let (a, items) = (of("a"), cache(&list(), |config| config.max_size = 100_000));
        let text = format!("\"{}\"", "x".repeat(500));
        for at in 0..1000 {
            store(&items, &a, &at.to_string(), &None, item(&text));
            assert!(items.bytes() <= 100_000, "{} bytes", items.bytes());
        }
        assert!(items.len() > 10, "{items:?}");
    }

    #[test]
    fn a_cached_item_does_not_keep_its_document() {
        let doc = Doc::parse(format!(r#"{{"a": {{"x": 1.50}}, "b": "{}"}}"#, "y".repeat(1000)).into(), 8).unwrap();
        let at = doc.root().get("a").unwrap().at();
        let whole = Item { answer: Arc::new(answer(200, "")), values: [(doc.clone(), at)].into_iter().collect() };
        let answer = Arc::new(answer(200, ""));
        for keyed in [false, true] {
            let kept = whole.detached(keyed, &answer);
            let (copy, at) = &kept.values[0];
            assert_eq!(copy.node(*at).raw(), br#"{"x": 1.50}"#);
            assert!(copy.bytes().len() < 40 && kept.memory() < 700, "{} bytes", kept.memory());
            if keyed {
                assert_eq!(copy.node(at - 1).as_str().as_deref(), Some("a"));
            }
        }
    }
}
