//! A route's flow, compiled.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use fanin_config::{FlowLimits, OnDisconnect};
use fanin_lang::{FunctionRef, Limits, Program};

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
    /// Those of the limits that the machine looks after.
    pub(crate) bounds: Arc<Limits>,
    /// Calls that its last run made: room for so many is made at once.
    pub(crate) calls: AtomicU32,
    pub(crate) on_disconnect: OnDisconnect,
    pub(crate) errors: bool,
    /// Lines that wait many times in a row, of all routes.
    pub(crate) sequential_waits: Arc<SequentialWaits>,
}
