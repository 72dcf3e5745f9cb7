//! `cache` of a route: responses that are kept and sent again.

use std::collections::BTreeMap;
use std::time::Duration;

use http::{HeaderName, StatusCode};
use schemars::JsonSchema;
use serde::Serialize;

use crate::reader::Table;
use crate::schema::types;
use crate::values::duration::parse_duration;
use crate::values::http::{FRAMING, header_name};
use crate::values::serialize;

/// `cache` of a route: a shared cache of its responses to GET (RFC 9111). A response that may be sent again is, without the flow. What a
/// response says in `Cache-Control` takes precedence over these keys. `cache = {}` keeps only responses that say themselves for how long.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResponseCache {
    /// How long a response with status 200 is fresh that sets no time itself.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "serialize::optional_duration")]
    #[schemars(with = "types::DurationText")]
    pub ttl: Option<Duration>,
    /// The same by status, most of all for errors, which are not kept otherwise: `{ 404 = "10s", 301 = "1h" }`. It takes precedence over
    /// `ttl`.
    #[serde(serialize_with = "by_status")]
    #[schemars(with = "BTreeMap<String, types::DurationText>")]
    pub ttl_by_status: BTreeMap<u16, Duration>,
    /// How long after it is no longer fresh a response is still sent while a new one is made in the
    /// background, if it sets no `stale-while-revalidate` itself.
    #[serde(serialize_with = "serialize::duration")]
    #[schemars(with = "types::DurationText")]
    pub stale: Duration,
    /// How long after it is no longer fresh a response is sent in place of a 5xx, if it
    /// sets no `stale-if-error` itself.
    #[serde(serialize_with = "serialize::duration")]
    #[schemars(with = "types::DurationText")]
    pub stale_if_error: Duration,
    /// Guesses how long a response is fresh that only has `Last-Modified`: a tenth of the time since then, at most a day.
    #[schemars(with = "types::Flag")]
    pub heuristic: bool,
    /// Parameters of the query that the response depends on: `["page", "sort"]`. Others are left out of the key. Default: the whole query.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<types::Text>")]
    pub query: Option<Vec<String>>,
    /// Request headers that the response depends on, besides those that it names in `Vary`: `["accept-language"]`.
    #[serde(serialize_with = "serialize::list")]
    #[schemars(with = "Vec<types::Text>")]
    pub vary: Vec<HeaderName>,
    /// Requests with `Cookie` use the cache, too, and get the response of anybody else. Otherwise they pass it by, unless `vary` names
    /// `cookie`.
    #[schemars(with = "types::Flag")]
    pub ignore_cookies: bool,
    /// Keeps responses with `Set-Cookie`, which then set the same cookie for everybody.
    #[schemars(with = "types::Flag")]
    pub set_cookie: bool,
    /// Obeys `Cache-Control` of requests, as a browser sends it on a reload. `false`: clients cannot pass the cache by.
    #[schemars(with = "types::Flag")]
    pub client_directives: bool,
    /// Largest size of the cache in bytes, keys and headers included.
    #[serde(serialize_with = "serialize::size")]
    #[schemars(with = "types::Size<1>")]
    pub max_size: usize,
    /// Largest body that is kept, in bytes.
    #[serde(serialize_with = "serialize::size")]
    #[schemars(with = "types::Size<1>")]
    pub max_body: usize,
}

impl Default for ResponseCache {
    fn default() -> ResponseCache {
        ResponseCache {
            ttl: None,
            ttl_by_status: BTreeMap::new(),
            stale: Duration::ZERO,
            stale_if_error: Duration::ZERO,
            heuristic: false,
            query: None,
            vary: Vec::new(),
            ignore_cookies: false,
            set_cookie: false,
            client_directives: true,
            max_size: 32 << 20,
            max_body: 1 << 20,
        }
    }
}

impl ResponseCache {
    /// Reads `cache` of a route.
    pub(crate) fn of_route(table: &mut Table<'_, '_>) -> Option<ResponseCache> {
        Some(ResponseCache::read(table.table("cache")?))
    }

    fn read(mut table: Table<'_, '_>) -> ResponseCache {
        let default = ResponseCache::default();
        let mut ttl_by_status = BTreeMap::new();
        for (status, text) in table.strings("ttl_by_status") {
            let known = status.value.parse().ok().and_then(|number| StatusCode::from_u16(number).ok());
            let known = known.filter(|status| !status.is_informational() && !UNSTORED.contains(&status.as_u16()));
            let Some(known) = known else {
                let message = format!(
                    "{}.ttl_by_status: `{}` is not a status of responses that can be kept, such as 404",
                    table.name(),
                    status.value
                );
                table.reader().error(&status.span, message);
                continue;
            };
            match parse_duration(&text.text) {
                Ok(ttl) => _ = ttl_by_status.insert(known.as_u16(), ttl),
                Err(problem) => {
                    let message = format!("{}.ttl_by_status: {}: {problem}", table.name(), status.value);
                    table.reader().error(&status.span, message);
                }
            }
        }
        let mut duration =
            |key| table.parsed(key, "a duration such as \"1m\"", parse_duration).map(|duration| duration.value);
        let ttl = duration("ttl");
        let (stale, stale_if_error) = (duration("stale"), duration("stale_if_error"));
        let query = table.list("query", "a parameter's name", false, |text| match text {
            "" => Err("is empty".to_owned()),
            text => Ok(text.to_owned()),
        });
        let vary = table.list("vary", "a header's name", false, key_header).unwrap_or_default();
        let cache = ResponseCache {
            ttl,
            ttl_by_status,
            stale: stale.unwrap_or_default(),
            stale_if_error: stale_if_error.unwrap_or_default(),
            heuristic: table.boolean("heuristic").unwrap_or(default.heuristic),
            query: query.map(|names| names.into_iter().map(|at| at.value).collect()),
            vary: vary.into_iter().map(|at| at.value).collect(),
            ignore_cookies: table.boolean("ignore_cookies").unwrap_or(default.ignore_cookies),
            set_cookie: table.boolean("set_cookie").unwrap_or(default.set_cookie),
            client_directives: table.boolean("client_directives").unwrap_or(default.client_directives),
            max_size: table.size("max_size", 1).unwrap_or(default.max_size),
            max_body: table.size("max_body", 1).unwrap_or(default.max_body),
        };
        if cache.max_body > cache.max_size {
            let hint = "raise max_size, or lower max_body";
            table.warning("max_body", "is larger than the whole cache", hint);
        }
        table.finish();
        cache
    }
}

/// A part of a response, and an answer to a condition: neither can be sent again to others.
const UNSTORED: [u16; 2] = [206, 304];

fn key_header(text: &str) -> Result<HeaderName, String> {
    let header = header_name(text)?;
    match FRAMING.contains(&header.as_str()) {
        true => Err(format!("`{header}` does not change responses, or is a part of the key already; remove it")),
        false => Ok(header),
    }
}

fn by_status<S: serde::Serializer>(durations: &BTreeMap<u16, Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    let texts = durations.iter().map(|(status, ttl)| (status.to_string(), crate::format_duration(*ttl)));
    serializer.collect_map(texts)
}
