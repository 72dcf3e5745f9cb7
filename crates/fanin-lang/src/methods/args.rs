//! Reading arguments of builtin functions and methods.

use crate::error::{Kind, Stop};
use crate::host::Args;
use crate::value::view::{Iter, type_name};
use crate::value::{Frozen, Value};

#[cold]
pub(crate) fn wrong_type(name: &str, param: &str, wanted: &str, got: &Value) -> Stop {
    Stop::fail(Kind::Type, format!("{name}() needs {wanted} as {param}, got {}", type_name(got)))
}

/// The string whose method is called.
pub(crate) fn this<'a>(args: Args<'a>) -> Result<&'a str, Stop> {
    match args.pos.first() {
        Some(Value::Str(text)) => Ok(text),
        other => Err(wrong_type("method", "object", "a string", other.unwrap_or(&Value::None))),
    }
}

/// A string argument.
pub(crate) fn text<'a>(name: &str, param: &str, value: &'a Value) -> Result<&'a str, Stop> {
    match value {
        Value::Str(text) => Ok(text),
        other => Err(wrong_type(name, param, "a string", other)),
    }
}

/// A string argument that may be left out or `None`.
pub(crate) fn optional_text<'a>(name: &str, param: &str, value: Option<&'a Value>) -> Result<Option<&'a str>, Stop> {
    match value {
        None | Some(Value::None) => Ok(None),
        Some(value) => text(name, param, value).map(Some),
    }
}

/// An integer argument of 64 bits; larger ones are held to that range.
pub(crate) fn int(name: &str, param: &str, value: &Value) -> Result<i64, Stop> {
    match value {
        Value::Int(int) => Ok(*int),
        Value::BigInt(int) => Ok(if int.sign() == num_bigint::Sign::Minus { i64::MIN } else { i64::MAX }),
        other => Err(wrong_type(name, param, "an int", other)),
    }
}

/// An integer argument that may be left out or `None`.
pub(crate) fn optional_int(name: &str, param: &str, value: Option<&Value>) -> Result<Option<i64>, Stop> {
    match value {
        None | Some(Value::None) => Ok(None),
        Some(value) => int(name, param, value).map(Some),
    }
}

/// Whether this is a tuple, a module's too.
pub(crate) fn is_tuple(value: &Value) -> bool {
    match value {
        Value::Tuple(_) => true,
        Value::Frozen(frozen) => matches!(**frozen, Frozen::Tuple(_)),
        _ => false,
    }
}

/// The elements of anything that can be looped over, one by one and not copied. They may be pending.
/// Whoever takes them charges a step for each: a search may end at the first.
pub(crate) fn iterate(value: &Value) -> Result<impl Iterator<Item = Value> + use<>, Stop> {
    let iter = Iter::of(&value.decide()?)?;
    Ok(std::iter::from_fn(move || iter.next()))
}

/// Stops unless the elements of a list or tuple are ready. A native runs again from its start each
/// time it has waited: one that needs all elements asks this before it charges for anything, so that
/// what it is charged does not depend on the order in which they come.
pub(crate) fn require_elements(value: &Value) -> Result<(), Stop> {
    let pending = |element: &Value| match element {
        Value::Pending(_) => element.decide().map(drop),
        _ => Ok(()),
    };
    match value {
        Value::List(list) => list.items().iter().try_for_each(pending),
        Value::Tuple(tuple) => tuple.iter().try_for_each(pending),
        // Everything else holds nothing pending.
        _ => Ok(()),
    }
}
