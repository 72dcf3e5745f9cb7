//! Global functions, one file a topic.

mod collect;
mod convert;
pub(crate) mod format;
mod json;
mod order;
mod reflect;
mod report;
mod structs;

use crate::native::Globals;
use crate::value::FrozenValue;

/// Adds all global functions and modules.
pub(crate) fn register(globals: &mut Globals) {
    globals.value("None", FrozenValue::None);
    globals.value("True", FrozenValue::Bool(true));
    globals.value("False", FrozenValue::Bool(false));
    globals.functions(&collect::FUNCTIONS);
    globals.functions(&convert::FUNCTIONS);
    globals.functions(&order::FUNCTIONS);
    globals.functions(&reflect::FUNCTIONS);
    globals.functions(&report::FUNCTIONS);
    globals.functions(&structs::FUNCTIONS);
    globals.value("json", json::module());
}
