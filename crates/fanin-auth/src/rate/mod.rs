//! Rate limits.
//!
//! - `table`: budgets by key.

mod table;

use std::hash::{BuildHasher, Hash, RandomState};
use std::net::IpAddr;
use std::time::Duration;

use fanin_config::RateLimit;
use http::{HeaderName, HeaderValue};
use prometheus_client::metrics::counter::Counter;
use tokio::time::Instant;

use table::{Rate, Table, Taken};

/// `RateLimit-Policy` and `RateLimit`, of draft-ietf-httpapi-ratelimit-headers-10.
const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const STATE: HeaderName = HeaderName::from_static("ratelimit");

const SECOND: u64 = 1_000_000_000;

/// One `[rate_limits.NAME]`, with the budgets of its keys. Kept by reloads that do not change it.
pub struct Limit {
    pub(crate) name: String,
    pub(crate) config: RateLimit,
    rate: Rate,
    table: Table,
    hasher: RandomState,
    began: Instant,
    policy: String,
    /// Requests that it refused.
    pub(crate) refused: Counter,
}

impl Limit {
    pub(crate) fn new(name: &str, config: &RateLimit, refused: Counter) -> Limit {
        let per = u64::try_from(config.per.as_nanos()).unwrap_or(u64::MAX);
        let interval = (per / config.requests).max(1);
        let rate = Rate { interval, burst: interval.saturating_mul(config.burst) };
        Limit {
            name: name.to_owned(),
            config: config.clone(),
            rate,
            table: Table::new(config.max_keys),
            hasher: RandomState::new(),
            began: Instant::now(),
            policy: format!("\"{name}\";q={};w={}", config.burst, rate.burst.div_ceil(SECOND)),
            refused,
        }
    }

    /// The budget that a key has: a hash that clients cannot predict.
    fn key(&self, of: impl Hash) -> u64 {
        self.hasher.hash_one(of)
    }

    fn since_start(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.began).as_nanos()).unwrap_or(u64::MAX / 2)
    }
}

/// What the budgets of a request's limits are, for its response.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    policy: String,
    state: String,
}

/// A limit that refused a request.
pub(crate) struct Reached {
    pub wait: Duration,
}

/// Takes the budget of a request from a limit. `state` gets what the client learns.
///
/// # Errors
/// The limit is reached.
pub(crate) fn take(limit: &Limit, key: Key<'_>, now: Instant, cost: u32, state: &mut State) -> Result<u64, Reached> {
    let (key, now) = (limit.key(key), limit.since_start(now));
    let taken = limit.table.take(key, now, limit.rate, u64::from(cost));
    let (Taken::Yes { used } | Taken::No { used, .. }) = taken;
    if limit.config.headers {
        state.add(limit, used);
    }
    match taken {
        Taken::Yes { .. } => Ok(key),
        Taken::No { wait, .. } => {
            limit.refused.inc();
            Err(Reached { wait: Duration::from_nanos(wait) })
        }
    }
}

/// Gives back what [`take`] took: another limit has refused the request.
pub(crate) fn give_back(limit: &Limit, key: u64, now: Instant, cost: u32) {
    limit.table.give_back(key, limit.since_start(now), limit.rate, u64::from(cost));
}

/// What has a budget of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Key<'a> {
    V4(u32),
    /// The network of 64 bits.
    V6(u64),
    Text(&'a [u8]),
    Route(&'a str),
    All,
}

impl Key<'_> {
    /// A client: an IPv4 address, or an IPv6 network of 64 bits, of which one client has all addresses.
    pub fn client(address: IpAddr) -> Key<'static> {
        match address.to_canonical() {
            IpAddr::V4(address) => Key::V4(address.to_bits()),
            IpAddr::V6(address) => Key::V6((address.to_bits() >> 64) as u64),
        }
    }
}

impl State {
    fn add(&mut self, limit: &Limit, used: u64) {
        use std::fmt::Write;
        if self.policy.is_empty() {
            self.state.reserve(limit.policy.len() + 16);
        } else {
            self.policy.push_str(", ");
            self.state.push_str(", ");
        }
        self.policy.push_str(&limit.policy);
        let left = limit.rate.burst.saturating_sub(used) / limit.rate.interval;
        // Writing to a string can't fail.
        let _ = write!(self.state, "\"{}\";r={left};t={}", limit.name, used.div_ceil(SECOND));
    }

    /// The headers of the response.
    pub fn headers(self, headers: &mut Vec<(HeaderName, HeaderValue)>) {
        if self.policy.is_empty() {
            return;
        }
        for (name, value) in [(POLICY, self.policy), (STATE, self.state)] {
            // Names of limits are letters, digits, `_` and `-`.
            headers.extend(HeaderValue::try_from(value).ok().map(|value| (name, value)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(requests: u64, per: u64, burst: u64) -> Limit {
        let config = RateLimit { burst, ..RateLimit::new(requests, Duration::from_secs(per)) };
        Limit::new("a", &config, Counter::default())
    }

    fn headers(state: State) -> Vec<String> {
        let mut headers = Vec::new();
        state.headers(&mut headers);
        headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().expect("text"))).collect()
    }

    #[test]
    fn clients_learn_their_budget() {
        let limit = limit(60, 60, 3);
        let (now, key) = (Instant::now(), Key::client([10, 0, 0, 1].into()));
        let mut state = State::default();
        assert!(take(&limit, key, now, 1, &mut state).is_ok());
        assert_eq!(headers(state), ["ratelimit-policy: \"a\";q=3;w=3", "ratelimit: \"a\";r=2;t=1"]);
        let mut state = State::default();
        assert!(take(&limit, key, now, 2, &mut state).is_ok());
        let reached = take(&limit, key, now, 1, &mut state).expect_err("reached");
        assert_eq!(reached.wait, Duration::from_secs(1));
        assert!(headers(state)[1].ends_with("\"a\";r=0;t=3"), "two limits are a list");
        assert_eq!(limit.refused.get(), 1);
        assert!(take(&limit, key, now + Duration::from_secs(1), 1, &mut State::default()).is_ok());
    }

    #[test]
    fn a_client_is_an_address_or_a_network() {
        let key = |text: &str| Key::client(text.parse().expect("an address"));
        assert_eq!(key("::ffff:10.0.0.1"), key("10.0.0.1"));
        assert_ne!(key("10.0.0.1"), key("10.0.0.2"));
        assert_eq!(key("2001:db8::1"), key("2001:db8::ffff:1:2:3"));
        assert_ne!(key("2001:db8::1"), key("2001:db8:0:1::1"));
    }
}
