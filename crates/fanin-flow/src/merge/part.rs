//! The part of a call in one request of a batch.

use std::rc::Rc;

use super::requested_keys::{Key, RequestedKeys};

/// A call, and which of its keys are in the request.
#[derive(Clone)]
pub(crate) struct Part {
    pub(crate) requested: Rc<RequestedKeys>,
    /// Indices of its keys; `None` for all.
    pub(super) subset: Option<Rc<[usize]>>,
}

impl Part {
    pub(crate) fn keys(&self) -> impl Iterator<Item = &Key> {
        let all = self.subset.is_none().then(|| self.requested.keys.iter());
        let some = self.subset.iter().flat_map(|some| some.iter().map(|at| &self.requested.keys[*at]));
        all.into_iter().flatten().chain(some)
    }
}
