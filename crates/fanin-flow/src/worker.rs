//! The state that all flows of a worker share.

use std::cell::{OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use fanin_lang::{HostRef, Machine};
use fanin_push::Hub;

use crate::call_record::Detail;
use crate::caller::Caller;
use crate::fair_scheduler::FairScheduler;
use crate::log::FailureLog;
use crate::merge::open::OpenBatches;

/// What flows call in place of the objects that they were compiled with.
pub(crate) trait StandIns: Send + Sync {
    /// What is called in place of an object.
    fn of<'a>(&'a self, object: &'a HostRef) -> &'a HostRef;
}

/// The state that all flows of a worker share.
pub(crate) struct Worker {
    pub(crate) machine: RefCell<Machine>,
    pub(crate) scheduler: FairScheduler,
    pub(crate) caller: Rc<dyn Caller>,
    pub(crate) open: Rc<OpenBatches>,
    /// Called with a route's index when its flow starts to compute, and with `None` when it stops.
    pub(crate) activity: Box<dyn Fn(Option<usize>)>,
    pub(crate) log: Arc<FailureLog>,
    /// How much is recorded of each flow at least.
    pub(crate) detail: Detail,
    /// The worker's subscribers. A thread of a pool has none.
    pub(crate) hub: OnceCell<Rc<Hub>>,
    /// What flows call in place of the objects that they were compiled with. A server has none.
    pub(crate) own: Option<Arc<dyn StandIns>>,
}
