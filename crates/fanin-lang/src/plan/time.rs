//! Rounds, and numbers of calls, that may depend on how many items there are.

use std::collections::BTreeMap;

/// A sum: so many, and for each item of a loop (of loops within loops, for each pair of items) so
/// many more. Everything here is an upper bound.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Sum(BTreeMap<Vec<u32>, u32>);

impl Sum {
    pub(crate) fn of(number: u32) -> Self {
        let mut sum = Self::default();
        sum.add(Vec::new(), number);
        sum
    }

    fn add(&mut self, loops: Vec<u32>, number: u32) {
        if number > 0 {
            let at = self.0.entry(loops).or_default();
            *at = at.saturating_add(number);
        }
    }

    pub(crate) fn is_zero(&self) -> bool {
        self.0.is_empty()
    }

    /// The part that depends on no loop.
    pub(crate) fn constant(&self) -> u32 {
        self.0.get(&Vec::new()).copied().unwrap_or(0)
    }

    /// The parts that do: loops, and how many for each of their items.
    pub(crate) fn per_item(&self) -> impl Iterator<Item = (&[u32], u32)> {
        self.0.iter().filter(|(loops, _)| !loops.is_empty()).map(|(loops, number)| (loops.as_slice(), *number))
    }

    pub(crate) fn plus(&self, other: &Self) -> Self {
        let mut sum = self.clone();
        other.0.iter().for_each(|(loops, number)| sum.add(loops.clone(), *number));
        sum
    }

    pub(crate) fn next(&self) -> Self {
        self.plus(&Self::of(1))
    }

    /// The larger, part by part.
    pub(crate) fn max(&mut self, other: &Self) {
        for (loops, number) in &other.0 {
            let at = self.0.entry(loops.clone()).or_default();
            *at = (*at).max(*number);
        }
    }

    /// What is left of it above another.
    pub(crate) fn above(&self, other: &Self) -> Self {
        let mut rest = Self::default();
        for (loops, number) in &self.0 {
            rest.add(loops.clone(), number.saturating_sub(other.0.get(loops).copied().unwrap_or(0)));
        }
        rest
    }

    /// Whether it is larger in any part.
    pub(crate) fn exceeds(&self, other: &Self) -> bool {
        !self.above(other).is_zero()
    }

    /// The same for each item of a loop.
    pub(crate) fn for_each(&self, id: u32) -> Self {
        let mut sum = Self::default();
        for (loops, number) in &self.0 {
            let mut loops = loops.clone();
            loops.push(id);
            loops.sort_unstable();
            sum.add(loops, *number);
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
