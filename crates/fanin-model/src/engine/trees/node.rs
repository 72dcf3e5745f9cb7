//! Flat trees and the walk through them.
//!
//! All trees of a model stand in one list of 16-byte nodes, each tree level by level, so that the top levels, which every
//! row passes, share cache lines and a node's two children are neighbours: the right one's place is the left one's plus one.
//! A leaf leads to itself, so trees of different depth are walked side by side without a branch on whether one has ended.
//! Walking several trees at once hides the latency of each step's two dependent loads.

/// Bits of [`Node::split`] that number the feature.
const FEATURE: u32 = (1 << 24) - 1;
/// The node is a leaf: `threshold` is its value, `next` its own place.
const LEAF: u32 = 1 << 31;
/// `threshold` numbers a set of categories.
pub(super) const CATEGORICAL: u32 = 1 << 30;
/// Where a missing value goes.
pub(super) const DEFAULT_LEFT: u32 = 1 << 29;
/// NaN is missing (otherwise it counts as zero).
pub(super) const NAN_IS_MISSING: u32 = 1 << 28;
/// Zero is missing.
pub(super) const ZERO_IS_MISSING: u32 = 1 << 27;
/// Categories of the set go right (otherwise left).
pub(super) const SET_GOES_RIGHT: u32 = 1 << 26;

/// Features that a node can number.
pub(super) const MAX_FEATURES: usize = FEATURE as usize + 1;
/// What LightGBM takes for zero: its constant is a single-precision one.
pub(super) const ZERO: f64 = 1e-35_f32 as f64;
/// Trees walked side by side.
const LANES: usize = 8;

/// A split or a leaf.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    /// A value goes left if it is at most this. A leaf's value; a set's number.
    pub threshold: f64,
    /// The feature and the flags above.
    pub split: u32,
    /// The left child's index among all nodes; the right child follows it.
    pub next: u32,
}

const _: () = assert!(size_of::<Node>() == 16);

/// All trees of a model.
#[derive(Debug, Default)]
pub(super) struct Forest {
    pub nodes: Vec<Node>,
    /// Place of each tree's root.
    pub roots: Vec<u32>,
    /// Sets of categories: where each begins in `bits`, and how many words it has.
    pub sets: Vec<(u32, u32)>,
    pub bits: Vec<u32>,
    /// No node is categorical or takes zero for missing: rows without NaN need nothing but comparisons.
    pub plain: bool,
}

impl Node {
    pub fn leaf(value: f64, own: u32) -> Node {
        Node { threshold: value, split: LEAF, next: own }
    }
}

impl Forest {
    pub fn memory(&self) -> usize {
        self.nodes.capacity() * size_of::<Node>()
            + self.roots.capacity() * 4
            + self.sets.capacity() * 8
            + self.bits.capacity() * 4
    }

    /// Gives the leaf's value of each tree for a row, in the order of the trees. The row has all of the model's features.
    #[inline]
    pub fn walk(&self, row: &[f64], has_nan: bool, mut leaf: impl FnMut(usize, f64)) {
        if self.plain && !has_nan {
            self.walk_with(|node, row| row[(node.split & FEATURE) as usize] <= node.threshold, row, &mut leaf);
        } else {
            self.walk_with(|node, row| self.goes_left(node, row[(node.split & FEATURE) as usize]), row, &mut leaf);
        }
    }

    #[inline(always)]
    fn walk_with(&self, left: impl Fn(&Node, &[f64]) -> bool, row: &[f64], leaf: &mut impl FnMut(usize, f64)) {
        let nodes = &self.nodes[..];
        let (groups, rest) = self.roots.as_chunks::<LANES>();
        for (group, roots) in groups.iter().enumerate() {
            let mut at = *roots;
            loop {
                let mut all = u32::MAX;
                for place in &mut at {
                    let node = &nodes[*place as usize];
                    // A leaf's step is always to the left, which is itself.
                    *place = node.next + (u32::from(!left(node, row)) & !(node.split >> 31));
                    all &= node.split;
                }
                if all & LEAF != 0 {
                    break;
                }
            }
            for (lane, place) in at.iter().enumerate() {
                leaf(group * LANES + lane, nodes[*place as usize].threshold);
            }
        }
        for (tree, root) in rest.iter().enumerate() {
            let mut node = &nodes[*root as usize];
            while node.split & LEAF == 0 {
                node = &nodes[(node.next + u32::from(!left(node, row))) as usize];
            }
            leaf(groups.len() * LANES + tree, node.threshold);
        }
    }

    /// The whole rule: missing values and categories.
    fn goes_left(&self, node: &Node, value: f64) -> bool {
        let flags = node.split;
        if flags & CATEGORICAL != 0 && flags & LEAF == 0 {
            return self.category_goes_left(node, value);
        }
        let value = if value.is_nan() {
            if flags & NAN_IS_MISSING != 0 {
                return flags & DEFAULT_LEFT != 0;
            }
            0.0
        } else {
            value
        };
        if flags & ZERO_IS_MISSING != 0 && value.abs() <= ZERO {
            return flags & DEFAULT_LEFT != 0;
        }
        value <= node.threshold
    }

    fn category_goes_left(&self, node: &Node, value: f64) -> bool {
        let flags = node.split;
        if value.is_nan() {
            return flags & DEFAULT_LEFT != 0;
        }
        // `as` cuts the fraction off, as both libraries do; what is out of range is in no set either way.
        let category = value as i64;
        let below = if flags & SET_GOES_RIGHT != 0 { value < 0.0 } else { category < 0 };
        let is_in = !below && {
            let (start, words) = self.sets[node.threshold as usize];
            let word = category as u64 / 32;
            word < u64::from(words) && self.bits[start as usize + word as usize] >> (category % 32) & 1 == 1
        };
        is_in != (flags & SET_GOES_RIGHT != 0)
    }
}
