//! Programs: all flows of a configuration and what they load, compiled and frozen.

mod data;
mod link;
mod loader;

pub(crate) use data::ProgramData;
pub use data::{CoveredPoint, FunctionRef, Program};
pub use link::Checked;
pub use loader::{Loaded, Loader};
