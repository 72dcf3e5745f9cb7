//! What the replayed requests of a thread share.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use fanin_flow::WorkerFlows;

use super::figures::Tally;
use super::ignore::Ignore;
use super::player::Player;

/// What all requests of a thread share.
pub(crate) struct Inner {
    pub(crate) flows: WorkerFlows,
    pub(crate) player: Rc<Player>,
    pub(crate) ignore: Ignore,
    pub(crate) tally: RefCell<Tally>,
    /// Counted requests that run.
    pub(super) running: Cell<usize>,
}
