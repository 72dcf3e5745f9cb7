//! Starlark with values that are not there yet: compiler, machine, values, builtins.
//!
//! This crate knows nothing of calls over a network. A flow is a function of a [`Program`]; an
//! [`Instance`] runs it on a [`Machine`], and asks a [`Host`] to make calls, which give a [`PendingValue`]: a
//! value that is not there yet. Moving such a value does not wait; deciding on it does. What must wait
//! steps aside, and what does not depend on it goes on.
//!
//! - [`value`]: values, 16 bytes each, and what can be done with them;
//! - [`PendingValue`]: values that are not there yet;
//! - `lower`: from source text to bytecode, with the analysis of what is pure;
//! - `check`, `types`: what can be known to be wrong before anything runs; type annotations;
//! - `plan`: rounds, calls and effects of a flow at worst;
//! - [`machine`]: the run loop, fibers, and the order of failures;
//! - `builtins`, `methods`: functions of the language, as [natives](native).

mod builtins;
mod check;
mod code;
mod compile;
mod error;
pub mod fuzzing;
mod host;
mod intern;
pub mod join_points;
pub mod machine;
mod meter;
mod methods;
pub mod modules;
pub mod native;
mod pending;
mod plan;
mod program;
mod program_order;
mod program_point;
mod python_names;
mod render;
mod standard_library;
mod suggest;
pub mod testing;
mod types;
pub mod value;

pub use check::lint::lint_names;
pub use error::{Diagnostic, Failure, Kind, Position, Severity, Stop, TraceFrame};
pub use host::{
    Args, Argument, CallDiagnostic, CallSite, Effect, Host, HostCall, HostObject, HostRef, Level, Method, NoHost,
    StaticArgs, StaticCall, StaticValue,
};
pub use machine::{Instance, Machine, Run};
pub use meter::{Limit, Limits, Usage};
pub use native::{Awaits, Changes, Ctx, Globals, NativeCode, NativeFn};
pub use pending::{CallHandle, Outcome, PendingValue, Waiter};
pub use plan::{Bound, Plan, PlannedCall, PlannedFunction, PlannedLoop, PlannedWait};
pub use program::{Checked, FunctionRef, Loaded, Loader, Program};
pub use program_order::ProgramOrder;
pub use value::capture::{Readiness, readiness};
pub use value::drop::{drop_incrementally, drop_remaining};
pub use value::part::name_origin;
pub use value::{FrozenValue, Value, ValueKind};
