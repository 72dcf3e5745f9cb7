//! `limit` of an upstream: how many of its calls may be in flight.

use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use crate::schema;
use crate::table::{Choice, Table};

/// How many calls of an upstream may be in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// This many, always.
    Fixed(usize),
    /// As many as the upstream answers without its latency growing.
    Adaptive {
        /// Never fewer than this.
        min: usize,
        /// Never more.
        max: usize,
    },
}

/// `[upstreams.NAME.limit]`: bounds of an adaptive limit.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AdaptiveLimit {
    /// Never fewer calls in flight than this are allowed.
    #[schemars(with = "schema::Count<1>")]
    min: usize,
    /// Never more calls in flight than this are allowed.
    #[schemars(with = "schema::Count<1>")]
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

/// Reads the key `limit`: a number, `"adaptive"`, or a table.
pub(crate) fn read(upstream: &mut Table<'_, '_>) -> Option<Limit> {
    let default = AdaptiveLimit::default();
    if upstream.is_number("limit") {
        return upstream.count("limit", 1..=u64::MAX).map(Limit::Fixed);
    }
    match upstream.table_or("limit", "a number, \"adaptive\" or a table", "adaptive") {
        Choice::Absent => None,
        Choice::Word => Some(Limit::Adaptive { min: default.min, max: default.max }),
        Choice::Table(mut table) => {
            let min = table.count("min", 1..=u64::MAX).unwrap_or(default.min);
            let max = table.count("max", 1..=u64::MAX).unwrap_or(default.max.max(min));
            if min > max {
                table.error(
                    if table.at("min").is_some() { "min" } else { "max" },
                    format_args!("min {min} is above max {max}"),
                );
            }
            table.finish();
            Some(Limit::Adaptive { min: min.min(max), max })
        }
    }
}
