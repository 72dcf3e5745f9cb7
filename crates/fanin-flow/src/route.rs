//! A route's flow, compiled.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU8, AtomicU32};

use fanin_config::{FlowLimits, OnDisconnect};
use fanin_lang::{FunctionRef, Limits, Program};
use prometheus_client::metrics::counter::Counter;

use crate::log::FlowLog;
use crate::sequential_waits::SequentialWaits;
use crate::signing_keys::Keys;

/// A route's flow, ready to run.
pub(crate) struct RouteFlow {
    pub(crate) index: usize,
    pub(crate) name: String,
    /// File and function.
    pub(crate) flow: String,
    pub(crate) program: Program,
    pub(crate) function: FunctionRef,
    pub(crate) limits: FlowLimits,
    /// The limits that the machine enforces.
    pub(crate) bounds: Arc<Limits>,
    /// Calls of its last run: the initial capacity of the next one's list of calls.
    pub(crate) calls: AtomicU32,
    pub(crate) on_disconnect: OnDisconnect,
    pub(crate) errors: bool,
    pub(crate) progressive: bool,
    /// It serves a method.
    pub(crate) grpc: bool,
    /// Its files mention `stream`: calls are sent when the flow waits, so that `stream(...)` finds them unsent.
    pub(crate) streams: bool,
    /// The detector of sequential waits, shared by all routes.
    pub(crate) sequential_waits: Arc<SequentialWaits>,
    /// The keys of `sign()` and `unsign()`.
    pub(crate) signing: Option<Arc<Keys>>,
    pub(crate) log: FlowLog,
    pub(crate) large_bodies: LargeBodies,
}

impl RouteFlow {
    /// The same flow before any request.
    pub(crate) fn anew(&self, sequential_waits: &Arc<SequentialWaits>, log_dropped: &Counter) -> RouteFlow {
        RouteFlow {
            index: self.index,
            name: self.name.clone(),
            flow: self.flow.clone(),
            program: self.program.clone(),
            function: self.function,
            limits: self.limits.clone(),
            bounds: self.bounds.clone(),
            calls: AtomicU32::new(1),
            on_disconnect: self.on_disconnect,
            errors: self.errors,
            progressive: self.progressive,
            grpc: self.grpc,
            streams: self.streams,
            sequential_waits: sequential_waits.clone(),
            signing: self.signing.clone(),
            log: FlowLog::new(self.limits.max_log_rate, log_dropped.clone()),
            large_bodies: LargeBodies::default(),
        }
    }
}

/// Whether the route's flow reads large bodies of requests, as far as it has run. One that does has them parsed ahead.
#[derive(Debug, Default)]
pub(crate) struct LargeBodies(AtomicU8);

const UNKNOWN: u8 = 0;
const READ: u8 = 1;
const NOT_READ: u8 = 2;

impl LargeBodies {
    /// Larger bodies of requests are large: to parse and index as many bytes takes half a millisecond.
    pub(crate) const SIZE: usize = 64 << 10;

    /// Whether they are to be parsed ahead. A flow of which nothing is known counts as one that reads them.
    pub(crate) fn are_read(&self) -> bool {
        self.0.load(Relaxed) != NOT_READ
    }

    /// A flow with a large body has ended. Once it has read one, it counts as reading them.
    pub(crate) fn record(&self, read: bool) {
        match read {
            true => self.0.store(READ, Relaxed),
            false => drop(self.0.compare_exchange(UNKNOWN, NOT_READ, Relaxed, Relaxed)),
        }
    }
}
