//! Program order across fibers, so that of several failures the earliest can be reported.
//!
//! A position is a path: the place where each fiber was started within the one before it, then the
//! fiber's own tick. Ticks count only what needs telling apart (calls, starts of fibers, failures),
//! so they do not depend on when values arrive.

use std::cmp::Ordering;
use std::rc::Rc;

/// The path of a fiber: where it was started. The root's is nothing, so that most flows make none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Path(Option<Rc<Node>>);

#[derive(Debug)]
struct Node {
    up: Path,
    at: u32,
    depth: u32,
}

impl Path {
    pub(crate) const fn root() -> Self {
        Self(None)
    }

    pub(crate) fn below(&self, at: u32) -> Self {
        let depth = self.0.as_ref().map_or(0, |node| node.depth) + 1;
        Self(Some(Rc::new(Node { up: self.clone(), at, depth })))
    }

    fn same(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (None, None) => true,
            (Some(a), Some(b)) => Rc::ptr_eq(a, b),
            _ => false,
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let mut up = self.up.0.take();
        while let Some(node) = up {
            match Rc::try_unwrap(node) {
                Ok(mut node) => up = node.up.0.take(),
                Err(_) => break,
            }
        }
    }
}

/// Where in the program something is. Smaller is earlier. Only positions of one instance can be
/// compared.
#[derive(Clone, Debug)]
pub struct ProgramOrder {
    pub(crate) path: Path,
    pub(crate) tick: u32,
}

impl ProgramOrder {
    fn list(&self) -> Vec<u32> {
        let mut path = &self.path.0;
        let mut list = Vec::with_capacity(path.as_ref().map_or(0, |node| node.depth) as usize + 1);
        list.push(self.tick);
        while let Some(node) = path {
            list.push(node.at);
            path = &node.up.0;
        }
        list.reverse();
        list
    }
}

impl PartialEq for ProgramOrder {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for ProgramOrder {}

impl PartialOrd for ProgramOrder {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ProgramOrder {
    fn cmp(&self, other: &Self) -> Ordering {
        if self.path.same(&other.path) {
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
        let at = |path: &Path, tick| ProgramOrder { path: path.clone(), tick };
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
