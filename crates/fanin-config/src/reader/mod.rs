//! Reading the parsed TOML: typed values with their positions; every error is recorded and reading goes on.

mod item;
mod json;
mod lists;
mod scalars;
mod session;
mod suggest;
mod table;
mod tables;

pub(crate) use item::{Item, Located};
pub(crate) use session::Reader;
pub(crate) use table::{Table, replace};
pub(crate) use tables::{TableOrText, TableOrWord};
