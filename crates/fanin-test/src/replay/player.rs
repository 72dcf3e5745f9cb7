//! Answers attempts from a recording.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use fanin_recording::Exchange;
use fanin_upstream::{ErrorKind, Stub, StubAnswer, StubFailure, StubFuture, StubRequest};
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::{HeaderMap, StatusCode};
use rustc_hash::FxBuildHasher;
use smallvec::SmallVec;
use tokio::time::Instant;

use super::answers::{Answers, Wanted};
use super::batches;
use super::effect::Effect;
use super::timeline::Timeline;
use crate::setting::Setting;

/// A request that runs.
#[derive(Default)]
pub(crate) struct Running {
    /// Its position in the recording.
    pub(crate) number: usize,
    /// Its exchanges that have been given out.
    used: RefCell<SmallVec<[u32; 16]>>,
    /// What it called that the recording does not have.
    pub(crate) missing: RefCell<Vec<String>>,
    /// What would have changed something.
    pub(crate) effects: RefCell<Vec<Effect>>,
    /// Requests to upstreams.
    pub(crate) sent: Cell<u32>,
}

impl Running {
    pub(crate) fn new(number: usize) -> Running {
        Running { number, ..Running::default() }
    }
}

/// Answers attempts from a recording.
pub(crate) struct Player {
    pub(crate) answers: Arc<Answers>,
    pub(crate) setting: Arc<Setting>,
    pub(crate) timeline: Rc<Timeline>,
    /// A moment of virtual time, and the time of the recording that it stands for.
    pub(crate) anchor: Cell<(Instant, Duration)>,
    /// By when they started, which no two have in common.
    pub(crate) running: RefCell<HashMap<Instant, Rc<Running>, FxBuildHasher>>,
    /// Requests that no running request has made, such as refreshes of caches.
    pub(crate) unattributed: Cell<u64>,
}

/// After how long an attempt ends, and how.
enum Played {
    Answer(Duration, StubAnswer),
    Fails(Duration, StubFailure),
    /// It timed out in the recording: it takes longer than anybody waited.
    Never,
    /// It was cancelled in the recording: nobody knows its answer.
    Unknown,
    Missing,
}

impl Player {
    /// From now on it is this time of the recording.
    pub(crate) fn begin(&self, time: Duration) {
        self.anchor.set((Instant::now(), time));
    }

    /// When a time of the recording is.
    pub(crate) fn at(&self, time: Duration) -> Instant {
        let (anchor, begun) = self.anchor.get();
        anchor + time.saturating_sub(begun)
    }

    /// Microseconds since the recording began.
    fn now(&self) -> u64 {
        let (anchor, begun) = self.anchor.get();
        (begun + anchor.elapsed()).as_micros() as u64
    }

    fn play(&self, running: Option<&Running>, wanted: &Wanted<'_>, request: &StubRequest) -> Played {
        if let Some(running) = running {
            let is_free = |at: u32| !running.used.borrow().contains(&at);
            if let Some(at) = self.answers.own(running.number, wanted, is_free) {
                running.used.borrow_mut().push(at);
                let played = self.of(&self.answers.request(running.number).exchanges[at as usize]);
                if !matches!(played, Played::Unknown) {
                    return played;
                }
                return self.of_others(running.number.into(), wanted, request).unwrap_or(played);
            }
        }
        self.of_others(running.map(|running| running.number), wanted, request).unwrap_or(Played::Missing)
    }

    /// What others were answered that asked the same. Never for an effect.
    fn of_others(&self, own: Option<usize>, wanted: &Wanted<'_>, request: &StubRequest) -> Option<Played> {
        if !request.safe {
            return None;
        }
        let table = || {
            self.answers.recording.header.tables.iter().find(|table| {
                table.upstream == wanted.upstream && table.path == wanted.path && wanted.operation.is_none()
            })
        };
        if let Some(place) = self.answers.nearest(wanted, self.now()) {
            return Some(self.of(self.answers.exchange(place)));
        }
        self.batch(own, wanted, request).or_else(|| table().map(|table| self.of(table)))
    }

    /// The answer of a batch that was not made like this, from the items of others.
    fn batch(&self, own: Option<usize>, wanted: &Wanted<'_>, request: &StubRequest) -> Option<Played> {
        let name = wanted.operation?;
        let upstream = self.setting.config.upstreams.get(wanted.upstream)?;
        let operation = self.answers.operations.get(wanted.upstream, name)?;
        let batch = operation.batch.as_ref()?;
        let keys = batches::keys(upstream, operation, batch, wanted.path, &request.body)?;
        let (mut found, mut first) = (Vec::with_capacity(keys.len()), None);
        for key in keys {
            let place = self.answers.with_item(wanted.upstream, name, &key, own, self.now())?;
            let exchange = self.answers.exchange(place);
            // What a call got of an answer has not taken the time of a request.
            if first.is_none_or(|first: &Exchange| first.shared && !exchange.shared) {
                first = Some(exchange);
            }
            let items = batches::items(exchange, batch, &key)?;
            found.push((key, items));
        }
        let Played::Answer(time, answer) = self.of(first?) else { return None };
        let mut headers = answer.headers;
        headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static("application/json"));
        let body = batches::assemble(batch, &found);
        Some(Played::Answer(time, StubAnswer { status: answer.status, headers, body, message: None }))
    }

    fn of(&self, exchange: &Exchange) -> Played {
        let own = exchange.ended_us.map(|ended| Duration::from_micros(ended.saturating_sub(exchange.begun_us)));
        let time = match exchange.shared {
            false => own,
            // How long the request took that somebody else had made is not known.
            true => self.answers.usual(&exchange.upstream, exchange.operation.as_deref()).or(own),
        };
        match (&exchange.answer, &exchange.failure, time) {
            (Some(answer), _, Some(time)) => Played::Answer(
                time,
                StubAnswer {
                    status: u16::try_from(answer.status)
                        .ok()
                        .and_then(|status| StatusCode::from_u16(status).ok())
                        .unwrap_or_default(),
                    headers: header_map(&answer.headers),
                    body: answer.body.clone(),
                    message: None,
                },
            ),
            (None, Some(kind), Some(time)) => match kind_of(kind) {
                ErrorKind::Timeout => Played::Never,
                kind => {
                    let detail = exchange.detail.clone().unwrap_or_default();
                    Played::Fails(time, StubFailure { kind, detail })
                }
            },
            _ => Played::Unknown,
        }
    }
}

/// Headers of a recording.
pub(crate) fn header_map(pairs: &[fanin_recording::Pair]) -> HeaderMap {
    let mut map = HeaderMap::with_capacity(pairs.len());
    for pair in pairs {
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(pair.name.as_bytes()), HeaderValue::from_maybe_shared(pair.value.clone()))
        {
            map.append(name, value);
        }
    }
    map
}

fn kind_of(name: &str) -> ErrorKind {
    ErrorKind::ALL.into_iter().find(|kind| kind.as_str() == name).unwrap_or(ErrorKind::Protocol)
}

impl Stub for Player {
    fn answer(&self, request: StubRequest) -> StubFuture {
        let running = self.running.borrow().get(&request.request_started).cloned();
        let operation = request.operation.and_then(|at| self.answers.operations.name(&request.upstream, at));
        let wanted = Wanted {
            upstream: &request.upstream,
            operation,
            method: request.method.as_str(),
            path: &request.path_and_query,
            body: &request.body,
        };
        match &running {
            Some(running) => running.sent.set(running.sent.get() + 1),
            None => self.unattributed.set(self.unattributed.get() + 1),
        }
        let played = self.play(running.as_deref(), &wanted, &request);
        let is_sent = !matches!(&played, Played::Fails(_, failure) if is_unsent(failure.kind));
        if let Some(running) = running.as_ref().filter(|_| !request.safe && is_sent) {
            running.effects.borrow_mut().push(Effect::of(&wanted));
        }
        let now = Instant::now();
        match played {
            Played::Answer(time, answer) => {
                let until = self.timeline.until(now + time);
                Box::pin(async move {
                    until.await;
                    Ok(answer)
                })
            }
            Played::Fails(time, failure) => {
                let until = self.timeline.until(now + time);
                Box::pin(async move {
                    until.await;
                    Err(failure)
                })
            }
            Played::Never => Box::pin(std::future::pending()),
            Played::Unknown => {
                let waiting = Unknown { running, what: wanted.describe(), deadline: request.deadline };
                Box::pin(async move {
                    std::future::pending::<()>().await;
                    drop(waiting);
                    Err(StubFailure { kind: ErrorKind::Cancelled, detail: String::new() })
                })
            }
            Played::Missing => {
                let what = wanted.describe();
                let detail = format!("not in the recording: {what}");
                if let Some(running) = &running {
                    running.missing.borrow_mut().push(what);
                }
                // Of this kind, because it says nothing about the upstream: no breaker opens for it.
                Box::pin(async move { Err(StubFailure { kind: ErrorKind::Cancelled, detail }) })
            }
        }
    }
}

/// Whether a failure means that nothing was sent.
pub(crate) fn is_unsent(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Refused | ErrorKind::Connect)
}

/// The same by name.
pub(crate) fn is_unsent_name(kind: &str) -> bool {
    is_unsent(kind_of(kind))
}

/// Somebody waits for an answer that nobody knows. Who waits until its deadline misses it.
struct Unknown {
    running: Option<Rc<Running>>,
    what: String,
    deadline: Instant,
}

impl Drop for Unknown {
    fn drop(&mut self) {
        if let Some(running) = self.running.as_ref().filter(|_| Instant::now() >= self.deadline) {
            running.missing.borrow_mut().push(format!("{} (cancelled before it was answered)", self.what));
        }
    }
}
