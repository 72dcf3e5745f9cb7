//! A kept response.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use fanin_config::ResponseCache;
use http::header::{
    self, AGE, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, DATE, ETAG, HeaderName, HeaderValue,
    IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED,
};
use http::{HeaderMap, StatusCode};
use tokio::time::Instant;

use super::directives::ResponseDirectives;
use super::freshness::{Lifetime, initial_age};
use super::rules::{Asked, may_store};
use super::tags::TAGS;

/// Memory of an entry besides key, headers and body: the map's slot, the eviction queues, this struct.
const OVERHEAD: usize = 600;

/// Fields that are not kept (RFC 9111, 3.1): they are about a connection or about a proxy.
const NOT_KEPT: [HeaderName; 9] = [
    header::CONNECTION,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::TE,
    header::TRAILER,
    CONTENT_LENGTH,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    HeaderName::from_static("proxy-authentication-info"),
];

/// Fields that a 304 does not change: the kept body is described by those that it came with (RFC 9111, 3.2).
const OF_THE_BODY: [HeaderName; 4] = [CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE];

/// How long nobody asks the origin again after it has failed and this has stood in.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// When a response was asked for and received.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) begun: Instant,
    pub(super) received: Instant,
    pub(super) wall_clock: SystemTime,
}

impl Times {
    /// Received now.
    pub(super) fn since(begun: Instant) -> Times {
        Times { begun, received: Instant::now(), wall_clock: SystemTime::now() }
    }
}

/// A kept response.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    pub(super) directives: ResponseDirectives,
    pub(super) lifetime: Lifetime,
    pub(super) tags: Box<[u64]>,
    /// By the number of purges.
    pub(super) made: u64,
    /// Fanin has encoded it, or has decided not to.
    pub(super) is_encoded_here: bool,
    /// When its request began.
    pub(super) begun: Instant,
    received: Instant,
    initial_age: Duration,
    /// When the origin has failed, in milliseconds since `received`; 0: it has not.
    failed: AtomicU64,
}

/// A response's head, if the response may be kept.
#[derive(Debug)]
pub(super) struct Storable {
    status: StatusCode,
    pub(super) headers: HeaderMap,
    directives: ResponseDirectives,
    lifetime: Lifetime,
    times: Times,
}

impl Storable {
    /// What is kept of a response's head, if the response may be kept.
    pub(super) fn of(
        config: &ResponseCache,
        asked: Asked,
        status: StatusCode,
        headers: &HeaderMap,
        times: Times,
    ) -> Option<Storable> {
        let directives = ResponseDirectives::of(headers);
        let lifetime = Lifetime::of(config, status, headers, &directives, times.wall_clock);
        if !may_store(config, asked, status, headers, &directives, lifetime) {
            return None;
        }
        let mut headers = headers.clone();
        remove_unkept(&mut headers, &directives);
        // When it was made, which is not when it is sent (RFC 9110, 6.6.1).
        let received = || HeaderValue::from_str(&httpdate::fmt_http_date(times.wall_clock));
        if let (None, Ok(date)) = (headers.get(DATE), received()) {
            headers.insert(DATE, date);
        }
        Some(Storable { status, headers, directives, lifetime, times })
    }

    /// With its body, of which it takes a copy: the bytes may be a part of a larger buffer.
    pub(super) fn with_body(self, body: &[u8], tags: Box<[u64]>, made: u64, is_encoded_here: bool) -> Stored {
        let Storable { status, headers, directives, lifetime, times } = self;
        let initial_age =
            initial_age(&headers, times.wall_clock, times.received.saturating_duration_since(times.begun));
        Stored {
            status,
            headers,
            body: Bytes::copy_from_slice(body),
            directives,
            lifetime,
            tags,
            made,
            is_encoded_here,
            begun: times.begun,
            received: times.received,
            initial_age,
            failed: AtomicU64::new(0),
        }
    }
}

fn remove_unkept(headers: &mut HeaderMap, directives: &ResponseDirectives) {
    for name in &NOT_KEPT {
        headers.remove(name);
    }
    headers.remove("keep-alive");
    headers.remove("proxy-connection");
    headers.remove(TAGS);
    for name in &directives.without {
        headers.remove(name);
    }
}

impl Stored {
    /// How old it is (RFC 9111, 4.2.3).
    pub(super) fn age(&self, now: Instant) -> Duration {
        self.initial_age + now.saturating_duration_since(self.received)
    }

    /// Seconds that it is fresh for; below zero if it is stale.
    pub(super) fn left(&self, now: Instant) -> i64 {
        let seconds = |duration: Duration| i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
        seconds(self.lifetime.fresh) - seconds(self.age(now))
    }

    /// The headers that it is sent with.
    pub(super) fn headers_at(&self, now: Instant) -> HeaderMap {
        let mut headers = self.headers.clone();
        headers.insert(AGE, HeaderValue::from(self.age(now).as_secs()));
        headers
    }

    /// Makes a request ask whether this is still the response (RFC 9111, 4.3.1).
    pub(super) fn validate_with(&self, request: &mut HeaderMap) {
        let conditions = [(ETAG, IF_NONE_MATCH), (LAST_MODIFIED, IF_MODIFIED_SINCE)];
        for (validator, condition) in conditions {
            if let Some(value) = self.headers.get(validator) {
                request.insert(condition, value.clone());
            }
        }
    }

    /// The same after a 304 to such a request (RFC 9111, 4.3.4).
    pub(super) fn refreshed(&self, config: &ResponseCache, answer: &HeaderMap, times: Times, made: u64) -> Stored {
        let mut headers = self.headers.clone();
        headers.remove(AGE);
        let mut fields = answer.clone();
        for name in &OF_THE_BODY {
            fields.remove(name);
        }
        for name in fields.keys() {
            headers.remove(name);
        }
        for (name, value) in &fields {
            headers.append(name.clone(), value.clone());
        }
        let directives = ResponseDirectives::of(&headers);
        remove_unkept(&mut headers, &directives);
        let lifetime = Lifetime::of(config, self.status, &headers, &directives, times.wall_clock);
        Stored {
            status: self.status,
            initial_age: initial_age(&headers, times.wall_clock, times.received.saturating_duration_since(times.begun)),
            headers,
            body: self.body.clone(),
            directives,
            lifetime,
            tags: self.tags.clone(),
            made,
            is_encoded_here: self.is_encoded_here,
            begun: times.begun,
            received: times.received,
            failed: AtomicU64::new(0),
        }
    }

    /// The origin has failed.
    pub(super) fn note_failure(&self, now: Instant) {
        let since = now.saturating_duration_since(self.received).as_millis();
        self.failed.store(u64::try_from(since).unwrap_or(u64::MAX).saturating_add(1), Ordering::Relaxed);
    }

    /// Whether the origin has failed a moment ago.
    pub(super) fn failed_lately(&self, now: Instant) -> bool {
        let failed = self.failed.load(Ordering::Relaxed);
        let since = now.saturating_duration_since(self.received).as_millis() as u64;
        failed > 0 && since < failed.saturating_add(AFTER_FAILURE.as_millis() as u64)
    }

    /// Bytes that it counts for, with a key of this length.
    pub(super) fn memory(&self, key: usize) -> u64 {
        let headers = self.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 72).sum::<usize>();
        (OVERHEAD + key + headers + self.body.len() + self.tags.len() * 8) as u64
    }
}
