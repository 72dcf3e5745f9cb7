//! A route's flow, compiled.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use fanin_config::{FlowLimits, OnDisconnect};
use fanin_lang::{FunctionRef, Limits, Program};

use crate::log::FlowLog;
use crate::sequential_waits::SequentialWaits;

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
    /// The detector of sequential waits, shared by all routes.
    pub(crate) sequential_waits: Arc<SequentialWaits>,
    pub(crate) log: FlowLog,
}
