//! The keys of an issuer: fetched in the background, kept while it does not answer, and fetched early for an unknown key id, at most once
//! an interval. Whoever fetches is outside: it awaits [`IssuerKeys::due`], fetches, and reports.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use fanin_config::Auth;
use prometheus_client::metrics::counter::Counter;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::keys::{self, Key};

/// The pause after the first failed fetch while there are no keys. It doubles, up to `min_interval`.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// Most requests that wait for a fetch at the same time.
const MAX_WAITING: usize = 1000;

/// The keys of an issuer. Kept by reloads that do not change where they come from.
#[derive(Debug)]
pub struct IssuerKeys {
    times: Times,
    current: ArcSwapOption<FetchedKeys>,
    fetching: Mutex<Fetching>,
    /// Ends of fetches.
    ends: watch::Sender<u64>,
    wake: Notify,
    /// Who fetches: the last that took it over.
    owner: AtomicU64,
    waiting: AtomicUsize,
    /// Fetches that gave keys, and those that failed.
    counts: [Counter; 2],
}

/// When to fetch.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Times {
    refresh: Duration,
    min_interval: Duration,
    max_stale: Duration,
}

/// Keys that were fetched.
#[derive(Debug)]
pub(crate) struct FetchedKeys {
    pub keys: Arc<Vec<Key>>,
    /// Changes with the keys, so that what was verified with others is verified again.
    pub version: u64,
    text: Bytes,
    at: Instant,
}

#[derive(Debug, Default)]
struct Fetching {
    begun: Option<Instant>,
    running: bool,
    /// A request waits for a fetch that has not begun.
    wanted: bool,
    failures: u32,
}

/// What there is for a request.
#[derive(Debug)]
pub(crate) enum Present {
    Keys(Arc<FetchedKeys>),
    /// There are none yet.
    None,
    /// The last ones are too old.
    Stale,
}

/// What a fetch can do for a request whose key is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hope {
    /// A fetch runs or is about to. Its end has this number.
    Fetch(u64),
    /// The issuer has answered a moment ago: there is no such key.
    Answered,
    /// The last fetch failed a moment ago, or too many requests wait.
    Failed,
}

impl IssuerKeys {
    /// None yet.
    pub fn new(auth: &Auth, counts: [Counter; 2]) -> IssuerKeys {
        IssuerKeys {
            times: Times { refresh: auth.refresh, min_interval: auth.min_interval, max_stale: auth.max_stale },
            current: ArcSwapOption::empty(),
            fetching: Mutex::default(),
            ends: watch::Sender::new(0),
            wake: Notify::new(),
            owner: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            counts,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Fetching> {
        // Held for a few instructions, which can't panic.
        self.fetching.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn present(&self, now: Instant) -> Present {
        match self.current.load_full() {
            None => Present::None,
            Some(fetched) if now.saturating_duration_since(fetched.at) > self.times.max_stale => Present::Stale,
            Some(fetched) => Present::Keys(fetched),
        }
    }

    /// A request has a key id that is unknown: asks for a fetch, unless the last one has begun less than `min_interval` ago.
    pub(crate) fn ask(&self, now: Instant) -> Hope {
        if self.waiting.load(Ordering::Relaxed) >= MAX_WAITING {
            return Hope::Failed;
        }
        let mut fetching = self.lock();
        let next = *self.ends.borrow() + 1;
        if fetching.running || fetching.wanted {
            return Hope::Fetch(next);
        }
        let is_recent =
            fetching.begun.is_some_and(|begun| now.saturating_duration_since(begun) < self.times.min_interval);
        if is_recent {
            return if fetching.failures > 0 { Hope::Failed } else { Hope::Answered };
        }
        fetching.wanted = true;
        self.wake.notify_one();
        Hope::Fetch(next)
    }

    /// What the last fetch has brought.
    pub(crate) fn outcome(&self) -> Hope {
        if self.lock().failures > 0 { Hope::Failed } else { Hope::Answered }
    }

    /// Waits until the fetch with this number has ended. False at the deadline.
    pub(crate) async fn ended(&self, number: u64, deadline: Instant) -> bool {
        let _counted = Waiting::begin(&self.waiting);
        let mut ends = self.ends.subscribe();
        timeout_at(deadline, ends.wait_for(|end| *end >= number)).await.is_ok_and(|end| end.is_ok())
    }

    /// Takes the fetching over. The one before ends when it looks at [`is_owner`](Self::is_owner).
    pub fn take_over(&self) -> u64 {
        let owner = self.owner.fetch_add(1, Ordering::Relaxed) + 1;
        self.wake.notify_waiters();
        owner
    }

    /// Whether nobody else has taken it over.
    pub fn is_owner(&self, owner: u64) -> bool {
        self.owner.load(Ordering::Relaxed) == owner
    }

    /// Waits until a fetch is due, or the fetching was taken over.
    pub async fn due(&self, owner: u64) {
        while self.is_owner(owner) {
            let woken = self.wake.notified();
            let due = {
                let fetching = self.lock();
                if fetching.wanted {
                    return;
                }
                self.next(&fetching)
            };
            let Some(due) = due else { return };
            tokio::select! {
                () = sleep_until(due) => return,
                () = woken => {}
            }
        }
    }

    /// When the next fetch is due. `None`: at once.
    fn next(&self, fetching: &Fetching) -> Option<Instant> {
        let pause = match (fetching.failures, self.current.load().is_some()) {
            (0, _) => self.times.refresh,
            (_, true) => self.times.min_interval,
            (failures, false) => FIRST_PAUSE.saturating_mul(1 << (failures - 1).min(16)).min(self.times.min_interval),
        };
        fetching.begun.map(|begun| begun + pause)
    }

    /// A fetch begins.
    pub fn begin(&self) {
        let mut fetching = self.lock();
        fetching.begun = Some(Instant::now());
        fetching.running = true;
        fetching.wanted = false;
    }

    /// A fetch has ended, with the text of a JWK Set or without.
    ///
    /// # Errors
    /// Why there are no new keys.
    pub fn end(&self, fetched: Result<Bytes, String>) -> Result<(), String> {
        let taken = fetched.and_then(|text| self.replace(text));
        let mut fetching = self.lock();
        fetching.running = false;
        fetching.failures = if taken.is_ok() { 0 } else { fetching.failures.saturating_add(1) };
        self.counts[usize::from(taken.is_err())].inc();
        // Under the lock, so that nobody gets the number of an end that has been.
        self.ends.send_modify(|end| *end += 1);
        taken
    }

    fn replace(&self, text: Bytes) -> Result<(), String> {
        let old = self.current.load_full();
        let same = old.as_ref().filter(|old| old.text == text);
        let (keys, version) = match same {
            Some(old) => (old.keys.clone(), old.version),
            None => {
                let found = keys::read(text.clone())?;
                for skipped in &found.skipped {
                    tracing::debug!("a key of an issuer is not used: {skipped}");
                }
                (Arc::new(found.keys), old.map_or(1, |old| old.version + 1))
            }
        };
        self.current.store(Some(Arc::new(FetchedKeys { keys, version, text, at: Instant::now() })));
        Ok(())
    }
}

/// Counts a waiting request.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn begin(count: &'a AtomicUsize) -> Waiting<'a> {
        count.fetch_add(1, Ordering::Relaxed);
        Waiting(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use fanin_config::AuthKind;

    use super::*;

    const SET: &str = r#"{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;

    fn keys() -> IssuerKeys {
        IssuerKeys::new(&Auth::new(AuthKind::Jwt), Default::default())
    }

    async fn fetch(keys: &IssuerKeys, owner: u64, answer: Result<&'static str, &'static str>) -> Duration {
        let from = Instant::now();
        keys.due(owner).await;
        let waited = from.elapsed();
        keys.begin();
        let _ = keys.end(answer.map(Bytes::from).map_err(str::to_owned));
        waited
    }

    #[tokio::test(start_paused = true)]
    async fn keys_are_fetched_at_once_and_refreshed() {
        let keys = keys();
        let owner = keys.take_over();
        assert!(matches!(keys.present(Instant::now()), Present::None));
        assert_eq!(fetch(&keys, owner, Ok(SET)).await, Duration::ZERO);
        assert!(matches!(keys.present(Instant::now()), Present::Keys(_)));
        assert_eq!(fetch(&keys, owner, Ok(SET)).await.as_secs(), 300);
        let Present::Keys(same) = keys.present(Instant::now()) else { panic!("they are there") };
        assert_eq!(same.version, 1, "the same text is the same keys");
    }

    #[tokio::test(start_paused = true)]
    async fn unknown_keys_cause_one_fetch_an_interval() {
        let keys = Arc::new(keys());
        let owner = keys.take_over();
        fetch(&keys, owner, Ok(SET)).await;
        let (fetches, background) = (Arc::new(AtomicUsize::new(0)), keys.clone());
        let counted = fetches.clone();
        tokio::spawn(async move {
            loop {
                fetch(&background, owner, Ok(SET)).await;
                counted.fetch_add(1, Ordering::Relaxed);
            }
        });
        // A thousand tokens with key ids that do not exist, ten a second: for 100 seconds.
        for _ in 0..1000 {
            if let Hope::Fetch(number) = keys.ask(Instant::now()) {
                assert!(keys.ended(number, Instant::now() + Duration::from_secs(1)).await);
                assert_eq!(keys.ask(Instant::now()), Hope::Answered);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(fetches.load(Ordering::Relaxed), 3, "one each 30 seconds");
    }

    #[tokio::test(start_paused = true)]
    async fn keys_stay_for_a_while_when_the_issuer_is_gone() {
        let keys = keys();
        let owner = keys.take_over();
        fetch(&keys, owner, Ok(SET)).await;
        let from = Instant::now();
        assert_eq!(fetch(&keys, owner, Err("refused")).await.as_secs(), 300);
        assert_eq!(keys.ask(Instant::now()), Hope::Failed);
        while from.elapsed().as_secs() < 3599 {
            assert!(matches!(keys.present(Instant::now()), Present::Keys(_)));
            assert_eq!(fetch(&keys, owner, Ok("<html>")).await.as_secs(), 30);
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(matches!(keys.present(Instant::now()), Present::Stale));
        fetch(&keys, owner, Ok(SET)).await;
        assert!(matches!(keys.present(Instant::now()), Present::Keys(_)));
    }

    #[tokio::test(start_paused = true)]
    async fn without_keys_the_pauses_begin_short() {
        let keys = keys();
        let owner = keys.take_over();
        let mut pauses = Vec::new();
        for _ in 0..8 {
            pauses.push(fetch(&keys, owner, Err("refused")).await.as_secs());
        }
        assert_eq!(pauses, [0, 1, 2, 4, 8, 16, 30, 30]);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_takes_over_ends_the_one_before() {
        let keys = Arc::new(keys());
        let first = keys.take_over();
        fetch(&keys, first, Ok(SET)).await;
        let waits = tokio::spawn({
            let keys = keys.clone();
            async move { keys.due(first).await }
        });
        tokio::task::yield_now().await;
        let second = keys.take_over();
        waits.await.expect("it ends");
        assert!(!keys.is_owner(first) && keys.is_owner(second));
        assert!(!keys.ended(9, Instant::now() + Duration::from_secs(5)).await, "bounded by the deadline");
    }
}
