//! The record of one request.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::call::CallTrace;
use crate::micros;

/// One request with its calls.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RequestTrace {
    /// Its id, as in the access log.
    pub id: String,
    /// Its route: `GET /product`.
    pub route: String,
    /// Its method.
    pub method: String,
    /// Path, and query if the record keeps queries.
    pub target: String,
    /// When it arrived: microseconds since 1970.
    pub started_unix_us: u64,
    /// From its arrival to its response.
    #[serde(rename = "duration_us", with = "micros")]
    pub duration: Duration,
    /// From its arrival to the start of its flow: admission, and reading the body.
    #[serde(rename = "queued_us", with = "micros")]
    pub queued: Duration,
    /// Status.
    pub status: u16,
    /// Whether an optional call failed.
    pub partial: bool,
    /// Its calls, in the order in which the flow made them.
    pub calls: Vec<CallTrace>,
    /// When the flow computed, if that was recorded.
    pub slices: Vec<Slice>,
    /// Where the flow waited, if that was recorded.
    pub waits: Vec<Wait>,
    /// How much shorter a call is in [`Effect::gain`](crate::Effect::gain); `None` if effects were not worked out.
    #[serde(rename = "step_us", with = "micros::option")]
    pub step: Option<Duration>,
    /// How long it took when it ran again to work out the effects: without computing and queueing.
    #[serde(rename = "replayed_us", with = "micros::option")]
    pub replayed: Option<Duration>,
    /// Why no effects could be worked out.
    pub unexplained: Option<String>,
}

/// A time during which the flow computed on its worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slice {
    /// Its start.
    #[serde(rename = "from_us", with = "micros")]
    pub from: Duration,
    /// Its end.
    #[serde(rename = "to_us", with = "micros")]
    pub to: Duration,
}

/// The flow, or a part of it that runs beside the rest, waited for an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// File and line.
    pub line: String,
    /// The call, by its index.
    pub call: u32,
    /// Since when.
    #[serde(rename = "from_us", with = "micros")]
    pub from: Duration,
}
