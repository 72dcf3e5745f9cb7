//! Methods of the builtin types, one file a type.

pub(crate) mod args;
mod bytes;
pub(crate) mod dict;
pub(crate) mod list;
pub(crate) mod set;
mod string;
mod string_split;
mod string_transform;

use crate::native::Globals;
use crate::value::ValueKind;

/// Adds all methods.
pub(crate) fn register(globals: &mut Globals) {
    globals.methods(ValueKind::Str, &string::METHODS);
    globals.methods(ValueKind::Str, &string_transform::METHODS);
    globals.methods(ValueKind::Str, &string_split::METHODS);
    globals.methods(ValueKind::Bytes, &bytes::METHODS);
    globals.methods(ValueKind::List, &list::METHODS);
    globals.methods(ValueKind::Dict, &dict::METHODS);
    globals.methods(ValueKind::Set, &set::METHODS);
}
