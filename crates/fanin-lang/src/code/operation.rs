//! The operations of the bytecode.

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
    /// Counts a point of coverage.
    Pass {
        point: u16,
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
    /// Checks a type if the value is ready: on to `to` if it fits. If it is pending, the next
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
