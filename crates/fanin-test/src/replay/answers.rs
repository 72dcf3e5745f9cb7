//! The recorded answers of all requests, found by what was requested.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::time::Duration;

use fanin_config::{Config, Operation, Upstream};
use fanin_recording::{Exchange, Recording, Request};
use rustc_hash::{FxBuildHasher, FxHasher};

use super::batches;

/// Where an exchange is: the request, and its position there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) request: u32,
    pub(crate) exchange: u32,
    /// When it was sent, in microseconds since the recording began.
    at: u64,
}

type Index = HashMap<u64, Vec<Place>, FxBuildHasher>;

/// A recording with its indexes. All threads share it.
pub(crate) struct Answers {
    pub(crate) recording: Recording,
    /// By the identity of what was requested.
    whole: Index,
    /// By upstream, operation and key.
    items: Index,
    /// The median time of each operation, in microseconds.
    usual: HashMap<u64, u64, FxBuildHasher>,
    /// Those of the configuration.
    pub(crate) operations: Operations,
}

/// What tells a request to an upstream from others. Headers do not count.
pub(crate) fn identity(upstream: &str, operation: Option<&str>, method: &str, path: &str, body: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    (upstream, operation, method, path, body).hash(&mut hasher);
    hasher.finish()
}

fn of(exchange: &Exchange) -> u64 {
    let operation = exchange.operation.as_deref();
    identity(&exchange.upstream, operation, &exchange.method, &exchange.path, &exchange.body)
}

fn of_key(upstream: &str, operation: &str, key: &str) -> u64 {
    let mut hasher = FxHasher::default();
    (upstream, operation, key).hash(&mut hasher);
    hasher.finish()
}

fn of_operation(upstream: &str, operation: Option<&str>) -> u64 {
    let mut hasher = FxHasher::default();
    (upstream, operation).hash(&mut hasher);
    hasher.finish()
}

/// The operations of a configuration, by upstream and in its order.
pub(crate) struct Operations(HashMap<String, Vec<(String, Operation)>, FxBuildHasher>);

impl Operations {
    pub(crate) fn new(config: &Config) -> Operations {
        let of = |upstream: &Upstream| {
            upstream.named_calls().iter().map(|(name, operation)| (name.to_string(), operation.clone())).collect()
        };
        Operations(config.upstreams.iter().map(|(name, upstream)| (name.clone(), of(upstream))).collect())
    }

    pub(crate) fn name(&self, upstream: &str, at: u32) -> Option<&str> {
        self.0.get(upstream)?.get(at as usize).map(|(name, _)| name.as_str())
    }

    pub(crate) fn get(&self, upstream: &str, name: &str) -> Option<&Operation> {
        self.0.get(upstream)?.iter().find(|(known, _)| known == name).map(|(_, operation)| operation)
    }
}

impl Answers {
    pub(crate) fn new(recording: Recording, config: &Config) -> Answers {
        let operations = Operations::new(config);
        let (mut whole, mut items) = (Index::default(), Index::default());
        let mut times: HashMap<u64, Vec<u64>, FxBuildHasher> = HashMap::default();
        for (number, request) in recording.requests.iter().enumerate() {
            for (position, exchange) in request.exchanges.iter().enumerate() {
                let at = request.arrived_us + exchange.begun_us;
                let place = Place { request: number as u32, exchange: position as u32, at };
                let has_end = exchange.answer.is_some() || exchange.failure.is_some();
                if has_end && exchange.keys.is_empty() && !exchange.effect {
                    whole.entry(of(exchange)).or_default().push(place);
                }
                if let (Some(ended), false, true) = (exchange.ended_us, exchange.shared, exchange.answer.is_some()) {
                    let key = of_operation(&exchange.upstream, exchange.operation.as_deref());
                    times.entry(key).or_default().push(ended.saturating_sub(exchange.begun_us));
                }
                let Some(name) = exchange.operation.as_deref().filter(|_| exchange.answer.is_some()) else { continue };
                let Some(upstream) = config.upstreams.get(&exchange.upstream) else { continue };
                let Some(operation) = operations.get(&exchange.upstream, name) else { continue };
                let Some(batch) = &operation.batch else { continue };
                let keys = match exchange.keys.is_empty() {
                    false => exchange.keys.clone(),
                    true if exchange.shared => continue,
                    true => {
                        batches::keys(upstream, operation, batch, &exchange.path, &exchange.body).unwrap_or_default()
                    }
                };
                for key in keys {
                    items.entry(of_key(&exchange.upstream, name, &key)).or_default().push(place);
                }
            }
        }
        for places in whole.values_mut().chain(items.values_mut()) {
            places.sort_by_key(|place| place.at);
        }
        let median = |(key, mut times): (u64, Vec<u64>)| {
            times.sort_unstable();
            (key, times[times.len() / 2])
        };
        Answers { recording, whole, items, usual: times.into_iter().map(median).collect(), operations }
    }

    pub(crate) fn request(&self, number: usize) -> &Request {
        &self.recording.requests[number]
    }

    pub(crate) fn exchange(&self, place: Place) -> &Exchange {
        &self.recording.requests[place.request as usize].exchanges[place.exchange as usize]
    }

    /// Which of a request's own exchanges is this one: the first that `is_free`, or else the last one.
    pub(crate) fn own(&self, request: usize, wanted: &Wanted<'_>, is_free: impl Fn(u32) -> bool) -> Option<u32> {
        let exchanges = &self.request(request).exchanges;
        let same = |exchange: &Exchange| exchange.keys.is_empty() && wanted.is(exchange);
        let mut all = (0..exchanges.len() as u32).filter(|at| same(&exchanges[*at as usize]));
        let first = all.next()?;
        if is_free(first) {
            return Some(first);
        }
        let mut last = first;
        for at in all {
            if is_free(at) {
                return Some(at);
            }
            last = at;
        }
        Some(last)
    }

    /// The same request of others, made nearest to a time.
    pub(crate) fn nearest(&self, wanted: &Wanted<'_>, at: u64) -> Option<Place> {
        let places = self.whole.get(&wanted.identity())?;
        closest(places, at, |place| wanted.is(self.exchange(place)))
    }

    /// An answer with the item of a key, made for this request or nearest to a time.
    pub(crate) fn with_item(
        &self,
        upstream: &str,
        operation: &str,
        key: &str,
        request: Option<usize>,
        at: u64,
    ) -> Option<Place> {
        let places = self.items.get(&of_key(upstream, operation, key))?;
        let is_it = |place: Place| {
            let exchange = self.exchange(place);
            exchange.upstream == upstream && exchange.operation.as_deref() == Some(operation)
        };
        let own = request.and_then(|request| {
            let from = places.partition_point(|place| place.at < self.request(request).arrived_us);
            places[from..].iter().take(8).copied().find(|place| place.request as usize == request && is_it(*place))
        });
        own.or_else(|| closest(places, at, is_it))
    }

    /// The usual time of an operation.
    pub(crate) fn usual(&self, upstream: &str, operation: Option<&str>) -> Option<Duration> {
        self.usual.get(&of_operation(upstream, operation)).map(|micros| Duration::from_micros(*micros))
    }
}

/// The place nearest to a time.
fn closest(places: &[Place], at: u64, is_it: impl Fn(Place) -> bool) -> Option<Place> {
    let after = places.partition_point(|place| place.at <= at);
    let before = places[..after].iter().rev().copied().find(|place| is_it(*place));
    let later = places[after..].iter().copied().find(|place| is_it(*place));
    match (before, later) {
        (Some(before), Some(later)) => Some(if at - before.at <= later.at - at { before } else { later }),
        (one, other) => one.or(other),
    }
}

/// A request to an upstream.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) upstream: &'a str,
    pub(crate) operation: Option<&'a str>,
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    pub(crate) body: &'a [u8],
}

impl Wanted<'_> {
    fn identity(&self) -> u64 {
        identity(self.upstream, self.operation, self.method, self.path, self.body)
    }

    fn is(&self, exchange: &Exchange) -> bool {
        exchange.path == self.path
            && exchange.upstream == self.upstream
            && exchange.operation.as_deref() == self.operation
            && exchange.method == self.method
            && exchange.body == self.body
    }

    /// In a line, for people.
    pub(crate) fn describe(&self) -> String {
        let Wanted { upstream, operation, method, path, body } = self;
        let operation = operation.map(|operation| format!(".{operation}")).unwrap_or_default();
        let body = match body.is_empty() {
            true => String::new(),
            false => format!(" {}", fanin_trace::shorten(&String::from_utf8_lossy(body), 80)),
        };
        format!("{upstream}{operation} {method} {}{body}", fanin_trace::shorten(path, 160))
    }
}
