//! Places in a running program.

use std::rc::Rc;

/// The callers of a fiber's bottom frame. Fibers share them.
pub(crate) type Callers = Option<Rc<CallerFrames>>;

/// The functions below the bottom frame of a fiber, for tracebacks.
#[derive(Debug)]
pub(crate) struct CallerFrames {
    /// Function and operation of each, outermost first.
    pub(crate) frames: Box<[(u32, u32)]>,
    pub(crate) up: Callers,
}

/// A place in a running program.
#[derive(Debug, Clone)]
pub(crate) struct ProgramPoint {
    pub(crate) code: u32,
    pub(crate) pc: u32,
    pub(crate) callers: Callers,
}
