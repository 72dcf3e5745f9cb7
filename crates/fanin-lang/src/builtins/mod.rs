//! Global functions, one file a topic.

mod containers;
mod convert;
pub(crate) mod format;
mod json;
mod logging;
mod reflect;
mod sorting;
mod structs;

use crate::native::Globals;
use crate::value::FrozenValue;

/// Adds all global functions and modules.
pub(crate) fn register(globals: &mut Globals) {
    globals.value("None", FrozenValue::None);
    globals.value("True", FrozenValue::Bool(true));
    globals.value("False", FrozenValue::Bool(false));
    globals.functions(&containers::FUNCTIONS);
    globals.functions(&convert::FUNCTIONS);
    globals.functions(&sorting::FUNCTIONS);
    globals.functions(&reflect::FUNCTIONS);
    globals.functions(&logging::FUNCTIONS);
    globals.functions(&structs::FUNCTIONS);
    globals.value("json", json::module());
}
