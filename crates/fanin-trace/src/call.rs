//! The record of one call.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::micros;

/// Calls that are named of those that share a batch.
const NAMED: usize = 3;

/// One call of a request. Times count from the request's start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallTrace {
    /// The upstream.
    pub upstream: Arc<str>,
    /// The operation, if it is one.
    pub operation: Option<Arc<str>>,
    /// Method and path with query. Empty if it was not sent, and in records that keep no paths.
    pub target: String,
    /// File and line of the call: `flows/shop.star:12`.
    pub line: String,
    /// When the flow made it.
    #[serde(rename = "made_us", with = "micros")]
    pub made: Duration,
    /// When it was sent: later than `made` if its arguments were pending, or if it was held for others of its batch. `None` if it was not sent.
    #[serde(rename = "sent_us", with = "micros::option")]
    pub sent: Option<Duration>,
    /// When it ended; `None` if it was cancelled because its answer was not needed.
    #[serde(rename = "ended_us", with = "micros::option")]
    pub ended: Option<Duration>,
    /// The status, the kind of the error, `absent`, `not sent` or `cancelled`.
    pub outcome: String,
    /// Whether its failure fails the flow.
    pub required: bool,
    /// What it shared with other calls.
    pub sharing: Sharing,
    /// The calls of other requests, or of this one, with which it shared a request, as far as they are recorded: the one that made it first.
    #[serde(default)]
    pub shared_with: Vec<SharedWith>,
    /// The calls, by their index, whose answers it waited for before it was made or sent.
    pub awaited: Vec<u32>,
    /// Where the flow waited for its answer first: file and line.
    pub read_at: Option<String>,
    /// Whether the response waited for it: a shorter call would have been a shorter request.
    pub critical: bool,
    /// What a longer or shorter call would have changed, if that was worked out.
    pub effect: Option<Effect>,
    /// The requests that were sent for it, if they were recorded.
    pub attempts: Vec<Attempt>,
}

impl CallTrace {
    /// What it shared, and with whom, in a few words; empty if it shared nothing.
    pub fn shared(&self) -> String {
        let mut text = self.sharing.describe();
        let most = if self.sharing == Sharing::SingleFlight { 1 } else { NAMED };
        for (at, other) in self.shared_with.iter().take(most).enumerate() {
            let before = if at == 0 { ": " } else { ", " };
            let request = other.request.as_deref().map_or("this request".to_owned(), |id| format!("request {id}"));
            text.push_str(&format!("{before}call {} of {request}", other.call));
        }
        match self.shared_with.len().saturating_sub(most) {
            0 => {}
            more => text.push_str(&format!(" and {more} more")),
        }
        text
    }

    /// Upstream and operation: `catalog.products`.
    pub fn name(&self) -> String {
        match &self.operation {
            Some(operation) => format!("{}.{operation}", self.upstream),
            None => self.upstream.to_string(),
        }
    }
}

/// A call with which another one shared a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedWith {
    /// The id of its request; `None` if it is the same one.
    pub request: Option<String>,
    /// Its index there.
    pub call: u32,
}

/// What a call shared with others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Sharing {
    /// Nothing: it was sent by itself.
    #[default]
    Alone,
    /// Its answer was cached.
    Cache,
    /// It came from a snapshot.
    Snapshot,
    /// It awaited the answer of an identical call in flight.
    SingleFlight,
    /// It was sent together with others of the request.
    Batch {
        /// Number of the batch within the request.
        batch: u32,
        /// Calls of the request in it.
        calls: u32,
    },
    /// It was sent together with calls of other requests.
    SharedBatch,
}

impl Sharing {
    /// In a few words; empty for calls that shared nothing.
    pub fn describe(self) -> String {
        match self {
            Sharing::Alone => String::new(),
            Sharing::Cache => "cached".to_owned(),
            Sharing::Snapshot => "snapshot".to_owned(),
            Sharing::SingleFlight => "joined a call in flight".to_owned(),
            Sharing::Batch { calls: 1, .. } => "batch of 1".to_owned(),
            Sharing::Batch { batch, calls } => format!("batch {batch} of {calls}"),
            Sharing::SharedBatch => "batch with other requests".to_owned(),
        }
    }
}

/// What a longer or shorter call would have changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Effect {
    /// How much longer it could have taken before the response had come later or changed. `None` if no length would have changed
    /// that.
    #[serde(rename = "slack_us", with = "micros::option")]
    pub slack: Option<Duration>,
    /// How much sooner the response would have come, had it been shorter by the explanation's step.
    #[serde(rename = "gain_us", with = "micros")]
    pub gain: Duration,
}

/// One request to an upstream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    /// `first`, `retry` or `hedge`.
    pub kind: String,
    /// Its number among the requests of its call.
    #[serde(default)]
    pub number: u32,
    /// When it had its permits and an endpoint.
    #[serde(rename = "begun_us", with = "micros")]
    pub begun: Duration,
    /// How long it waited for them.
    #[serde(rename = "waited_us", with = "micros")]
    pub waited: Duration,
    /// When it ended.
    #[serde(rename = "ended_us", with = "micros::option")]
    pub ended: Option<Duration>,
    /// How long the first bytes of its answer were in the kernel before the worker read them, if that was measured.
    #[serde(default, rename = "unread_us", with = "micros::option")]
    pub unread: Option<Duration>,
    /// The endpoint's address.
    pub endpoint: String,
    /// The status, the kind of the error, or `cancelled`.
    pub outcome: String,
}
