//! `[upstreams.NAME.operations.NAME.cache]`: cached answers.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use crate::reader::Table;
use crate::schema::types;
use crate::values::duration::parse_duration;
use crate::values::serialize;

/// `[upstreams.NAME.operations.NAME.cache]`: cached answers. An operation with `batch` caches each item on its own.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Cache {
    /// Time to live: how long a cached answer is fresh.
    #[serde(serialize_with = "serialize::duration")]
    #[schemars(with = "types::DurationText")]
    pub ttl: Duration,
    /// How long after `ttl` a cached answer is still served while a new one is fetched in the background
    /// (stale-while-revalidate).
    #[serde(serialize_with = "serialize::duration")]
    #[schemars(with = "types::DurationText")]
    pub stale: Duration,
    /// How long after `ttl` a cached answer is served if the upstream fails (stale-if-error).
    #[serde(serialize_with = "serialize::duration")]
    #[schemars(with = "types::DurationText")]
    pub stale_if_error: Duration,
    /// Negative caching: how long a 404 or 410 is cached and, for an operation with `batch`, that a key has no item.
    /// The default `"0s"` disables it.
    #[serde(serialize_with = "serialize::duration")]
    #[schemars(with = "types::DurationText")]
    pub negative: Duration,
    /// Largest size of the cache in bytes, keys and headers included.
    #[serde(serialize_with = "serialize::size")]
    #[schemars(with = "types::Size<1>")]
    pub max_size: usize,
    /// Obeys the answer's `cache-control` header. `no-store`, `no-cache` and `private` prevent caching. `max-age`,
    /// `s-maxage`, `stale-while-revalidate` and `stale-if-error` replace the times above.
    #[schemars(with = "types::Flag")]
    pub cache_control: bool,
}

impl Cache {
    /// A cache with this time to live and all other defaults.
    pub fn new(ttl: Duration) -> Cache {
        Cache {
            ttl,
            stale: Duration::ZERO,
            stale_if_error: Duration::ZERO,
            negative: Duration::ZERO,
            max_size: 16 << 20,
            cache_control: false,
        }
    }

    pub(super) fn read(mut table: Table<'_, '_>) -> Option<Cache> {
        let ttl = table.duration("ttl");
        if !table.has("ttl") {
            table.missing("ttl", "write ttl = \"1m\"");
        }
        let mut duration = |key| {
            table
                .parsed(key, "a duration such as \"1m\"", parse_duration)
                .map_or(Duration::ZERO, |duration| duration.value)
        };
        let (stale, stale_if_error, negative) = (duration("stale"), duration("stale_if_error"), duration("negative"));
        let default = Cache::new(Duration::ZERO);
        let cache = Cache {
            ttl: Duration::ZERO,
            stale,
            stale_if_error,
            negative,
            max_size: table.size("max_size", 1).unwrap_or(default.max_size),
            cache_control: table.boolean("cache_control").unwrap_or(default.cache_control),
        };
        table.finish();
        Some(Cache { ttl: ttl?, ..cache })
    }
}
