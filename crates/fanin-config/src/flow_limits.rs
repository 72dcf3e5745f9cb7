//! `[flow]`: what one request may use.

use schemars::JsonSchema;
use serde::Serialize;

use crate::reader::Table;
use crate::schema::types;
use crate::values::serialize;

/// Limits of one request. The first limit exceeded ends the flow with an error that names the line.
///
/// `[flow]` sets them for all routes. A route can set each of them for itself.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FlowLimits {
    /// Most calls that one request may make. Calls answered by a cache count, so that the number does not depend on
    /// timing.
    #[schemars(with = "types::Count<1>")]
    pub max_calls: usize,
    /// Most steps of computation, roughly one for each operation of the flow. Operations on large values take more
    /// steps.
    #[schemars(with = "types::Count<1>")]
    pub max_steps: u64,
    /// Largest total size in bytes of the values that the flow builds: strings, lists, dicts. Answers do not count.
    #[serde(serialize_with = "serialize::size")]
    #[schemars(with = "types::Size<1>")]
    pub max_memory: usize,
    /// Largest string, list, dict or set that the flow builds, in bytes. A list element counts 16 bytes, a dict entry
    /// 48. This also bounds how long one operation can occupy the worker.
    #[serde(serialize_with = "serialize::size")]
    #[schemars(with = "types::Size<1>")]
    pub max_value: usize,
    /// Most nested function calls.
    #[schemars(with = "types::Count<1>")]
    pub max_depth: usize,
    /// Most fibers of a flow: functions that are suspended at the same time.
    #[schemars(with = "types::Count<1>")]
    pub max_fibers: usize,
    /// Largest body of the response, in bytes.
    #[serde(serialize_with = "serialize::size")]
    #[schemars(with = "types::Size<1>")]
    pub max_response: usize,
    /// Deepest nesting of JSON in request bodies and answers.
    #[schemars(with = "types::Count<1, 10000>")]
    pub max_json_depth: usize,
    /// Most lines a second that `log` and `print` of a route's flow may write, over all workers; as many again in a
    /// burst. Further lines are dropped and counted. `0`: none are written.
    #[schemars(with = "types::Count<0, 1000000>")]
    pub max_log_rate: u32,
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
            max_log_rate: 100,
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
            max_log_rate: table.number("max_log_rate", 0..=1_000_000).map_or(default.max_log_rate, |rate| rate as u32),
        }
    }
}
