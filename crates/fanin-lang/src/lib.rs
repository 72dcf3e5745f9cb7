//! Starlark with values that are not there yet: compiler, machine, values, builtins.
//!
//! This crate knows nothing of calls over a network. A flow is a function of a [`Program`]; an
//! [`Instance`] runs it on a [`Machine`], and asks a [`Host`] to make calls, which give a [`Slot`]: a
//! value that is not there yet. Moving such a value does not wait; deciding on it does. What must wait
//! steps aside, and what does not depend on it goes on.
//!
//! - [`value`]: values, 16 bytes each, and what can be done with them;
//! - [`Slot`]: values that are not there yet;
//! - `lower`: from source text to bytecode, with the analysis of what is pure;
//! - `check`, `types`: what can be known to be wrong before anything runs; type annotations;
//! - `plan`: rounds, calls and effects of a flow at worst;
//! - [`machine`]: the run loop, fibers, and the order of failures;
//! - `builtins`, `methods`: functions of the language, as [natives](native).

mod builtins;
mod check;
mod code;
mod error;
mod explain;
pub mod fuzzing;
mod hint;
mod host;
mod intern;
mod lower;
pub mod machine;
mod methods;
pub mod modules;
pub mod native;
mod order;
mod plan;
mod program;
mod slot;
pub mod testing;
mod types;
pub mod value;
pub mod waits;

pub use check::lint::lint_names;
pub use error::{Diagnostic, Failure, Kind, Position, Severity, Stop, TraceFrame};
pub use host::{
    Args, Argument, Effect, Host, HostCall, HostObject, HostRef, Level, Method, NoHost, Problem, Shape, Site, Written,
    WrittenCall,
};
pub use machine::{Instance, Limit, Limits, Machine, Run, Usage};
pub use native::{Changes, Ctx, Globals, NativeCode, NativeFn, Waits};
pub use order::Order;
pub use plan::{Bound, Plan, PlannedCall, PlannedFunction, PlannedLoop, PlannedWait};
pub use program::{Checked, FunctionRef, Loaded, Loader, Program};
pub use slot::{Outcome, Slot, SlotSource, Waiter};
pub use value::capture::{Deep, deep};
pub use value::drop::{drop_in_parts, drop_rest};
pub use value::part::name_origin;
pub use value::{FrozenValue, Value, ValueKind};
