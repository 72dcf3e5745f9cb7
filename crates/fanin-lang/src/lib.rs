//! Starlark with pending values: compiler, virtual machine, values, builtins.
//!
//! A flow is a function of a [`Program`]. An [`Instance`] executes it on a [`Machine`]. The [`Host`] makes
//! its calls, and each call returns a [`PendingValue`] at once. Moving a pending value does not wait;
//! deciding on it does. Pure code that must wait is suspended as a fiber, and its caller continues.
//!
//! The way from source to a result:
//!
//! - `program`: loads files, and has them parsed, checked, compiled, run once and frozen;
//! - `compile`: from the syntax tree to register bytecode (`code`), with the analysis of purity;
//! - `format`: one layout for all flows; [`symbols`]: the names of a file, for editors;
//! - `check`, `types`: static checks and lints; type annotations;
//! - `plan`: rounds, calls and effects of a flow at worst, by abstract interpretation;
//! - [`machine`]: the interpreter, fibers, borrow tracking, the order of failures; `meter`: limits;
//! - [`value`], `pending`: values of 16 bytes, containers, JSON in place, pending values;
//! - `error`: failures, stops of operations, diagnostics; `render`: how people see them;
//! - `builtins`, `methods`, [`modules`]: the functions of the language, as [natives](native);
//! - `python_names`, `suggest`: what to write instead; [`join_points`]: a table for the documentation.
//!
//! This crate must not know of networks, upstreams, HTTP, clocks or threads. It sees calls only through
//! [`Host`] and [`HostObject`]. Nothing in it blocks, and nothing in it is `unsafe`.

mod builtins;
mod check;
mod code;
mod compile;
mod error;
mod format;
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
pub mod symbols;
pub mod testing;
mod types;
pub mod value;

pub use check::lint::lint_names;
pub use code::PointKind;
pub use error::{Diagnostic, Failure, Kind, Position, Severity, Stop, TraceFrame};
pub use format::format_source;
pub use host::{
    Args, Argument, CallDiagnostic, CallSite, Effect, Host, HostCall, HostObject, HostRef, Level, Method, NoHost,
    StaticArgs, StaticCall, StaticValue,
};
pub use machine::{Instance, Machine, Run};
pub use meter::{Limit, Limits, Usage};
pub use native::{Awaits, Changes, Ctx, Globals, NativeCode, NativeFn};
pub use pending::{CallHandle, Outcome, PendingValue, Waiter};
pub use plan::{Bound, Plan, PlannedCall, PlannedFunction, PlannedLoop, PlannedWait};
pub use program::{Checked, CoveredPoint, FunctionRef, Loaded, Loader, Program};
pub use program_order::ProgramOrder;
pub use value::capture::{Readiness, readiness};
pub use value::drop::{drop_incrementally, drop_remaining};
pub use value::part::name_origin;
pub use value::{FrozenValue, Value, ValueKind};
