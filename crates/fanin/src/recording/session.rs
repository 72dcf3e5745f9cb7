//! One recording: which requests it takes, the queue to its thread, and the bytes of its file that nobody has fetched yet.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fanin_recording::{Exchange, Footer, Header, Request, Rules, Scrubber, Writer};
use serde_json::json;
use tokio::time::Instant;

use super::Counts;
use super::captured::Captured;
use super::convert;

/// Bytes of requests that wait for the thread.
const QUEUE: usize = 64 << 20;
/// Bytes of the file that wait to be fetched.
const OUTPUT: usize = 64 << 20;
/// A recording that nobody fetches ends after this long.
const ABANDONED: Duration = Duration::from_secs(30);
/// How long requests in progress may take after the end.
const GRACE: Duration = Duration::from_secs(5);
/// How long the thread sleeps at most.
const TICK: Duration = Duration::from_millis(100);
/// Bytes of the file that one page gives.
pub(super) const PART: usize = 4 << 20;

/// What to record.
#[derive(Debug, Clone)]
pub(super) struct Options {
    pub(super) share: f64,
    pub(super) time: Duration,
    /// Most requests.
    pub(super) requests: u64,
    /// Most bytes of the file.
    pub(super) size: usize,
    pub(super) rules: Rules,
}

/// One recording.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: String,
    options: Options,
    started: Instant,
    started_unix: Duration,
    ended: AtomicBool,
    /// Requests chosen so far.
    chosen: AtomicU64,
    /// Requests chosen whose response is not there yet.
    open: AtomicUsize,
    dropped: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
    counts: Counts,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Box<Captured>>,
    queued: usize,
    left_out: BTreeMap<&'static str, u64>,
    /// The file from `from` on.
    output: VecDeque<u8>,
    from: usize,
    recorded: u64,
    removed: u64,
    is_complete: bool,
    fetched: Option<Instant>,
}

impl Session {
    /// Begins a recording, and the thread that makes its file. `tables`: the snapshots that flows look things up in.
    ///
    /// # Errors
    /// The thread cannot start.
    pub(super) fn begin(options: Options, tables: Vec<Exchange>, counts: Counts) -> io::Result<Arc<Session>> {
        let session = Arc::new(Session {
            id: format!("{:016x}", fastrand::u64(..)),
            options,
            started: Instant::now(),
            started_unix: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
            ended: AtomicBool::new(false),
            chosen: AtomicU64::new(0),
            open: AtomicUsize::new(0),
            dropped: AtomicU64::new(0),
            state: Mutex::default(),
            changed: Condvar::new(),
            counts,
        });
        let of_thread = session.clone();
        thread::Builder::new().name("fanin-recording".into()).spawn(move || of_thread.write(tables))?;
        Ok(session)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it takes no further requests.
    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Relaxed)
    }

    /// Takes no further requests.
    pub(super) fn end(&self) {
        self.ended.store(true, Relaxed);
        self.changed.notify_all();
    }

    /// Whether a request is to be recorded. If so, [`put`](Self::put) or [`leave_out`](Self::leave_out) follows.
    pub(super) fn choose(&self) -> bool {
        if self.options.share < 1.0 && fastrand::f64() >= self.options.share {
            return false;
        }
        let number = self.chosen.fetch_add(1, Relaxed) + 1;
        if number >= self.options.requests {
            self.ended.store(true, Relaxed);
        }
        let is_chosen = number <= self.options.requests;
        if is_chosen {
            self.open.fetch_add(1, Relaxed);
        }
        is_chosen
    }

    /// A request has been answered. It is dropped if the thread does not keep up.
    pub(super) fn put(&self, captured: Box<Captured>) {
        self.open.fetch_sub(1, Relaxed);
        let mut state = self.state();
        let bytes = captured.bytes();
        if state.queued + bytes > QUEUE || state.is_complete {
            drop(state);
            self.dropped.fetch_add(1, Relaxed);
            self.counts.count("dropped");
            return;
        }
        state.queued += bytes;
        state.queue.push_back(captured);
        drop(state);
        self.changed.notify_all();
    }

    /// A request cannot be repeated, for this reason.
    pub(super) fn leave_out(&self, why: &'static str) {
        self.open.fetch_sub(1, Relaxed);
        self.left_out(why);
    }

    fn left_out(&self, why: &'static str) {
        *self.state().left_out.entry(why).or_default() += 1;
        self.counts.count("left_out");
    }

    /// The file from a byte on, at most [`PART`] bytes. What comes before is forgotten.
    pub(super) fn part(&self, from: usize) -> Vec<u8> {
        let mut state = self.state();
        state.fetched = Some(Instant::now());
        let known = from.saturating_sub(state.from).min(state.output.len());
        state.output.drain(..known);
        state.from += known;
        if from != state.from {
            return Vec::new();
        }
        state.output.iter().take(PART).copied().collect()
    }

    /// How far it is, for `fanin record`.
    pub(super) fn status(&self) -> serde_json::Value {
        let state = self.state();
        let rules = &self.options.rules;
        json!({
            "id": self.id,
            "requests": state.recorded,
            "bytes": state.from + state.output.len(),
            "dropped": self.dropped.load(Relaxed),
            "left_out": state.left_out,
            "removed": state.removed,
            "complete": state.is_complete,
            "removes": {
                "headers": rules.headers().collect::<Vec<_>>(),
                "query": rules.query().collect::<Vec<_>>(),
                "json": rules.json().collect::<Vec<_>>(),
            },
        })
    }

    /// Makes the file, until the recording has ended.
    fn write(&self, tables: Vec<Exchange>) {
        let scrubber = Scrubber::new(self.options.rules.clone());
        let mut writer = Writer::default();
        let begun = writer.begin(&self.header(&scrubber, tables));
        self.append(begun);
        let mut ended_at = None;
        loop {
            let next = self.next();
            let now = Instant::now();
            if now.saturating_duration_since(self.started) >= self.options.time || self.is_abandoned(now) {
                self.end();
            }
            let Some(captured) = next else {
                let since = *ended_at.get_or_insert(now);
                if !self.has_ended() {
                    ended_at = None;
                } else if self.open.load(Relaxed) == 0 || now.saturating_duration_since(since) >= GRACE {
                    break;
                }
                continue;
            };
            self.take(*captured, &scrubber, &mut writer);
        }
        let mut state = self.state();
        let left_out = state.left_out.iter().map(|(why, number)| format!("{why}: {number}")).collect();
        let footer = Footer {
            requests: 0,
            dropped: self.dropped.load(Relaxed),
            left_out,
            took_us: self.started.elapsed().as_micros() as u64,
            removed: state.removed,
        };
        state.output.extend(writer.end(&footer));
        state.is_complete = true;
        drop(state);
        // A file that is not fetched any more is forgotten.
        loop {
            let state = self.state();
            if state.output.is_empty() || self.is_abandoned_in(&state, Instant::now()) {
                break;
            }
            drop(self.changed.wait_timeout(state, TICK));
        }
        let mut state = self.state();
        if self.is_abandoned_in(&state, Instant::now()) {
            state.output = VecDeque::new();
        }
    }

    fn header(&self, scrubber: &Scrubber, tables: Vec<Exchange>) -> Header {
        let mut tables = Request { exchanges: tables, ..Request::default() };
        let removed = scrubber.scrub(&mut tables);
        self.state().removed += removed.0;
        let rules = scrubber.rules();
        let texts = |all: &mut dyn Iterator<Item = &str>| all.map(str::to_owned).collect();
        Header {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_unix_us: self.started_unix.as_micros() as u64,
            share: self.options.share,
            removed_headers: texts(&mut rules.headers()),
            removed_query: texts(&mut rules.query()),
            removed_json: texts(&mut rules.json()),
            tables: tables.exchanges,
        }
    }

    /// The next request, or none for a moment.
    fn next(&self) -> Option<Box<Captured>> {
        let state = self.state();
        let empty = |state: &mut State| state.queue.is_empty();
        let waited = self.changed.wait_timeout_while(state, TICK, empty);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let captured = state.queue.pop_front()?;
        state.queued -= captured.bytes();
        Some(captured)
    }

    fn take(&self, captured: Captured, scrubber: &Scrubber, writer: &mut Writer) {
        let mut request = match convert::request(&captured, self.started) {
            Ok(request) => request,
            Err(why) => return self.left_out(why),
        };
        drop(captured);
        let removed = scrubber.scrub(&mut request);
        if writer.len() + fanin_recording::length(&request) > self.options.size {
            // The file is full: what comes now is not recorded.
            self.end();
        } else if self.state().output.len() < OUTPUT {
            let block = writer.add(&request);
            self.counts.count("recorded");
            let mut state = self.state();
            state.recorded += 1;
            state.removed += removed.0;
            state.output.extend(block.unwrap_or_default());
            return;
        }
        self.dropped.fetch_add(1, Relaxed);
        self.counts.count("dropped");
    }

    fn append(&self, bytes: Vec<u8>) {
        self.state().output.extend(bytes);
    }

    fn is_abandoned(&self, now: Instant) -> bool {
        self.is_abandoned_in(&self.state(), now)
    }

    fn is_abandoned_in(&self, state: &State, now: Instant) -> bool {
        now.saturating_duration_since(state.fetched.unwrap_or(self.started)) >= ABANDONED
    }
}
