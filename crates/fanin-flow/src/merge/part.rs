//! The part that a call has in a request of a batch.

use std::rc::Rc;

use super::requested_keys::{Key, RequestedKeys};

/// A part of a request: a call, and which of its keys are in it.
#[derive(Clone)]
pub(crate) struct Part {
    pub(crate) requested: Rc<RequestedKeys>,
    /// Positions among its keys; `None` for all.
    pub(super) subset: Option<Rc<[usize]>>,
}

impl Part {
    pub(crate) fn keys(&self) -> impl Iterator<Item = &Key> {
        let all = self.subset.is_none().then(|| self.requested.keys.iter());
        let some = self.subset.iter().flat_map(|some| some.iter().map(|at| &self.requested.keys[*at]));
        all.into_iter().flatten().chain(some)
    }
}
