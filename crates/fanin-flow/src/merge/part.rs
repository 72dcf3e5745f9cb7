//! The part that a call has in a request of a batch.

use std::rc::Rc;

use super::requested_keys::{Asked, Key};

/// A part of a request: a call, and which of its keys are in it.
#[derive(Clone)]
pub(crate) struct Part {
    pub(crate) asked: Rc<Asked>,
    /// Positions among its keys; `None` for all.
    pub(super) some: Option<Rc<[usize]>>,
}

impl Part {
    pub(crate) fn keys(&self) -> impl Iterator<Item = &Key> {
        let all = self.some.is_none().then(|| self.asked.keys.iter());
        let some = self.some.iter().flat_map(|some| some.iter().map(|at| &self.asked.keys[*at]));
        all.into_iter().flatten().chain(some)
    }
}
