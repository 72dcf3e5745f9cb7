//! Modules of the language that are loaded by name: `load("@url", "quote")`.
//!
//! Each gives its functions, and a struct of its own name that holds them, so that `load("@url", "url")`
//! and `url.quote(...)` read well too. All of them are pure: the same arguments give the same result.
//! There is none for the clock or for chance (see `docs/language.md`).

mod base64;
mod hash;
mod url;
mod uuid;

use std::sync::Arc;

use arcstr::ArcStr;

use crate::error::Stop;
use crate::methods::args::wrong_type;
use crate::native::NativeFn;
use crate::value::{Frozen, FrozenValue, Value};

/// Names of the modules, without the `@`.
pub const NAMES: [&str; 4] = ["base64", "hash", "url", "uuid"];

pub(crate) fn functions(name: &str) -> Option<&'static [NativeFn]> {
    match name {
        "base64" => Some(&base64::FUNCTIONS),
        "hash" => Some(&hash::FUNCTIONS),
        "url" => Some(&url::FUNCTIONS),
        "uuid" => Some(&uuid::FUNCTIONS),
        _ => None,
    }
}

/// What a module gives, for a [`Loader`](crate::Loader); `None` if there is no such module.
#[must_use]
pub fn find(name: &str) -> Option<Vec<(ArcStr, FrozenValue)>> {
    let functions = functions(name)?;
    let own = |native: &'static NativeFn| {
        let short = native.name.rsplit('.').next().unwrap_or(native.name);
        (ArcStr::from(short), FrozenValue::Native(native))
    };
    let mut values: Vec<(ArcStr, FrozenValue)> = functions.iter().map(own).collect();
    let whole = Frozen::Struct(values.clone().into_boxed_slice());
    values.push((ArcStr::from(name), FrozenValue::Frozen(Arc::new(whole))));
    Some(values)
}

/// The bytes of a string or of bytes.
fn bytes<'a>(name: &str, param: &str, value: Option<&'a Value>) -> Result<&'a [u8], Stop> {
    match value {
        Some(Value::Str(text)) => Ok(text.as_bytes()),
        Some(Value::Bytes(bytes)) => Ok(bytes),
        other => Err(wrong_type(name, param, "a string or bytes", other.unwrap_or(&Value::None))),
    }
}

/// The bytes in lower-case hexadecimal.
fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |half: u8| char::from(DIGITS[usize::from(half)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}
