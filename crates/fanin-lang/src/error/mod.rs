//! What can go wrong: at load ([`Diagnostic`]) and while a flow runs ([`Failure`]).

mod diagnostic;
mod failure;
mod source_position;
mod stop;

pub use diagnostic::{Diagnostic, Severity};
pub use failure::{Failure, Kind, TraceFrame};
pub use source_position::Position;
pub(crate) use source_position::{line_column, position};
pub use stop::Stop;
