//! Which statements and branches of a function have run. Only programs that are compiled for it count.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What a point stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PointKind {
    /// A statement.
    Statement,
    /// A condition that was true.
    Taken,
    /// A condition that was false.
    NotTaken,
}

/// A place that is counted each time it is passed.
#[derive(Debug)]
pub(crate) struct Point {
    pub(crate) span: (u32, u32),
    pub(crate) kind: PointKind,
    count: AtomicU64,
}

impl Point {
    pub(crate) fn new(span: (u32, u32), kind: PointKind) -> Point {
        Point { span, kind, count: AtomicU64::new(0) }
    }

    pub(crate) fn pass(&self) {
        self.count.fetch_add(1, Relaxed);
    }

    pub(crate) fn count(&self) -> u64 {
        self.count.load(Relaxed)
    }
}
