//! Compiled functions: register bytecode.
//!
//! Every operation is restartable: it first checks everything that it needs, and only then changes
//! anything. An operation that needs a pending value suspends its frame and is run again later. So a
//! suspended frame is a program counter and some registers.

mod coverage;
mod function;
mod operation;
mod reads;

pub(crate) use coverage::Point;
pub use coverage::PointKind;
pub(crate) use function::{CallInfo, ClosureInfo, Code, ItemInfo, Params, Piece, Reason, Target};
pub(crate) use operation::{Binary, Build, Comparison, Op, Reg};
pub(crate) use reads::CodeTables;
