//! `[rate_limits.NAME]`: how many requests in how much time.

use std::fmt;
use std::time::Duration;

use http::HeaderName;
use indexmap::IndexMap;
use schemars::{JsonSchema, json_schema};
use serde::Serialize;

use crate::reader::Table;
use crate::schema::types::{self, leaf};
use crate::values::http::header_name;
use crate::values::names::is_upstream_name;
use crate::values::serialize;

leaf!(
    /// What is counted together.
    RateLimitKeyText,
    json_schema!({ "type": "string", "pattern": r"^(client|principal|route|all|header:.+|claim:.+)$|\$\{", "x-type": "key" })
);

/// One of `[rate_limits.NAME]`: how many requests in how much time. Routes name it in `rate_limit`; those that name the same one share it.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RateLimit {
    /// Requests in the time of `per`, on average.
    #[schemars(with = "types::Count<1, 1000000000>")]
    pub requests: u64,
    /// The time of `requests`.
    #[serde(serialize_with = "serialize::duration")]
    #[schemars(with = "types::DurationText")]
    pub per: Duration,
    /// Most requests at once, after a pause. Default: `requests`.
    #[schemars(with = "types::Count<1, 1000000000>")]
    pub burst: u64,
    /// What has a budget of its own: `"client"` (an IPv4 address, or an IPv6 network of 64 bits), `"principal"` (who `auth` found),
    /// `"route"`, `"all"` (one budget for everything), `"header:NAME"` or `"claim:NAME"`. A header is what the client writes: use it only
    /// behind something that checks it. Requests without the header or the claim share a budget.
    #[serde(serialize_with = "serialize::display")]
    #[schemars(with = "RateLimitKeyText")]
    pub key: RateLimitKey,
    /// Keys with a budget of their own at the same time: 32 bytes each, taken at the start. Beyond it, new keys share budgets; none is
    /// forgotten before it is full again.
    #[schemars(with = "types::Count<1, 10000000>")]
    pub max_keys: usize,
    /// Sends `RateLimit-Policy` and `RateLimit` with each response.
    #[schemars(with = "types::Flag")]
    pub headers: bool,
}

/// What has a budget of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RateLimitKey {
    /// The address.
    Client,
    /// Who `auth` found.
    Principal,
    /// The route.
    Route,
    /// Everything together.
    All,
    /// The value of a header.
    Header(HeaderName),
    /// A claim of the token.
    Claim(String),
}

impl fmt::Display for RateLimitKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RateLimitKey::Client => f.write_str("client"),
            RateLimitKey::Principal => f.write_str("principal"),
            RateLimitKey::Route => f.write_str("route"),
            RateLimitKey::All => f.write_str("all"),
            RateLimitKey::Header(name) => write!(f, "header:{name}"),
            RateLimitKey::Claim(name) => write!(f, "claim:{name}"),
        }
    }
}

impl RateLimit {
    /// A limit with all defaults.
    pub fn new(requests: u64, per: Duration) -> RateLimit {
        RateLimit { requests, per, burst: requests, key: RateLimitKey::Client, max_keys: 100_000, headers: true }
    }

    /// Reads `[rate_limits.NAME]`, all of them.
    pub(crate) fn read_all(root: &mut Table<'_, '_>) -> IndexMap<String, RateLimit> {
        let mut limits = IndexMap::new();
        for (name, mut table) in root.named_tables("rate_limits") {
            if !is_upstream_name(&name.value) {
                let message = format!("`{}` is not a valid name", name.value);
                table.reader().error_hint(&name.span, message, "use letters, digits, `_` and `-`, a letter first");
            }
            let limit = RateLimit::read(&mut table);
            table.finish();
            limits.insert(name.value, limit);
        }
        limits
    }

    fn read(table: &mut Table<'_, '_>) -> RateLimit {
        const MOST: u64 = 1_000_000_000;
        if !table.has("requests") {
            table.missing("requests", "requests = 100");
        }
        if !table.has("per") {
            table.missing("per", "per = \"1m\"");
        }
        let requests = table.number("requests", 1..=MOST).unwrap_or(1);
        let default = RateLimit::new(requests, table.duration("per").unwrap_or(Duration::from_secs(1)));
        let what = "\"client\", \"principal\", \"route\", \"all\", \"header:NAME\" or \"claim:NAME\"";
        let limit = RateLimit {
            burst: table.number("burst", 1..=MOST).unwrap_or(default.burst),
            key: table.parsed("key", what, |text| parse_key(text, what)).map_or(default.key, |key| key.value),
            max_keys: table.count("max_keys", 1..=10_000_000).unwrap_or(default.max_keys),
            headers: table.boolean("headers").unwrap_or(default.headers),
            ..default
        };
        if limit.per.as_nanos() / u128::from(limit.requests) == 0 {
            table.error("requests", "is more than one request a nanosecond");
        }
        let refill = limit.per.as_secs_f64() / limit.requests as f64 * limit.burst as f64;
        if refill > 366.0 * 86_400.0 {
            table.error("per", "a used up budget would be full again only after more than a year");
        }
        limit
    }
}

fn parse_key(text: &str, what: &str) -> Result<RateLimitKey, String> {
    match text.split_once(':') {
        None if text == "client" => Ok(RateLimitKey::Client),
        None if text == "principal" => Ok(RateLimitKey::Principal),
        None if text == "route" => Ok(RateLimitKey::Route),
        None if text == "all" => Ok(RateLimitKey::All),
        Some(("header", name)) => header_name(name).map(RateLimitKey::Header),
        Some(("claim", name)) if !name.is_empty() => Ok(RateLimitKey::Claim(name.to_owned())),
        _ => Err(format!("`{text}` is not a key; write {what}")),
    }
}
