//! Sets of numbers: of calls, and of containers. They are copied at each branch and seldom changed, so copies are shared.

use std::rc::Rc;

/// A set of numbers, in order. Empty ones take no memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Ids(Option<Rc<[u32]>>);

impl Ids {
    pub(super) fn new() -> Self {
        Self(None)
    }

    pub(super) fn one(id: u32) -> Self {
        Self(Some(Rc::new([id])))
    }

    fn slice(&self) -> &[u32] {
        self.0.as_deref().unwrap_or_default()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.slice().iter().copied()
    }

    pub(super) fn len(&self) -> usize {
        self.slice().len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub(super) fn first(&self) -> Option<u32> {
        self.slice().first().copied()
    }

    fn contains(&self, id: u32) -> bool {
        self.slice().binary_search(&id).is_ok()
    }

    /// Adds all of another set.
    pub(super) fn extend(&mut self, other: &Self) {
        match (&self.0, &other.0) {
            (_, None) => {}
            (None, Some(_)) => *self = other.clone(),
            (Some(own), Some(more)) if Rc::ptr_eq(own, more) || more.iter().all(|id| self.contains(*id)) => {}
            (Some(own), Some(more)) => *self = own.iter().chain(more.iter()).copied().collect(),
        }
    }

    /// What is not in another set.
    pub(super) fn without(&self, other: &Self) -> Self {
        match (&self.0, &other.0) {
            (Some(own), Some(others)) if Rc::ptr_eq(own, others) => Self(None),
            (_, None) => self.clone(),
            _ => self.iter().filter(|id| !other.contains(*id)).collect(),
        }
    }
}

impl FromIterator<u32> for Ids {
    fn from_iter<I: IntoIterator<Item = u32>>(ids: I) -> Self {
        let mut all: Vec<u32> = ids.into_iter().collect();
        all.sort_unstable();
        all.dedup();
        Self((!all.is_empty()).then(|| all.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_in_order_and_without_duplicates() {
        let mut set = Ids::from_iter([5, 1, 5]);
        set.extend(&Ids::new());
        set.extend(&Ids::from_iter([1, 3]));
        assert_eq!(set.iter().collect::<Vec<_>>(), [1, 3, 5]);
        assert_eq!((set.len(), set.first()), (3, Some(1)));
        assert_eq!(set.without(&Ids::one(3)), Ids::from_iter([1, 5]));
        assert_eq!(set.without(&set.clone()), Ids::new());
        assert!(Ids::from_iter([]).is_empty());
    }
}
