//! How long answers and items are cached.

use std::time::{Duration, SystemTime};

use fanin_config::Cache;
use http::header::{AGE, CACHE_CONTROL, DATE, EXPIRES, VARY};
use http::{HeaderMap, StatusCode};

use crate::request::Answer;

/// How long something is cached. `stale` and `stale_if_error` both start at the end of `ttl`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lifetime {
    pub(super) ttl: Duration,
    pub(super) stale: Duration,
    pub(super) stale_if_error: Duration,
}

impl Lifetime {
    /// Of a whole answer. `None` if it is not cached. `fine` tells whether the call accepts its status.
    pub(super) fn of_answer(config: &Cache, answer: &Answer, fine: bool) -> Option<Lifetime> {
        match (matches!(answer.status, StatusCode::NOT_FOUND | StatusCode::GONE), fine) {
            (true, _) => Lifetime::absent(config, answer),
            (false, true) => Lifetime::present(config, answer),
            (false, false) => None,
        }
    }

    /// Of an item that the answer contains.
    pub(super) fn present(config: &Cache, answer: &Answer) -> Option<Lifetime> {
        let times = Lifetime { ttl: config.ttl, stale: config.stale, stale_if_error: config.stale_if_error };
        times.with_cache_control(config, answer)
    }

    /// Of an item that the answer does not contain.
    pub(super) fn absent(config: &Cache, answer: &Answer) -> Option<Lifetime> {
        let times = Lifetime { ttl: config.negative, stale: Duration::ZERO, stale_if_error: Duration::ZERO };
        times.with_cache_control(config, answer)
    }

    /// Applies the answer's `cache-control`, if the operation has `cache_control`.
    fn with_cache_control(self, config: &Cache, answer: &Answer) -> Option<Lifetime> {
        let times = match config.cache_control {
            true => directives(&answer.headers, self)?,
            false => self,
        };
        (!times.longest().is_zero()).then_some(times)
    }

    fn longest(&self) -> Duration {
        self.ttl + self.stale.max(self.stale_if_error)
    }
}

/// Applies `cache-control` (RFC 9111, 5.2.2, for a shared cache, and RFC 5861), or else `expires`. `None` if the answer must not be
/// cached. Without a directive the configured times apply.
fn directives(headers: &HeaderMap, mut times: Lifetime) -> Option<Lifetime> {
    // Other headers that it varies by are a part of the key, as the whole request is.
    if headers.get_all(VARY).iter().any(|value| value.as_bytes().trim_ascii() == b"*") {
        return None;
    }
    let mut age = None;
    let mut shared_age = None;
    let values = headers.get_all(CACHE_CONTROL).iter().filter_map(|value| value.to_str().ok());
    for directive in values.flat_map(|value| value.split(',')) {
        let (name, argument) = directive.trim().split_once('=').unwrap_or((directive.trim(), ""));
        // Seconds. An unreadable number counts as 0, as the RFC advises.
        let seconds = || Duration::from_secs(argument.trim().trim_matches('"').parse::<u32>().unwrap_or(0).into());
        match name.trim().to_ascii_lowercase().as_str() {
            "no-store" | "no-cache" | "private" => return None,
            "max-age" => age = Some(seconds()),
            "s-maxage" => shared_age = Some(seconds()),
            "must-revalidate" | "proxy-revalidate" => {
                (times.stale, times.stale_if_error) = (Duration::ZERO, Duration::ZERO)
            }
            "stale-while-revalidate" => times.stale = seconds(),
            "stale-if-error" => times.stale_if_error = seconds(),
            _ => {}
        }
    }
    if let Some(lifetime) = shared_age.or(age).or_else(|| until_expiry(headers)) {
        let spent =
            headers.get(AGE).and_then(|value| value.to_str().ok()).and_then(|text| text.trim().parse::<u32>().ok());
        times.ttl = lifetime.saturating_sub(Duration::from_secs(spent.unwrap_or(0).into()));
    }
    Some(times)
}

/// From `date` to `expires`; nothing if the latter is not valid (RFC 9111, 5.3).
fn until_expiry(headers: &HeaderMap) -> Option<Duration> {
    let time = |name| httpdate::parse_http_date(headers.get(name)?.to_str().ok()?).ok();
    headers.get(EXPIRES)?;
    let from = time(DATE).unwrap_or_else(SystemTime::now);
    Some(time(EXPIRES).and_then(|until| until.duration_since(from).ok()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn with(control: &'static str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if !control.is_empty() {
            headers.insert(CACHE_CONTROL, HeaderValue::from_static(control));
        }
        headers
    }

    #[test]
    fn cache_control_overrides_the_configuration() {
        let own = Lifetime { ttl: 10 * SECOND, stale: SECOND, stale_if_error: 2 * SECOND };
        let read = |text: &'static str| directives(&with(text), own);
        assert_eq!(read(""), Some(own));
        for never in ["no-store", "No-Cache", "private", "max-age=5, private"] {
            assert_eq!(read(never), None, "{never}");
        }
        assert_eq!(read("max-age=5"), Some(Lifetime { ttl: 5 * SECOND, ..own }));
        assert_eq!(read("max-age=5, s-maxage=\"7\""), Some(Lifetime { ttl: 7 * SECOND, ..own }));
        assert_eq!(read("max-age=x").map(|times| times.ttl), Some(Duration::ZERO));
        let stale = Lifetime { ttl: 5 * SECOND, stale: 3 * SECOND, stale_if_error: 4 * SECOND };
        assert_eq!(read("public, max-age=5, stale-while-revalidate=3, stale-if-error=4"), Some(stale));
        let never_stale = Lifetime { ttl: 10 * SECOND, stale: Duration::ZERO, stale_if_error: Duration::ZERO };
        assert_eq!(read("must-revalidate"), Some(never_stale));
        let mut headers = with("max-age=10");
        headers.insert(EXPIRES, HeaderValue::from_static("0"));
        assert_eq!(directives(&headers, own).map(|times| times.ttl), Some(10 * SECOND));
        headers.remove(CACHE_CONTROL);
        assert_eq!(directives(&headers, own).map(|times| times.ttl), Some(Duration::ZERO));
        headers.insert(DATE, HeaderValue::from_static("Sun, 06 Nov 1994 08:49:37 GMT"));
        headers.insert(EXPIRES, HeaderValue::from_static("Sun, 06 Nov 1994 08:49:57 GMT"));
        assert_eq!(directives(&headers, own).map(|times| times.ttl), Some(20 * SECOND));
        headers.insert(VARY, HeaderValue::from_static("accept"));
        assert!(directives(&headers, own).is_some());
        headers.insert(VARY, HeaderValue::from_static("*"));
        assert_eq!(directives(&headers, own), None);
        let mut headers = with("max-age=10");
        headers.insert(AGE, HeaderValue::from_static("4"));
        assert_eq!(directives(&headers, own).map(|times| times.ttl), Some(6 * SECOND));
    }
}
