//! How long a response is fresh, and how old it is (RFC 9111, 4.2).

use std::time::{Duration, SystemTime};

use fanin_config::ResponseCache;
use http::header::{AGE, DATE, EXPIRES, LAST_MODIFIED};
use http::{HeaderMap, HeaderName, StatusCode};

use super::directives::{ResponseDirectives, digits};

/// The longest guess of how long a response is fresh.
const LONGEST_GUESS: Duration = Duration::from_secs(24 * 60 * 60);

/// Statuses whose responses may be kept without a word about it (RFC 9110, 15.1). A 206 is a part.
const BY_DEFAULT: [u16; 10] = [200, 203, 204, 300, 301, 308, 404, 405, 410, 501];

/// What a response's freshness follows from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The response says it.
    Explicit,
    /// The route's configuration.
    Configured,
    /// A guess.
    Guessed,
    /// Nothing: it is stale at once.
    None,
}

/// How long a response is fresh, counted from its generation at the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lifetime {
    pub(super) fresh: Duration,
    pub(super) source: Source,
}

impl Lifetime {
    /// RFC 9111, 4.2.1 for a shared cache.
    pub(super) fn of(
        config: &ResponseCache,
        status: StatusCode,
        headers: &HeaderMap,
        directives: &ResponseDirectives,
        received: SystemTime,
    ) -> Lifetime {
        let explicit = |seconds| Lifetime { fresh: Duration::from_secs(seconds), source: Source::Explicit };
        if let Some(seconds) = directives.s_maxage.or(directives.max_age) {
            return explicit(seconds);
        }
        let date = date(headers, &DATE).unwrap_or(received);
        if !directives.targeted && headers.contains_key(EXPIRES) {
            // A time that is not valid has passed (RFC 9111, 5.3).
            let until = self::date(headers, &EXPIRES).and_then(|expires| expires.duration_since(date).ok());
            return explicit(until.map_or(0, |until| until.as_secs()));
        }
        let configured = config.ttl_by_status.get(&status.as_u16()).copied();
        if let Some(fresh) = configured.or(config.ttl.filter(|_| status == StatusCode::OK)) {
            return Lifetime { fresh, source: Source::Configured };
        }
        let modified = self::date(headers, &LAST_MODIFIED).and_then(|modified| date.duration_since(modified).ok());
        match modified {
            Some(since) if config.heuristic && (is_by_default(status) || directives.public) => {
                Lifetime { fresh: (since / 10).min(LONGEST_GUESS), source: Source::Guessed }
            }
            _ => Lifetime { fresh: Duration::ZERO, source: Source::None },
        }
    }
}

/// Whether responses with this status may be kept without a word about it.
pub(super) fn is_by_default(status: StatusCode) -> bool {
    BY_DEFAULT.contains(&status.as_u16())
}

/// How old a response was when it was received, after a request that took `delay` (RFC 9111, 4.2.3).
pub(super) fn initial_age(headers: &HeaderMap, received: SystemTime, delay: Duration) -> Duration {
    let apparent = date(headers, &DATE).and_then(|date| received.duration_since(date).ok()).unwrap_or_default();
    (age(headers) + delay).max(Duration::from_secs(apparent.as_secs()))
}

/// `Age`, of which the first value counts (RFC 9111, 5.1).
fn age(headers: &HeaderMap) -> Duration {
    let first = headers.get(AGE).and_then(|value| value.to_str().ok()?.split(',').next());
    Duration::from_secs(first.and_then(|text| digits(text.trim())).unwrap_or(0))
}

/// The time in a header, unless it occurs twice or is not valid.
pub(super) fn date(headers: &HeaderMap, name: &HeaderName) -> Option<SystemTime> {
    let mut values = headers.get_all(name).iter();
    let only = values.next().filter(|_| values.next().is_none())?;
    httpdate::parse_http_date(only.to_str().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use http::HeaderValue;

    use super::*;

    const NOW: SystemTime = UNIX_EPOCH;
    const HOUR: Duration = Duration::from_secs(3600);

    fn headers(lines: &[(&'static str, String)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    fn at(offset: Duration) -> String {
        httpdate::fmt_http_date(NOW + 100 * HOUR + offset)
    }

    fn lifetime(config: &ResponseCache, status: u16, lines: &[(&'static str, String)]) -> Lifetime {
        let headers = headers(lines);
        let directives = ResponseDirectives::of(&headers);
        Lifetime::of(config, StatusCode::from_u16(status).unwrap(), &headers, &directives, NOW + 100 * HOUR)
    }

    #[test]
    fn what_the_response_says_comes_first() {
        let config = ResponseCache {
            ttl: Some(7 * HOUR),
            ttl_by_status: [(404, HOUR)].into(),
            heuristic: true,
            ..ResponseCache::default()
        };
        let of = |status, lines: &[(&'static str, String)]| lifetime(&config, status, lines);
        let explicit = |fresh| Lifetime { fresh, source: Source::Explicit };
        let control = |text: &str| ("cache-control", text.to_owned());
        assert_eq!(of(200, &[control("max-age=3600, s-maxage=7200")]), explicit(2 * HOUR));
        assert_eq!(of(200, &[control("max-age=3600"), ("expires", at(5 * HOUR))]), explicit(HOUR));
        let dated = ("date", at(Duration::ZERO));
        assert_eq!(of(200, &[dated.clone(), ("expires", at(5 * HOUR))]), explicit(5 * HOUR));
        assert_eq!(of(200, &[("expires", at(5 * HOUR))]), explicit(5 * HOUR));
        for invalid in ["0", "Thu, 18 Aug 50 02:01:18 GMT"] {
            assert_eq!(of(200, &[("expires", invalid.to_owned())]), explicit(Duration::ZERO));
        }
        assert_eq!(of(200, &[("expires", at(HOUR)), ("expires", at(HOUR))]), explicit(Duration::ZERO));
        assert_eq!(of(200, &[]), Lifetime { fresh: 7 * HOUR, source: Source::Configured });
        assert_eq!(of(404, &[]), Lifetime { fresh: HOUR, source: Source::Configured });
        let old = httpdate::fmt_http_date(NOW + 90 * HOUR);
        let guessed = of(301, &[dated, ("last-modified", old.clone())]);
        assert_eq!(guessed, Lifetime { fresh: HOUR, source: Source::Guessed });
        assert_eq!(of(500, &[("last-modified", old)]).source, Source::None);
    }

    #[test]
    fn ages() {
        let initial = |lines: &[(&'static str, String)]| initial_age(&headers(lines), NOW + 100 * HOUR, HOUR).as_secs();
        assert_eq!(initial(&[]), 3600);
        assert_eq!(initial(&[("age", "30".into())]), 3630);
        assert_eq!(initial(&[("age", "30, 7".into())]), 3630);
        assert_eq!(initial(&[("age", "30".into()), ("age", "7".into())]), 3630);
        for void in ["x", "-30", "30.5", "", "30;a=b"] {
            assert_eq!(initial(&[("age", void.into())]), 3600, "{void}");
        }
        assert_eq!(initial(&[("date", httpdate::fmt_http_date(NOW + 97 * HOUR)), ("age", "30".into())]), 3 * 3600);
    }
}
