//! Symbolic bounds: rounds and numbers of calls that depend on how many items a loop has.

use std::collections::BTreeMap;
use std::rc::Rc;

/// A sum: so many, and for each item of a loop (of loops within loops, for each pair of items) so
/// many more. Everything here is an upper bound.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    constant: u32,
    /// None of them zero; `None` instead of an empty map. Copies share it.
    per_item: Option<Rc<BTreeMap<Vec<u32>, u32>>>,
}

impl Sum {
    pub(crate) fn of(number: u32) -> Self {
        Self { constant: number, per_item: None }
    }

    fn add(&mut self, loops: &[u32], number: u32) {
        if number > 0 {
            let parts = Rc::make_mut(self.per_item.get_or_insert_default());
            let at = parts.entry(loops.to_vec()).or_default();
            *at = at.saturating_add(number);
        }
    }

    pub(crate) fn is_zero(&self) -> bool {
        self.constant == 0 && self.per_item.is_none()
    }

    /// The part that depends on no loop.
    pub(crate) fn constant(&self) -> u32 {
        self.constant
    }

    /// The parts that do: loops, and how many for each of their items.
    pub(crate) fn per_item(&self) -> impl Iterator<Item = (&[u32], u32)> {
        self.per_item.iter().flat_map(|parts| parts.iter()).map(|(loops, number)| (loops.as_slice(), *number))
    }

    pub(crate) fn plus(&self, other: &Self) -> Self {
        let mut sum = self.clone();
        sum.constant = sum.constant.saturating_add(other.constant);
        other.per_item().for_each(|(loops, number)| sum.add(loops, number));
        sum
    }

    pub(crate) fn next(&self) -> Self {
        self.plus(&Self::of(1))
    }

    /// The larger, part by part.
    pub(crate) fn max(&mut self, other: &Self) {
        self.constant = self.constant.max(other.constant);
        match (&self.per_item, &other.per_item) {
            (_, None) => {}
            (None, more) => self.per_item.clone_from(more),
            (Some(own), Some(more)) if Rc::ptr_eq(own, more) => {}
            (Some(_), Some(more)) => {
                let parts = Rc::make_mut(self.per_item.get_or_insert_default());
                for (loops, number) in more.iter() {
                    let at = parts.entry(loops.clone()).or_default();
                    *at = (*at).max(*number);
                }
            }
        }
    }

    fn parts_above<'s>(&'s self, other: &'s Self) -> impl Iterator<Item = (&'s [u32], u32)> {
        self.per_item().filter_map(|(loops, number)| {
            let before = other.per_item.as_ref().and_then(|parts| parts.get(loops));
            let more = number.saturating_sub(before.copied().unwrap_or(0));
            (more > 0).then_some((loops, more))
        })
    }

    /// What is left of it above another.
    pub(crate) fn above(&self, other: &Self) -> Self {
        let constant = self.constant.saturating_sub(other.constant);
        let parts: BTreeMap<Vec<u32>, u32> =
            self.parts_above(other).map(|(loops, more)| (loops.to_vec(), more)).collect();
        Self { constant, per_item: (!parts.is_empty()).then(|| Rc::new(parts)) }
    }

    /// Whether it is larger in any part.
    pub(crate) fn exceeds(&self, other: &Self) -> bool {
        self.constant > other.constant || self.parts_above(other).next().is_some()
    }

    /// The same for each item of a loop.
    pub(crate) fn for_each(&self, id: u32) -> Self {
        let mut sum = Self::default();
        sum.add(&[id], self.constant);
        for (loops, number) in self.per_item() {
            let mut loops = loops.to_vec();
            loops.push(id);
            loops.sort_unstable();
            sum.add(&loops, number);
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_bounds() {
        let two_each = Sum::of(2).for_each(7);
        let mut most = Sum::of(3);
        most.max(&two_each.plus(&Sum::of(1)));
        assert_eq!(most.constant(), 3);
        assert_eq!(most.per_item().collect::<Vec<_>>(), [(&[7][..], 2)]);
        assert!(most.exceeds(&two_each) && !two_each.exceeds(&most));
        assert_eq!(most.above(&two_each), Sum::of(3));
        assert_eq!(two_each.for_each(3).per_item().next(), Some((&[3, 7][..], 2)));
    }
}
