//! From the trees of a file to the flat ones, with every index checked.

use std::collections::VecDeque;

use super::node::{CATEGORICAL, Forest, MAX_FEATURES, Node, ZERO_IS_MISSING};
use crate::LoadError;

/// Where a split leads.
#[derive(Clone, Copy, Debug)]
pub(super) enum Child {
    /// To the split with this number.
    Split(usize),
    /// To a leaf of this value.
    Leaf(f64),
}

/// A split of a file's tree.
#[derive(Clone, Copy, Debug)]
pub(super) struct Split {
    pub feature: usize,
    /// A value goes left if it is at most this; or the number of a set that [`Builder::set`] gave.
    pub threshold: f64,
    pub flags: u32,
    pub left: Child,
    pub right: Child,
}

/// Puts trees together.
#[derive(Debug)]
pub(super) struct Builder {
    forest: Forest,
    features: usize,
    /// Bytes that the forest may take.
    room: usize,
}

impl Builder {
    /// For a model with this many features, which may take so many bytes.
    pub fn new(features: usize, room: usize) -> Result<Builder, LoadError> {
        if features == 0 {
            return Err(LoadError::broken("model", "has no features"));
        }
        if features > MAX_FEATURES {
            let what = format!("{features} features, {MAX_FEATURES} is the most");
            return Err(LoadError::unsupported("model", what));
        }
        Ok(Builder { forest: Forest { plain: true, ..Forest::default() }, features, room })
    }

    /// Adds a set of categories, given as bits, and gives its number for [`Split::threshold`]. A set may take far more room than
    /// the file that names its one great category, and a file may have any number of them.
    pub fn set(&mut self, bits: &[u32]) -> Result<f64, LoadError> {
        let bytes = self.forest.memory().saturating_add(size_of_val(bits));
        // Places in `bits` are numbered in 32 bits.
        let limit = self.room.min(u32::MAX as usize);
        if bytes > limit {
            let what = "the model's sets of categories, beside the other models".to_owned();
            return Err(LoadError::TooLarge { what, bytes: bytes as u64, limit: limit as u64, key: "models.memory" });
        }
        let start = self.forest.bits.len() as u32;
        self.forest.bits.extend_from_slice(bits);
        self.forest.sets.push((start, bits.len() as u32));
        Ok((self.forest.sets.len() - 1) as f64)
    }

    /// Adds a tree. Each split must be reached exactly once.
    pub fn tree(&mut self, splits: &[Split], root: Child) -> Result<(), LoadError> {
        let tree = self.forest.roots.len();
        let broken = |what: String| LoadError::broken(format!("tree {tree}"), what);
        let nodes = &mut self.forest.nodes;
        if nodes.len() + splits.len() * 2 + 1 > u32::MAX as usize {
            return Err(LoadError::unsupported("model", "more than 4 billion nodes"));
        }
        self.forest.roots.push(nodes.len() as u32);
        let mut seen = vec![false; splits.len()];
        let mut queue = VecDeque::from([(root, nodes.len())]);
        // A place for the root; those for children are made when their parent is placed.
        nodes.push(Node::leaf(0.0, 0));
        while let Some((child, place)) = queue.pop_front() {
            match child {
                Child::Leaf(value) => {
                    if !value.is_finite() {
                        return Err(broken(format!("a leaf's value is {value}")));
                    }
                    nodes[place] = Node::leaf(value, place as u32);
                }
                Child::Split(number) => {
                    let Some(split) = splits.get(number) else {
                        return Err(broken(format!("leads to node {number} of {}", splits.len())));
                    };
                    if std::mem::replace(&mut seen[number], true) {
                        return Err(broken(format!("node {number} is reached twice")));
                    }
                    if split.feature >= self.features {
                        let what = format!("node {number} asks feature {} of {}", split.feature, self.features);
                        return Err(broken(what));
                    }
                    let flags = split.flags;
                    if flags & (CATEGORICAL | ZERO_IS_MISSING) != 0 {
                        self.forest.plain = false;
                    }
                    let next = nodes.len();
                    nodes[place] =
                        Node { threshold: split.threshold, split: split.feature as u32 | flags, next: next as u32 };
                    nodes.extend([Node::leaf(0.0, 0); 2]);
                    queue.push_back((split.left, next));
                    queue.push_back((split.right, next + 1));
                }
            }
        }
        match seen.iter().position(|seen| !seen) {
            Some(lost) => Err(broken(format!("nothing leads to node {lost}"))),
            None => Ok(()),
        }
    }

    /// The forest, with nothing to spare.
    pub fn finish(mut self) -> Result<Forest, LoadError> {
        if self.forest.roots.is_empty() {
            return Err(LoadError::broken("model", "has no trees"));
        }
        self.forest.nodes.shrink_to_fit();
        self.forest.roots.shrink_to_fit();
        self.forest.sets.shrink_to_fit();
        self.forest.bits.shrink_to_fit();
        Ok(self.forest)
    }
}
