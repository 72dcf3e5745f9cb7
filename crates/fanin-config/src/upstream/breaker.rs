//! `[upstreams.NAME.breaker]`: the circuit breaker.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use crate::reader::{Table, TableOrWord};
use crate::schema::types;
use crate::values::serialize;

/// `[upstreams.NAME.breaker]`: when the circuit breaker opens, and when it closes again.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Breaker {
    /// Share of failed calls within `window` that opens the breaker.
    #[schemars(with = "types::Share")]
    pub share: f64,
    /// Fewest calls within `window` for the breaker to open.
    #[schemars(with = "types::Count<1, 4294967295>")]
    pub calls: u32,
    /// Period over which calls are counted.
    #[serde(serialize_with = "serialize::duration")]
    #[schemars(with = "types::DurationText")]
    pub window: Duration,
    /// How long the breaker stays open the first time. Then it lets a few calls through. If they fail, it opens again
    /// for twice as long.
    #[serde(serialize_with = "serialize::duration")]
    #[schemars(with = "types::DurationText")]
    pub pause: Duration,
    /// Longest time that the breaker stays open.
    #[serde(serialize_with = "serialize::duration")]
    #[schemars(with = "types::DurationText")]
    pub longest_pause: Duration,
    /// Consecutive successes that close the breaker again.
    #[schemars(with = "types::Count<1, 4294967295>")]
    pub probes: u32,
}

impl Default for Breaker {
    fn default() -> Self {
        Breaker {
            share: 0.5,
            calls: 20,
            window: Duration::from_secs(10),
            pause: Duration::from_secs(1),
            longest_pause: Duration::from_secs(5),
            probes: 3,
        }
    }
}

impl Breaker {
    /// Reads `breaker`: a table, or `"off"`.
    pub(super) fn read(upstream: &mut Table<'_, '_>) -> Option<Breaker> {
        let default = Breaker::default();
        let mut table = match upstream.table_or_word("breaker", "a table or \"off\"", "off") {
            TableOrWord::Absent => return Some(default),
            TableOrWord::Word => return None,
            TableOrWord::Table(table) => table,
        };
        let share = table.float("share", 0.0, 1.0);
        if share == Some(0.0) {
            table.error("share", "must be greater than 0");
        }
        let range = 1..=u64::from(u32::MAX);
        let pause = table.duration("pause").unwrap_or(default.pause);
        let longest_pause = table.duration("longest_pause");
        if longest_pause.is_some_and(|longest| longest < pause) {
            table.error("longest_pause", "must not be shorter than `pause`");
        }
        let breaker = Breaker {
            share: share.unwrap_or(default.share),
            calls: table.number("calls", range.clone()).map_or(default.calls, |calls| calls as u32),
            window: table.duration("window").unwrap_or(default.window),
            pause,
            longest_pause: longest_pause.unwrap_or(default.longest_pause).max(pause),
            probes: table.number("probes", range).map_or(default.probes, |probes| probes as u32),
        };
        table.finish();
        Some(breaker)
    }
}
