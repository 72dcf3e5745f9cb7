//! Lists, sets and tuples.

use std::cell::{Cell, Ref, RefCell, RefMut};

use smallvec::SmallVec;

use super::drop::{drop_row, drop_values, is_long, is_nested};
use super::{Map, Value};
use crate::error::{Kind, Stop};

/// Why a mutable container must not be changed now.
#[derive(Debug, Default)]
pub struct MutationGuard {
    /// Suspended fibers that can still see it.
    pub(crate) borrowed: Cell<u32>,
    /// Loops that are running over it.
    pub(crate) iterating: Cell<u32>,
    /// Known to the instance, which takes cycles apart at the end.
    pub(crate) tracked: Cell<bool>,
}

impl MutationGuard {
    /// Whether it may be changed now.
    #[inline]
    pub(crate) fn check(&self, what: &str) -> Result<(), Stop> {
        // The loop may be one of the fiber that it is borrowed to: it is over when that has ended.
        if self.borrowed.get() != 0 {
            return Err(Stop::Borrowed);
        }
        if self.iterating.get() != 0 {
            return Err(Stop::fail(Kind::Frozen, format!("this {what} cannot be changed while a loop runs over it")));
        }
        Ok(())
    }
}

/// A list.
#[derive(Debug, Default)]
pub struct List {
    pub(crate) guard: MutationGuard,
    items: RefCell<Vec<Value>>,
}

impl List {
    /// A new list.
    #[must_use]
    pub fn new(items: Vec<Value>) -> Self {
        Self { guard: MutationGuard::default(), items: RefCell::new(items) }
    }

    /// The elements. Let go of them before anything else runs.
    #[must_use]
    #[inline]
    pub fn items(&self) -> Ref<'_, Vec<Value>> {
        self.items.borrow()
    }

    /// The elements, to change them.
    ///
    /// # Errors
    /// While a loop runs over it, or a waiting fiber can see it.
    #[inline]
    pub fn edit(&self) -> Result<RefMut<'_, Vec<Value>>, Stop> {
        self.guard.check("list")?;
        Ok(self.items.borrow_mut())
    }

    pub(crate) fn take(&self) -> Vec<Value> {
        self.items.try_borrow_mut().map(|mut items| std::mem::take(&mut *items)).unwrap_or_default()
    }
}

impl Drop for List {
    fn drop(&mut self) {
        drop_row(self.items.get_mut());
    }
}

/// A set: a dict's keys.
#[derive(Debug, Default)]
pub struct Set {
    pub(crate) guard: MutationGuard,
    items: RefCell<Map>,
}

impl Set {
    /// A new set of the keys of `items`.
    #[must_use]
    pub fn new(items: Map) -> Self {
        Self { guard: MutationGuard::default(), items: RefCell::new(items) }
    }

    /// The elements as keys. Let go of them before anything else runs.
    #[must_use]
    pub fn items(&self) -> Ref<'_, Map> {
        self.items.borrow()
    }

    /// The elements, to change them.
    ///
    /// # Errors
    /// While a loop runs over it, or a waiting fiber can see it.
    pub fn edit(&self) -> Result<RefMut<'_, Map>, Stop> {
        self.guard.check("set")?;
        Ok(self.items.borrow_mut())
    }
}

/// A tuple. Pairs are the most common, so they take no room of their own.
#[derive(Debug, Default)]
pub struct Tuple(SmallVec<[Value; 2]>);

impl Tuple {
    /// A new tuple.
    #[must_use]
    pub fn new(items: SmallVec<[Value; 2]>) -> Self {
        Self(items)
    }
}

impl std::ops::Deref for Tuple {
    type Target = [Value];
    fn deref(&self) -> &[Value] {
        &self.0
    }
}

impl Drop for Tuple {
    fn drop(&mut self) {
        if is_long(self.0.len()) {
            drop_row(&mut std::mem::take(&mut self.0).into_vec());
        } else if self.0.iter().any(is_nested) {
            drop_values(self.0.iter_mut().map(std::mem::take));
        }
    }
}
