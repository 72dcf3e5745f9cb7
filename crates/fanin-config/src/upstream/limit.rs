//! `limit` of an upstream: fixed or adaptive.

use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use crate::reader::{Table, TableOrWord};
use crate::schema::types;

/// How many calls of an upstream may be in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// A fixed number.
    Fixed(usize),
    /// A number that follows the latency of the upstream.
    Adaptive {
        /// The lowest value.
        min: usize,
        /// The highest value.
        max: usize,
    },
}

/// `[upstreams.NAME.limit]`: bounds of an adaptive limit.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AdaptiveLimit {
    /// Lowest value of the adaptive limit, in calls in flight.
    #[schemars(with = "types::Count<1>")]
    min: usize,
    /// Highest value of the adaptive limit, in calls in flight.
    #[schemars(with = "types::Count<1>")]
    max: usize,
}

impl Default for AdaptiveLimit {
    fn default() -> Self {
        AdaptiveLimit { min: 8, max: 1024 }
    }
}

impl Serialize for Limit {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match *self {
            Limit::Fixed(calls) => to.serialize_u64(calls as u64),
            Limit::Adaptive { min, max } => AdaptiveLimit { min, max }.serialize(to),
        }
    }
}

impl Limit {
    /// Reads `limit`: a number, `"adaptive"`, or a table.
    pub(super) fn read(upstream: &mut Table<'_, '_>) -> Option<Limit> {
        let default = AdaptiveLimit::default();
        if upstream.is_number("limit") {
            return upstream.count("limit", 1..=u64::MAX).map(Limit::Fixed);
        }
        match upstream.table_or_word("limit", "a number, \"adaptive\" or a table", "adaptive") {
            TableOrWord::Absent => None,
            TableOrWord::Word => Some(Limit::Adaptive { min: default.min, max: default.max }),
            TableOrWord::Table(mut table) => {
                let min = table.count("min", 1..=u64::MAX).unwrap_or(default.min);
                let max = table.count("max", 1..=u64::MAX).unwrap_or(default.max.max(min));
                if min > max {
                    table.error(
                        if table.has("min") { "min" } else { "max" },
                        format_args!("min, {min}, must not exceed max, {max}"),
                    );
                }
                table.finish();
                Some(Limit::Adaptive { min: min.min(max), max })
            }
        }
    }
}
