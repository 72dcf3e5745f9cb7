//! Which responses may be kept, and which of them may be sent again (RFC 9111, 3 and 4).

use std::time::Duration;

use fanin_config::ResponseCache;
use http::header::{ETAG, LAST_MODIFIED, SET_COOKIE, VARY};
use http::{HeaderMap, StatusCode};

use super::directives::{RequestDirectives, ResponseDirectives};
use super::freshness::{Lifetime, Source, is_by_default};

/// Statuses whose meaning the cache knows, for `must-understand`: those of RFC 9110, without parts.
const UNDERSTOOD: [u16; 38] = [
    200, 201, 202, 203, 204, 205, 300, 301, 302, 303, 307, 308, 400, 401, 402, 403, 404, 405, 406, 407, 408, 409, 410,
    411, 412, 413, 414, 415, 416, 417, 421, 422, 426, 500, 501, 502, 503, 504,
];

/// What a request that is stored for is like.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Asked {
    /// It has credentials, so its response may be for its client alone.
    pub(super) credentials: bool,
    /// It forbids to keep anything.
    pub(super) no_store: bool,
}

/// Whether a response may be kept, and is of use then (RFC 9111, 3).
pub(super) fn may_store(
    config: &ResponseCache,
    asked: Asked,
    status: StatusCode,
    headers: &HeaderMap,
    directives: &ResponseDirectives,
    lifetime: Lifetime,
) -> bool {
    if status.is_informational() || matches!(status, StatusCode::PARTIAL_CONTENT | StatusCode::NOT_MODIFIED) {
        return false;
    }
    let understood = UNDERSTOOD.contains(&status.as_u16());
    // Who understands the status may disregard `no-store` beside `must-understand` (RFC 9111, 5.2.2.3).
    let forbidden = directives.no_store && !(directives.must_understand && understood);
    if forbidden || asked.no_store || directives.private || (directives.must_understand && !understood) {
        return false;
    }
    if asked.credentials && !directives.allows_credentials() {
        return false;
    }
    if headers.contains_key(SET_COOKIE) && !config.set_cookie && !directives.without.contains(&SET_COOKIE) {
        return false;
    }
    if headers.get_all(VARY).iter().any(|line| line.as_bytes().contains(&b'*')) {
        return false;
    }
    let allowed = match lifetime.source {
        Source::Explicit | Source::Configured | Source::Guessed => true,
        Source::None => directives.public || is_by_default(status),
    };
    let windows = window(directives, directives.stale_while_revalidate, config.stale).max(window(
        directives,
        directives.stale_if_error,
        config.stale_if_error,
    ));
    let can_be_validated = headers.contains_key(ETAG) || headers.contains_key(LAST_MODIFIED);
    let is_fresh = !lifetime.fresh.is_zero() && !directives.no_cache;
    let is_some = lifetime.source != Source::None && !windows.is_zero();
    allowed && (is_fresh || can_be_validated || is_some)
}

/// How a kept response may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// It is sent.
    Fresh,
    /// The client accepts that it is stale.
    Stale,
    /// It is sent, and a new one is made meanwhile.
    WhileRevalidate,
    /// It is sent only if the origin confirms it, or fails within the time for that.
    Validate,
}

/// Decides about a response of this age (RFC 9111, 4.2.4 and 5.2.1, RFC 5861).
pub(super) fn decide(
    config: &ResponseCache,
    asked: &RequestDirectives,
    directives: &ResponseDirectives,
    lifetime: Lifetime,
    age: Duration,
) -> Use {
    let seconds = |limit: Option<u64>| limit.map(Duration::from_secs);
    if directives.no_cache || asked.no_cache {
        return Use::Validate;
    }
    let left = lifetime.fresh.checked_sub(age).filter(|left| !left.is_zero());
    let wants_younger = seconds(asked.max_age).is_some_and(|most| age > most || most.is_zero());
    let wants_fresher = seconds(asked.min_fresh).is_some_and(|least| left.is_none_or(|left| left < least));
    let late = age.saturating_sub(lifetime.fresh);
    let accepts_stale = !is_strict(directives) && directives.s_maxage.is_none();
    match left {
        Some(_) if !wants_younger && !wants_fresher => Use::Fresh,
        _ if wants_younger || wants_fresher => Use::Validate,
        _ if accepts_stale && seconds(asked.max_stale).is_some_and(|most| late <= most) => Use::Stale,
        _ if late < window(directives, directives.stale_while_revalidate, config.stale) => Use::WhileRevalidate,
        _ => Use::Validate,
    }
}

/// Whether a response of this age may be sent in place of an error.
pub(super) fn stands_in(
    config: &ResponseCache,
    directives: &ResponseDirectives,
    lifetime: Lifetime,
    age: Duration,
) -> bool {
    let late = age.saturating_sub(lifetime.fresh);
    late < window(directives, directives.stale_if_error, config.stale_if_error)
}

/// How long a stale response may be used. What it says itself counts more than the configuration, which must not override
/// `s-maxage`: that asks for validation, too (RFC 9111, 5.2.2.10).
fn window(directives: &ResponseDirectives, said: Option<u64>, configured: Duration) -> Duration {
    match said.map(Duration::from_secs) {
        _ if is_strict(directives) || directives.no_cache => Duration::ZERO,
        Some(said) => said,
        None if directives.s_maxage.is_some() => Duration::ZERO,
        None => configured,
    }
}

/// Whether it must not be used when it is stale.
fn is_strict(directives: &ResponseDirectives) -> bool {
    directives.must_revalidate || directives.proxy_revalidate
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use http::HeaderValue;
    use http::header::{CACHE_CONTROL, HeaderName};

    use super::*;

    fn response(lines: &[(HeaderName, &'static str)]) -> (HeaderMap, ResponseDirectives) {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(name.clone(), HeaderValue::from_static(value));
        }
        let directives = ResponseDirectives::of(&headers);
        (headers, directives)
    }

    fn stores(config: &ResponseCache, asked: Asked, status: u16, lines: &[(HeaderName, &'static str)]) -> bool {
        let (headers, directives) = response(lines);
        let status = StatusCode::from_u16(status).unwrap();
        let lifetime = Lifetime::of(config, status, &headers, &directives, SystemTime::UNIX_EPOCH);
        may_store(config, asked, status, &headers, &directives, lifetime)
    }

    #[test]
    fn what_is_kept() {
        let config = ResponseCache::default();
        let keeps = |status, control| stores(&config, Asked::default(), status, &[(CACHE_CONTROL, control)]);
        for control in ["max-age=5", "s-maxage=5, no-cache=\"x-a\"", "max-age=0, stale-while-revalidate=5"] {
            assert!(keeps(200, control), "{control}");
        }
        for control in ["", "no-store, max-age=5", "private, max-age=5", "max-age=0", "no-cache, max-age=5", "public"] {
            assert!(!keeps(200, control), "{control}");
        }
        assert!(keeps(404, "max-age=5") && keeps(503, "max-age=5"));
        assert!(!keeps(206, "max-age=5") && !keeps(304, "max-age=5"));
        assert!(keeps(200, "must-understand, no-store, max-age=5") && !keeps(299, "must-understand, max-age=5"));
        let with = |lines: &[(HeaderName, &'static str)]| stores(&config, Asked::default(), 200, lines);
        assert!(with(&[(ETAG, "\"a\"")]) && !with(&[]), "it can be validated");
        let fresh = (CACHE_CONTROL, "max-age=5");
        assert!(!with(&[fresh.clone(), (VARY, "*")]) && !with(&[fresh.clone(), (SET_COOKIE, "a=b")]));
        assert!(with(&[fresh, (CACHE_CONTROL, "no-cache=\"set-cookie\""), (SET_COOKIE, "a=b")]));
    }

    #[test]
    fn errors_are_kept_only_if_somebody_says_so() {
        let config = ResponseCache {
            ttl: Some(Duration::from_secs(60)),
            ttl_by_status: [(404, Duration::from_secs(5))].into(),
            ..ResponseCache::default()
        };
        let keeps = |status| stores(&config, Asked::default(), status, &[]);
        assert!(keeps(200) && keeps(404) && !keeps(410) && !keeps(500) && !keeps(302));
    }

    #[test]
    fn responses_for_one_client_are_not_for_all() {
        let config = ResponseCache { ttl: Some(Duration::from_secs(60)), ..ResponseCache::default() };
        let asked = Asked { credentials: true, no_store: false };
        let keeps = |control| stores(&config, asked, 200, &[(CACHE_CONTROL, control)]);
        assert!(!keeps("max-age=5") && !keeps(""));
        assert!(keeps("public") && keeps("s-maxage=5") && keeps("max-age=5, must-revalidate"));
        let asked = Asked { credentials: false, no_store: true };
        assert!(!stores(&config, asked, 200, &[(CACHE_CONTROL, "public, max-age=5")]));
    }

    fn used(asked: RequestDirectives, control: &'static str, age: u64) -> Use {
        let config = ResponseCache { stale: Duration::from_secs(5), ..ResponseCache::default() };
        let (headers, directives) = response(&[(CACHE_CONTROL, control)]);
        let lifetime = Lifetime::of(&config, StatusCode::OK, &headers, &directives, SystemTime::UNIX_EPOCH);
        decide(&config, &asked, &directives, lifetime, Duration::from_secs(age))
    }

    #[test]
    fn how_a_kept_response_is_used() {
        let plain = RequestDirectives::default();
        assert_eq!(used(plain, "max-age=10", 9), Use::Fresh);
        assert_eq!(used(plain, "max-age=10", 10), Use::WhileRevalidate, "the configuration allows it");
        assert_eq!(used(plain, "max-age=10", 15), Use::Validate);
        assert_eq!(used(plain, "max-age=10, stale-while-revalidate=60", 69), Use::WhileRevalidate);
        assert_eq!(used(plain, "max-age=10, stale-while-revalidate=0", 10), Use::Validate);
        assert_eq!(used(plain, "max-age=10, must-revalidate", 10), Use::Validate);
        assert_eq!(used(plain, "s-maxage=10", 10), Use::Validate);
        assert_eq!(used(plain, "s-maxage=10, stale-while-revalidate=60", 10), Use::WhileRevalidate);
        assert_eq!(used(plain, "no-cache, max-age=10", 1), Use::Validate);
        let asked = |change: fn(&mut RequestDirectives)| {
            let mut asked = plain;
            change(&mut asked);
            asked
        };
        assert_eq!(used(asked(|asked| asked.no_cache = true), "max-age=10", 1), Use::Validate);
        assert_eq!(used(asked(|asked| asked.max_age = Some(3)), "max-age=10", 3), Use::Fresh);
        assert_eq!(used(asked(|asked| asked.max_age = Some(3)), "max-age=10", 4), Use::Validate);
        assert_eq!(used(asked(|asked| asked.max_age = Some(0)), "max-age=10", 0), Use::Validate);
        assert_eq!(used(asked(|asked| asked.min_fresh = Some(3)), "max-age=10", 8), Use::Validate);
        assert_eq!(used(asked(|asked| asked.max_stale = Some(100)), "max-age=10", 100), Use::Stale);
        assert_eq!(used(asked(|asked| asked.max_stale = Some(100)), "max-age=10, proxy-revalidate", 50), Use::Validate);
    }

    #[test]
    fn old_responses_stand_in_for_errors() {
        let config = ResponseCache { stale_if_error: Duration::from_secs(60), ..ResponseCache::default() };
        let in_place = |control, age| {
            let (headers, directives) = response(&[(CACHE_CONTROL, control)]);
            let lifetime = Lifetime::of(&config, StatusCode::OK, &headers, &directives, SystemTime::UNIX_EPOCH);
            stands_in(&config, &directives, lifetime, Duration::from_secs(age))
        };
        assert!(in_place("max-age=10", 69) && !in_place("max-age=10", 70));
        assert!(!in_place("max-age=10, stale-if-error=5", 15) && in_place("max-age=10, stale-if-error=90", 99));
        for strict in ["max-age=10, must-revalidate", "max-age=10, proxy-revalidate", "s-maxage=10", "no-cache"] {
            assert!(!in_place(strict, 11), "{strict}");
        }
    }
}
