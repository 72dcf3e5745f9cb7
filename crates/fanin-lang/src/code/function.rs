//! A compiled function and the tables that its operations refer to.

use arcstr::ArcStr;

use super::coverage::Point;
use super::operation::{Op, Reg};
use crate::host::{Effect, HostRef};
use crate::native::NativeFn;
use crate::types::{Annotations, TypeCheck};
use crate::value::FrozenValue;

/// What a call calls.
#[derive(Debug)]
pub(crate) enum Target {
    /// The value of a register.
    Value(Reg),
    /// A module's variable.
    Global(u32),
    /// Something known when the call was compiled.
    Known(FrozenValue),
    Native(&'static NativeFn),
    /// A method of the value of a register; `id` among the methods of builtin types.
    Method {
        of: Reg,
        name: ArcStr,
        id: Option<u16>,
    },
    /// A method of a host object.
    Host {
        object: HostRef,
        method: u32,
        effect: Effect,
    },
}

/// A call: arguments by position from `base`, then keyword arguments.
#[derive(Debug)]
pub(crate) struct CallInfo {
    pub(crate) target: Target,
    pub(crate) base: Reg,
    pub(crate) positional: u16,
    pub(crate) names: Box<[ArcStr]>,
    /// `*args` and `**kwargs` of the call.
    pub(crate) star: Option<Reg>,
    pub(crate) star_star: Option<Reg>,
    /// The call may change something, and an operation that waits for its success follows.
    pub(crate) awaited: bool,
}

impl CallInfo {
    pub(crate) fn simple(&self) -> bool {
        self.star.is_none() && self.star_star.is_none()
    }
}

/// A nested function about to be made.
#[derive(Debug)]
pub(crate) struct ClosureInfo {
    pub(crate) code: u32,
    /// Default values are in `defaults..defaults + default_count`.
    pub(crate) defaults: Reg,
    pub(crate) default_count: u16,
    /// Registers captured, in the order of the function's captured registers.
    pub(crate) captures: Box<[Reg]>,
}

/// Part of a format.
#[derive(Debug)]
pub(crate) enum Piece {
    Text(String),
    Str(u16),
    Repr(u16),
}

/// One `for` of a comprehension.
#[derive(Debug)]
pub(crate) struct ItemInfo {
    /// Its operations: from the first after `Next` up to `Item`.
    pub(crate) start: u16,
    pub(crate) end: u16,
    /// From here on the item gives exactly one element.
    pub(crate) element: u16,
    pub(crate) acc: Reg,
    /// Registers that the item reads.
    pub(crate) live: Box<[Reg]>,
    /// Whether an item that must wait may be suspended: it changes nothing.
    pub(crate) pure: bool,
}

/// Parameters of a function. Registers hold, in this order: parameters by position, keyword-only
/// ones, `*args`, `**kwargs`, captured variables, variables.
#[derive(Debug, Default)]
pub(crate) struct Params {
    pub(crate) names: Box<[ArcStr]>,
    /// How many of `names` can be given by position.
    pub(crate) positional: u16,
    /// How many of those cannot be given by name.
    pub(crate) positional_only: u16,
    /// For each of `names` its place among the default values.
    pub(crate) defaults: Box<[Option<u16>]>,
    pub(crate) args: bool,
    pub(crate) kwargs: bool,
}

impl Params {
    /// Registers that they take.
    pub(crate) fn registers(&self) -> usize {
        self.names.len() + usize::from(self.args) + usize::from(self.kwargs)
    }

    /// Whether a call with `count` arguments by position needs nothing but moving them.
    pub(crate) fn fits(&self, count: usize) -> bool {
        !self.args && !self.kwargs && self.names.len() == count && usize::from(self.positional) == count
    }
}

/// Why something is not pure.
#[derive(Debug, Clone)]
pub(crate) struct Reason {
    pub(crate) pc: u16,
    pub(crate) text: String,
}

/// A compiled function.
#[derive(Debug, Default)]
pub(crate) struct Code {
    pub(crate) name: ArcStr,
    pub(crate) file: u32,
    pub(crate) ops: Box<[Op]>,
    /// For each operation its place in the file.
    pub(crate) spans: Box<[(u32, u32)]>,
    pub(crate) consts: Box<[FrozenValue]>,
    pub(crate) keys: Box<[ArcStr]>,
    pub(crate) calls: Box<[CallInfo]>,
    pub(crate) closures: Box<[ClosureInfo]>,
    pub(crate) shapes: Box<[Box<[ArcStr]>]>,
    pub(crate) formats: Box<[Box<[Piece]>]>,
    pub(crate) items: Box<[ItemInfo]>,
    pub(crate) params: Params,
    /// What the type operations check.
    pub(crate) types: Box<[TypeCheck]>,
    /// Its annotations, if it has any.
    pub(crate) annotations: Option<Box<Annotations>>,
    pub(crate) registers: u16,
    /// Variables that only ever hold what the function made itself, so that it may change them.
    pub(crate) own: Box<[Reg]>,
    /// Changes neither a backend nor a value that it did not make, and is in no cycle of calls.
    pub(crate) pure: bool,
    /// May make a call that changes something, as far as is known.
    pub(crate) writes: bool,
    /// Why it is not pure.
    pub(crate) reasons: Vec<Reason>,
    /// What is counted, if anything is.
    pub(crate) points: Box<[Point]>,
}
