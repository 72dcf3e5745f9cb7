//! Functions written in Rust: builtins, methods of builtin types, functions of the host's.

mod arguments;
mod context;
mod globals;

use std::fmt;

use arcstr::ArcStr;

use crate::error::Stop;
use crate::host::{Args, CallDiagnostic, StaticCall};
use crate::value::Value;

pub use context::Ctx;
pub use globals::Globals;

/// What must be ready before a native is called. Arguments that it needs are *decided*:
/// pending ones resolved, absent ones `None`, JSON scalars as the values they stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Awaits {
    /// All arguments, not what is inside them.
    All,
    /// Arguments by position whose bit is set (bit 0 is the first; the object for methods). The
    /// others, and keyword arguments, are only moved and may be pending.
    These(u32),
    /// All arguments and everything inside them (`str`, `json.encode`, `print`).
    Deep,
}

/// Name of the keyword argument with which the compiler passes the results of `key = f`. No program
/// can write it.
pub const KEYS: &str = "\0keys";

/// What a native changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changes {
    /// Nothing.
    Nothing,
    /// Its first argument, a container (`append`).
    This,
    /// Something else: its calls run in program order.
    World,
}

/// The code of a native. It is run again from its start when it stops to wait, so it must decide on
/// everything ([`Value::decide`]) before it changes anything.
pub type NativeCode = fn(&mut Ctx<'_>, Args<'_>) -> Result<Value, Stop>;

/// The same where all arguments are positional and stand in places of their own: it may take them out
/// once nothing can stop it.
pub(crate) type TakingCode = fn(&mut Ctx<'_>, &mut [Value]) -> Result<Value, Stop>;

/// A function written in Rust. Natives are `static`s.
pub struct NativeFn {
    /// Its name in messages.
    pub name: &'static str,
    /// Its code.
    pub code: NativeCode,
    /// What runs instead where it can: keeping an argument then costs no copy of it.
    pub(crate) taking: Option<TakingCode>,
    /// What it waits for.
    pub awaits: Awaits,
    /// What it changes.
    pub changes: Changes,
    /// Whether it takes `key = f` as `sorted` does. The compiler then calls `f` for each element
    /// itself and hands the results over as the argument [`KEYS`] (a list as long as the elements).
    pub keyed: bool,
    /// What it takes and gives, for checks before anything runs: `abort(status: int, message: str?)`,
    /// where `?` marks what can be left out. The language's own functions have theirs in a table.
    pub signature: Option<&'static str>,
    /// What is certainly wrong with a call as it is written, besides its types.
    pub checked: Option<fn(&StaticCall<'_>) -> Vec<CallDiagnostic>>,
}

impl NativeFn {
    /// A native that waits for all its arguments and changes nothing.
    #[must_use]
    pub const fn new(name: &'static str, code: NativeCode) -> Self {
        Self {
            name,
            code,
            taking: None,
            awaits: Awaits::All,
            changes: Changes::Nothing,
            keyed: false,
            signature: None,
            checked: None,
        }
    }

    /// The same, waiting for something else.
    #[must_use]
    pub const fn awaits(mut self, awaits: Awaits) -> Self {
        self.awaits = awaits;
        self
    }

    /// The same, with code that takes its arguments.
    #[must_use]
    pub(crate) const fn taking(mut self, taking: TakingCode) -> Self {
        self.taking = Some(taking);
        self
    }

    /// The same, changing something.
    #[must_use]
    pub const fn changes(mut self, changes: Changes) -> Self {
        self.changes = changes;
        self
    }

    /// The same, saying what it takes and gives.
    #[must_use]
    pub const fn signature(mut self, line: &'static str) -> Self {
        self.signature = Some(line);
        self
    }

    /// The same, judging calls as they are written.
    #[must_use]
    pub const fn checked(mut self, check: fn(&StaticCall<'_>) -> Vec<CallDiagnostic>) -> Self {
        self.checked = Some(check);
        self
    }

    /// The same, with `key = f` taken care of by the compiler.
    #[must_use]
    pub const fn keyed(mut self) -> Self {
        self.keyed = true;
        self
    }
}

impl fmt::Debug for NativeFn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<built-in function {}>", self.name)
    }
}

/// Bytes that an entry of a dict or set counts.
pub(crate) const ENTRY: usize = 48;

/// A text of so many bytes, written where it stays: a long one is not written twice. `fill` must write UTF-8.
pub(crate) fn filled(bytes: usize, fill: impl FnOnce(&mut [u8])) -> Value {
    if bytes == 0 {
        return Value::Str(ArcStr::new());
    }
    Value::Str(ArcStr::init_with(bytes, fill).unwrap_or_default())
}
