//! Compiled functions: register bytecode.
//!
//! Every operation is restartable: it looks at everything it needs first, and only then changes
//! anything. An operation that needs a value that is not there parks its frame, and is simply run
//! again later. So a suspended frame is a program counter and some registers.

use arcstr::ArcStr;

use crate::host::{Effect, HostRef};
use crate::native::NativeFn;
use crate::types::{Annotations, TypeCheck};
use crate::value::FrozenValue;

/// A register of a frame.
pub(crate) type Reg = u16;

/// Two-operand operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Binary {
    Add,
    Subtract,
    Multiply,
    Divide,
    FloorDivide,
    Modulo,
    And,
    Or,
    Xor,
    Left,
    Right,
}

/// Comparisons that order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Comparison {
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}

/// What a comprehension builds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Build {
    List,
    Dict,
}

/// One operation, 8 bytes. `to` are positions in the function's operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    /// Constant `k` of the function.
    Const {
        dst: Reg,
        k: u16,
    },
    /// A small integer.
    Int {
        dst: Reg,
        value: i32,
    },
    None {
        dst: Reg,
    },
    Bool {
        dst: Reg,
        value: bool,
    },
    Move {
        dst: Reg,
        src: Reg,
    },
    /// A module's variable, as the program numbers them.
    Global {
        dst: Reg,
        index: u32,
    },
    SetGlobal {
        src: Reg,
        index: u32,
    },
    /// A variable shared with nested functions.
    NewCell {
        dst: Reg,
    },
    LoadCell {
        dst: Reg,
        cell: Reg,
    },
    StoreCell {
        cell: Reg,
        src: Reg,
    },
    /// Fails if the variable (name `key`) has no value yet.
    Check {
        src: Reg,
        key: u16,
    },
    Binary {
        op: Binary,
        dst: Reg,
        a: Reg,
        b: Reg,
    },
    /// `a += b`: lists, dicts and sets change in place.
    InPlace {
        op: Binary,
        dst: Reg,
        a: Reg,
        b: Reg,
    },
    /// An operator with a small integer on its right.
    BinaryInt {
        op: Binary,
        dst: Reg,
        a: Reg,
        value: i16,
    },
    Equal {
        dst: Reg,
        a: Reg,
        b: Reg,
        not: bool,
    },
    Compare {
        op: Comparison,
        dst: Reg,
        a: Reg,
        b: Reg,
    },
    In {
        dst: Reg,
        a: Reg,
        b: Reg,
        not: bool,
    },
    Not {
        dst: Reg,
        src: Reg,
    },
    Negate {
        dst: Reg,
        src: Reg,
    },
    Plus {
        dst: Reg,
        src: Reg,
    },
    Invert {
        dst: Reg,
        src: Reg,
    },
    Jump {
        to: u16,
    },
    JumpIf {
        cond: Reg,
        to: u16,
    },
    JumpIfNot {
        cond: Reg,
        to: u16,
    },
    Index {
        dst: Reg,
        of: Reg,
        key: Reg,
    },
    /// Index with a constant string.
    Key {
        dst: Reg,
        of: Reg,
        key: u16,
    },
    SetIndex {
        of: Reg,
        key: Reg,
        value: Reg,
    },
    /// Start, stop and step are in `base..base + 3`.
    Slice {
        dst: Reg,
        of: Reg,
        base: Reg,
    },
    Attribute {
        dst: Reg,
        of: Reg,
        key: u16,
    },
    List {
        dst: Reg,
        base: Reg,
        count: u16,
    },
    Tuple {
        dst: Reg,
        base: Reg,
        count: u16,
    },
    /// Keys and values alternate.
    Dict {
        dst: Reg,
        base: Reg,
        pairs: u16,
    },
    /// A dict with constant keys.
    Record {
        dst: Reg,
        shape: u16,
        base: Reg,
    },
    /// Format `format` of the function with the values from `base`.
    Format {
        dst: Reg,
        format: u16,
        base: Reg,
    },
    Call {
        dst: Reg,
        call: u16,
    },
    Closure {
        dst: Reg,
        closure: u16,
    },
    Return {
        src: Reg,
    },
    /// Checks a type if the value is there: on to `to` if it fits. If it is not there, the next
    /// operations check it aside.
    TypeNow {
        src: Reg,
        ty: u16,
        to: u16,
    },
    /// Checks a type, waiting for the value and what is inside.
    TypeWait {
        src: Reg,
        ty: u16,
    },
    /// A statement that is only a call: its value must come, and must not have failed.
    Await {
        src: Reg,
    },
    Iter {
        dst: Reg,
        src: Reg,
    },
    /// The next element, or jump.
    Next {
        iter: Reg,
        dst: Reg,
        to: u16,
    },
    /// Forgets an iterator (or anything else).
    Forget {
        reg: Reg,
    },
    Unpack {
        src: Reg,
        base: Reg,
        count: u16,
    },
    /// Start of a comprehension.
    Begin {
        acc: Reg,
    },
    Push {
        acc: Reg,
        value: Reg,
    },
    PushPair {
        acc: Reg,
        key: Reg,
        value: Reg,
    },
    /// End of an item: on to the next, or the end of a fiber that runs only this item.
    Item {
        item: u16,
        to: u16,
    },
    /// End of a comprehension.
    End {
        dst: Reg,
        acc: Reg,
        build: Build,
    },
}

const _: () = assert!(size_of::<Op>() <= 8);

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
    /// Whether an item that must wait may step aside: it changes nothing.
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
}

impl Op {
    /// Calls `visit` for each register that the operation reads.
    pub(crate) fn reads(&self, code: &CodeTables<'_>, visit: &mut dyn FnMut(Reg)) {
        let mut range = |base: Reg, count: u16| (base..base + count).for_each(&mut *visit);
        match *self {
            Self::Const { .. }
            | Self::Int { .. }
            | Self::None { .. }
            | Self::Bool { .. }
            | Self::Global { .. }
            | Self::NewCell { .. }
            | Self::Jump { .. }
            | Self::Forget { .. }
            | Self::Item { .. }
            | Self::Begin { .. } => {}
            Self::Move { src, .. }
            | Self::SetGlobal { src, .. }
            | Self::Check { src, .. }
            | Self::Not { src, .. }
            | Self::Negate { src, .. }
            | Self::Plus { src, .. }
            | Self::Invert { src, .. }
            | Self::Return { src }
            | Self::Await { src }
            | Self::TypeNow { src, .. }
            | Self::TypeWait { src, .. }
            | Self::Iter { src, .. }
            | Self::Unpack { src, .. } => visit(src),
            Self::LoadCell { cell, .. } => visit(cell),
            Self::StoreCell { cell, src } => {
                visit(cell);
                visit(src);
            }
            Self::Binary { a, b, .. }
            | Self::InPlace { a, b, .. }
            | Self::Equal { a, b, .. }
            | Self::Compare { a, b, .. }
            | Self::In { a, b, .. } => {
                visit(a);
                visit(b);
            }
            Self::BinaryInt { a, .. } => visit(a),
            Self::JumpIf { cond, .. } | Self::JumpIfNot { cond, .. } => visit(cond),
            Self::Index { of, key, .. } => {
                visit(of);
                visit(key);
            }
            Self::Key { of, .. } | Self::Attribute { of, .. } => visit(of),
            Self::SetIndex { of, key, value } => {
                visit(of);
                visit(key);
                visit(value);
            }
            Self::Slice { of, base, .. } => {
                range(base, 3);
                visit(of);
            }
            Self::List { base, count, .. } | Self::Tuple { base, count, .. } => range(base, count),
            Self::Dict { base, pairs, .. } => range(base, pairs * 2),
            Self::Record { shape, base, .. } => range(base, code.shapes[usize::from(shape)].len() as u16),
            Self::Format { format, base, .. } => {
                let count = code.formats[usize::from(format)]
                    .iter()
                    .filter(|piece| matches!(piece, Piece::Str(_) | Piece::Repr(_)))
                    .count();
                range(base, count as u16);
            }
            Self::Call { call, .. } => {
                let call = &code.calls[usize::from(call)];
                range(call.base, call.positional + call.names.len() as u16);
                match &call.target {
                    Target::Value(reg) | Target::Method { of: reg, .. } => visit(*reg),
                    Target::Global(_) | Target::Known(_) | Target::Native(_) | Target::Host { .. } => {}
                }
                call.star.iter().chain(&call.star_star).for_each(|reg| visit(*reg));
            }
            Self::Closure { closure, .. } => {
                let closure = &code.closures[usize::from(closure)];
                range(closure.defaults, closure.default_count);
                closure.captures.iter().for_each(|reg| visit(*reg));
            }
            Self::Next { iter, .. } => visit(iter),
            Self::Push { acc, value } => {
                visit(acc);
                visit(value);
            }
            Self::PushPair { acc, key, value } => {
                visit(acc);
                visit(key);
                visit(value);
            }
            Self::End { acc, .. } => visit(acc),
        }
    }
}

/// The tables that [`Op::reads`] looks into.
pub(crate) struct CodeTables<'a> {
    pub(crate) calls: &'a [CallInfo],
    pub(crate) closures: &'a [ClosureInfo],
    pub(crate) shapes: &'a [Box<[ArcStr]>],
    pub(crate) formats: &'a [Box<[Piece]>],
}
