//! The state of an instance.

use std::rc::Rc;

use super::Building;
use super::fiber::{Fibers, Ready};
use crate::error::Failure;
use crate::host::CallSite;
use crate::meter::Meter;
use crate::pending::PendingValue;
use crate::program_order::ProgramOrder;
use crate::value::Value;

/// Everything of an instance but its program, so that the program can be borrowed while this changes.
#[derive(Debug)]
pub(super) struct State {
    pub(super) stage: Stage,
    pub(super) fibers: Fibers,
    /// Made when something waits for the first time.
    pub(super) ready: Option<Rc<Ready>>,
    /// Fibers that have not ended.
    pub(super) live: u32,
    pub(super) meter: Meter,
    /// What few runs have.
    pub(super) rare: Option<Box<Rare>>,
    /// The most iterations of a loop in which one fiber has waited, and where it waited last.
    pub(super) sequential_waits: (u32, CallSite),
}

#[derive(Debug)]
pub(super) enum Stage {
    /// Function and first registers, until it has started. What never waits is never a fiber on the
    /// heap: it starts on the machine's stack and ends there.
    Start(u32, Box<[Value]>),
    Running,
    /// What the root returned.
    Returned(Value),
}

/// What few runs have.
#[derive(Debug, Default)]
pub(super) struct Rare {
    /// Of the failures so far the first in program order.
    pub(super) failed: Option<(ProgramOrder, Box<Failure>)>,
    /// The fiber that ran when the budget was used up: it continues before any other.
    pub(super) current: Option<u64>,
    /// Fibers that wait until a container is no longer borrowed.
    pub(super) borrowed: Vec<u64>,
    /// The root, while it waits for all other fibers.
    pub(super) barrier: Option<u64>,
    pub(super) building: Option<Box<Building>>,
    /// Where fibers waited for what, if it is recorded.
    pub(super) waits: Option<Vec<(CallSite, PendingValue)>>,
}

impl State {
    /// The queue of fibers whose awaited value has come.
    pub(super) fn ready(&mut self) -> &Rc<Ready> {
        self.ready.get_or_insert_default()
    }

    pub(super) fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }
}
