//! `[flow]`: what one request may use.

use schemars::JsonSchema;
use serde::Serialize;

use crate::table::Table;
use crate::{schema, text};

/// What one request's flow may use; the first bound that is passed ends the flow with an error that names the line.
/// `[flow]` sets them for all routes; each key can also stand on a route, for that route alone.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FlowLimits {
    /// Calls that one request may make, sent or not: a call answered by a cache counts too, so the number does not depend
    /// on timing.
    #[schemars(with = "schema::Count<1>")]
    pub max_calls: usize,
    /// Steps of evaluation, roughly one for each operation of the flow; large values charge by size.
    #[schemars(with = "schema::Count<1>")]
    pub max_steps: u64,
    /// Bytes that the flow's own values may take (strings it builds, lists, dicts); answers as received do not count.
    #[serde(serialize_with = "text::size")]
    #[schemars(with = "schema::Size<1>")]
    pub max_memory: usize,
    /// Bytes of one string, list, dict or set that the flow makes; an element of a list counts 16, an entry of a dict 48.
    /// It also bounds how long a single operation can hold its worker.
    #[serde(serialize_with = "text::size")]
    #[schemars(with = "schema::Size<1>")]
    pub max_value: usize,
    /// Functions that may be open at once, one inside the other.
    #[schemars(with = "schema::Count<1>")]
    pub max_depth: usize,
    /// Parts of the flow that may wait side by side.
    #[schemars(with = "schema::Count<1>")]
    pub max_fibers: usize,
    /// Bytes of the response's body.
    #[serde(serialize_with = "text::size")]
    #[schemars(with = "schema::Size<1>")]
    pub max_response: usize,
    /// Nesting of JSON in request bodies and answers.
    #[schemars(with = "schema::Count<1, 10000>")]
    pub max_json_depth: usize,
}

impl Default for FlowLimits {
    fn default() -> Self {
        FlowLimits {
            max_calls: 64,
            max_steps: 10_000_000,
            max_memory: 64 << 20,
            max_value: 1 << 20,
            max_depth: 64,
            max_fibers: 10_000,
            max_response: 16 << 20,
            max_json_depth: 128,
        }
    }
}

impl FlowLimits {
    /// Reads the limits that a table names; `default` stands for the others.
    pub(crate) fn read(table: &mut Table<'_, '_>, default: &FlowLimits) -> FlowLimits {
        FlowLimits {
            max_calls: table.count("max_calls", 1..=u64::MAX).unwrap_or(default.max_calls),
            max_steps: table.number("max_steps", 1..=u64::MAX).unwrap_or(default.max_steps),
            max_memory: table.size("max_memory", 1).unwrap_or(default.max_memory),
            max_value: table.size("max_value", 1).unwrap_or(default.max_value),
            max_depth: table.count("max_depth", 1..=u64::MAX).unwrap_or(default.max_depth),
            max_fibers: table.count("max_fibers", 1..=u64::MAX).unwrap_or(default.max_fibers),
            max_response: table.size("max_response", 1).unwrap_or(default.max_response),
            max_json_depth: table.count("max_json_depth", 1..=10_000).unwrap_or(default.max_json_depth),
        }
    }
}
