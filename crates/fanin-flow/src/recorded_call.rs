//! The calls of a flow that has ended, as a recording keeps them and a replay compares them.

use std::time::Duration;

use bytes::Bytes;
use fanin_trace::Sharing;
use fanin_upstream::shared::{Body, SharedResult};
use fanin_upstream::{AttemptLog, ErrorKind, LoggedAttempt};
use http::{HeaderMap, StatusCode};

use crate::call_record::NONE;
use crate::flow_record::FlowRecord;
use crate::kinds::UpstreamObject;
use crate::merge::requested_keys::RequestedKeys;

/// A call. Times are since the request's start.
#[derive(Debug, Clone)]
pub struct RecordedCall<'a> {
    /// The upstream.
    pub upstream: &'a str,
    /// The operation, statement or method.
    pub operation: Option<&'a str>,
    /// HTTP method of its request; empty if it was not sent.
    pub method: &'a [u8],
    /// Path and query, without the keys of a batched operation.
    pub path_and_query: &'a [u8],
    /// Body of its request.
    pub body: &'a [u8],
    /// The keys that it requests of a batched operation.
    pub keys: Vec<&'a [u8]>,
    /// Whether it requests a single key, so that its answer is an item and no list.
    pub single: bool,
    /// When the flow made it.
    pub made: Duration,
    /// When it was sent.
    pub sent: Option<Duration>,
    /// When it ended.
    pub ended: Option<Duration>,
    /// With what it shared a request.
    pub sharing: Sharing,
    /// Its status, or why it has none.
    pub outcome: String,
    log: Option<&'a AttemptLog>,
    result: Option<&'a SharedResult>,
}

/// What a call was answered, after merging: of a batched operation, its own items.
#[derive(Debug, Clone)]
pub enum RecordedAnswer {
    /// An answer.
    Answer {
        /// Status.
        status: StatusCode,
        /// Headers.
        headers: HeaderMap,
        /// The body; `None` if the requested key is not there.
        body: Option<Bytes>,
    },
    /// None.
    Failed {
        /// The kind of failure.
        kind: ErrorKind,
        /// Its text.
        detail: String,
    },
}

impl FlowRecord {
    /// Whether the requests of its calls are recorded.
    #[must_use]
    pub fn names_requests(&self) -> bool {
        self.record.full.is_some()
    }

    /// Why the flow cannot be run again from its record.
    #[must_use]
    pub fn unrepeatable(&self) -> Option<&'static str> {
        let own = self.record.full.as_ref().and_then(|full| full.unrepeatable);
        own.or_else(|| self.before.as_ref()?.unrepeatable())
    }

    /// The calls of the flow before and of the route's own, if their requests are recorded.
    pub fn recorded_calls(&self) -> impl Iterator<Item = RecordedCall<'_>> {
        let before = self.before.iter().flat_map(|before| (0..before.len()).map(|index| before.recorded_call(index)));
        before.chain((0..self.len()).map(|index| self.recorded_call(index)))
    }

    fn recorded_call(&self, index: usize) -> RecordedCall<'_> {
        let (call, object) = (&self.record.calls[index], &self.objects[index]);
        let time = |micros: u32| (micros != NONE).then(|| Duration::from_micros(micros.into()));
        let full = self.record.full.as_ref().and_then(|full| full.calls.get(index));
        let parts = full.and_then(|full| full.identity.as_ref()?.request.parts());
        let (single, keys) = parts.and_then(|parts| RequestedKeys::keys_of(parts.rest)).unwrap_or_default();
        RecordedCall {
            upstream: object.name(),
            operation: object
                .downcast::<UpstreamObject>()
                .filter(|_| call.operation != NONE)
                .and_then(|object| object.upstream.operation_name(call.operation))
                .map(|name| &**name),
            method: parts.map_or(&[], |parts| parts.method),
            path_and_query: parts.map_or(&[], |parts| parts.path_and_query),
            body: parts.map_or(&[], |parts| parts.body),
            keys,
            single,
            made: Duration::from_micros(call.made.into()),
            sent: time(call.sent),
            ended: time(call.ended),
            sharing: call.sharing,
            outcome: call.outcome.describe(),
            log: self.record.attempts.get(index).map(|log| &**log),
            result: full.and_then(|full| full.result.as_ref()),
        }
    }

    /// When the request arrived, by the clock that attempts are noted by.
    #[must_use]
    pub fn started(&self) -> Option<tokio::time::Instant> {
        self.record.start
    }
}

impl RecordedCall<'_> {
    /// Its attempts.
    #[must_use]
    pub fn attempts(&self) -> Vec<LoggedAttempt> {
        self.log.map_or_else(Vec::new, AttemptLog::attempts)
    }

    /// What it was answered.
    #[must_use]
    pub fn answer(&self) -> Option<RecordedAnswer> {
        Some(match self.result? {
            Ok(ready) => RecordedAnswer::Answer {
                status: ready.answer.status,
                headers: HeaderMap::clone(&ready.answer.headers),
                body: match &ready.body {
                    Body::Absent => None,
                    Body::Json(doc) => Some(doc.bytes().clone()),
                    Body::Empty => Some(Bytes::new()),
                    _ => Some(ready.answer.body.clone()),
                },
            },
            Err(error) => RecordedAnswer::Failed { kind: error.kind, detail: error.detail.to_string() },
        })
    }
}
