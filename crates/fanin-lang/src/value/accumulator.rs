//! What a comprehension collects into.

use std::cell::RefCell;

use super::{Value, drop_row};
use crate::pending::PendingValue;

/// A list under construction by a comprehension.
#[derive(Debug, Default)]
pub struct Accumulator {
    pub(crate) items: RefCell<Vec<Value>>,
    /// Places in `items` where an unknown number of elements is still to come: the results of items
    /// that were suspended before it was known whether they give an element.
    pub(crate) holes: RefCell<Vec<(usize, PendingValue)>>,
}

impl Drop for Accumulator {
    fn drop(&mut self) {
        drop_row(self.items.get_mut());
    }
}
