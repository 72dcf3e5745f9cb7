//! Program order across fibers, so that of several failures the earliest can be told.
//!
//! A position is a path: the place where each fiber was started within the one before it, then the
//! fiber's own tick. Ticks count only what needs telling apart (calls, starts of fibers, failures),
//! so they do not depend on when values arrive.

use std::cmp::Ordering;
use std::rc::Rc;

/// The path of a fiber: where it was started.
#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) up: Option<Rc<Path>>,
    pub(crate) at: u32,
    pub(crate) depth: u32,
}

impl Path {
    pub(crate) fn root() -> Rc<Self> {
        Rc::new(Self { up: None, at: 0, depth: 0 })
    }

    pub(crate) fn below(self: &Rc<Self>, at: u32) -> Rc<Self> {
        Rc::new(Self { up: Some(self.clone()), at, depth: self.depth + 1 })
    }
}

impl Drop for Path {
    fn drop(&mut self) {
        let mut up = self.up.take();
        while let Some(path) = up {
            match Rc::try_unwrap(path) {
                Ok(mut path) => up = path.up.take(),
                Err(_) => break,
            }
        }
    }
}

/// Where in the program something stands. Smaller is earlier. Only positions of one instance can be
/// compared.
#[derive(Clone, Debug)]
pub struct Order {
    pub(crate) path: Rc<Path>,
    pub(crate) tick: u32,
}

impl Order {
    fn list(&self) -> Vec<u32> {
        let mut list = Vec::with_capacity(self.path.depth as usize + 2);
        list.push(self.tick);
        let mut path = Some(&self.path);
        while let Some(node) = path {
            list.push(node.at);
            path = node.up.as_ref();
        }
        list.reverse();
        list
    }
}

impl PartialEq for Order {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Order {}

impl PartialOrd for Order {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Order {
    fn cmp(&self, other: &Self) -> Ordering {
        if Rc::ptr_eq(&self.path, &other.path) {
            return self.tick.cmp(&other.tick);
        }
        self.list().cmp(&other.list())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fiber_comes_between_the_ticks_around_its_start() {
        let root = Path::root();
        let child = root.below(5);
        let grandchild = child.below(2);
        let at = |path: &Rc<Path>, tick| Order { path: path.clone(), tick };
        let sorted = [at(&root, 4), at(&child, 1), at(&grandchild, 900), at(&child, 3), at(&root, 6)];
        for pair in sorted.windows(2) {
            assert!(pair[0] < pair[1], "{pair:?}");
        }
    }

    #[test]
    fn a_long_chain_of_fibers_is_dropped_without_recursion() {
        let mut path = Path::root();
        for _ in 0..1_000_000 {
            path = path.below(1);
        }
        drop(path);
    }
}
