//! The calls of many ended flows, side by side in one piece of memory.
//!
//! A record by itself is several allocations, which live until thousands of later requests have ended. Each new one would then be memory
//! that no cache holds. Here, memory is written in the order in which it lies.

use std::collections::VecDeque;
use std::sync::Arc;

use fanin_lang::HostRef;

use crate::call_record::CallRecord;
use crate::flow_record::{FlowRecord, Record};
use crate::route::RouteFlow;

/// The calls, those of the oldest flow first.
#[derive(Clone, Default)]
pub struct CallRing {
    calls: VecDeque<(CallRecord, HostRef)>,
    /// How many calls were removed so far: the number of the first one.
    first: u64,
}

/// What a [`CallRing`] does not keep of a flow, and where its calls are there.
#[derive(Clone)]
pub struct RingEntry {
    request: u64,
    route: Arc<RouteFlow>,
    last_ended: Option<u32>,
    batches: u32,
    /// The number of its first call.
    first: u64,
    calls: usize,
}

impl CallRing {
    /// Moves the calls of a flow here, behind those of all others. `Err` if the record holds more than calls, or if others have it, too.
    pub fn add(&mut self, record: Arc<FlowRecord>) -> Result<RingEntry, Arc<FlowRecord>> {
        if !record.record.holds_calls_only() {
            return Err(record);
        }
        let FlowRecord { request, route, record, objects, before: _ } = Arc::try_unwrap(record)?;
        let Record { calls, last_ended, batches, .. } = record;
        let first = self.first + self.calls.len() as u64;
        let entry = RingEntry { request, route, last_ended, batches, first, calls: calls.len() };
        self.calls.extend(calls.into_iter().zip(objects));
        Ok(entry)
    }

    /// Removes the calls of the oldest flow. Entries are to be removed in the order in which they were added.
    pub fn remove(&mut self, entry: &RingEntry) {
        debug_assert_eq!(entry.first, self.first, "the oldest flow goes first");
        let calls = entry.calls.min(self.calls.len());
        self.calls.drain(..calls);
        self.first += calls as u64;
    }

    /// The record of a flow, as it was. `None` if its calls were removed.
    #[must_use]
    pub fn record(&self, entry: &RingEntry) -> Option<FlowRecord> {
        let at = usize::try_from(entry.first.checked_sub(self.first)?).ok()?;
        let kept = || self.calls.iter().skip(at).take(entry.calls);
        let record = Record {
            calls: kept().map(|(call, _)| *call).collect(),
            last_ended: entry.last_ended,
            batches: entry.batches,
            ..Record::default()
        };
        let objects = kept().map(|(_, object)| object.clone()).collect();
        Some(FlowRecord { request: entry.request, route: entry.route.clone(), record, objects, before: None })
    }
}

impl RingEntry {
    /// Number of its calls.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "a flow without calls has no record")]
    pub fn len(&self) -> usize {
        self.calls
    }
}

impl std::fmt::Debug for CallRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CallRing").field("calls", &self.calls.len()).finish()
    }
}

impl std::fmt::Debug for RingEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RingEntry").field("route", &self.route.name).field("calls", &self.calls).finish()
    }
}
