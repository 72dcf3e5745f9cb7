//! What the cache did for a request: for the metrics, the access log, and `Cache-Status` (RFC 9211).

use http::{HeaderMap, HeaderName, HeaderValue};

const CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");

/// What the cache did for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// A fresh response was sent.
    Hit,
    /// It waited for the same request of another client, and got the response.
    Shared,
    /// A stale response was sent.
    Stale,
    /// The origin confirmed a stale response.
    Validated,
    /// A stale response was sent in place of an error.
    Saved,
    /// There was none that could be sent.
    Miss,
    /// The cache is not for this request.
    Bypass,
}

impl Outcome {
    pub(crate) const ALL: [Outcome; 7] = [
        Outcome::Hit,
        Outcome::Shared,
        Outcome::Stale,
        Outcome::Validated,
        Outcome::Saved,
        Outcome::Miss,
        Outcome::Bypass,
    ];

    /// In metrics and the access log.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Outcome::Hit => "hit",
            Outcome::Shared => "shared",
            Outcome::Stale => "stale",
            Outcome::Validated => "validated",
            Outcome::Saved => "saved",
            Outcome::Miss => "miss",
            Outcome::Bypass => "bypass",
        }
    }
}

/// Why a request was passed on (RFC 9211, 2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Forward {
    Bypass,
    Method,
    Target,
    Varies,
    Stale,
    Request,
}

impl Forward {
    const fn name(self) -> &'static str {
        match self {
            Forward::Bypass => "bypass",
            Forward::Method => "method",
            Forward::Target => "uri-miss",
            Forward::Varies => "vary-miss",
            Forward::Stale => "stale",
            Forward::Request => "request",
        }
    }
}

/// Adds what this cache did behind what caches in front of the origin did.
pub(super) fn report(headers: &mut HeaderMap, what: &str) {
    if let Ok(value) = HeaderValue::from_str(&format!("fanin; {what}")) {
        headers.append(CACHE_STATUS, value);
    }
}

/// The response was kept, and has this many seconds of freshness left.
pub(super) fn report_hit(headers: &mut HeaderMap, left: i64) {
    report(headers, &format!("hit; ttl={left}"));
}

/// The request was passed on. `status`: that of the answer, if it is not the response's.
pub(super) fn report_forward(headers: &mut HeaderMap, why: Forward, status: Option<u16>, stored: bool) {
    let status = status.map(|status| format!("; fwd-status={status}")).unwrap_or_default();
    report(headers, &format!("fwd={}{status}{}", why.name(), if stored { "; stored" } else { "" }));
}
