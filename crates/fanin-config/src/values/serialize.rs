//! Serialisation of values in the form of the file, for `/config` and the defaults of the schema.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use indexmap::IndexMap;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use url::Url;

use crate::values::duration::format_duration;
use crate::values::secret::{MASK, is_secret, masked_url};
use crate::values::size::format_size;

pub(crate) fn display<T: Display, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(value)
}

pub(crate) fn optional_display<T: Display, S: Serializer>(value: &Option<T>, to: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => to.collect_str(value),
        None => to.serialize_none(),
    }
}

pub(crate) fn optional_header<S: Serializer>(value: &Option<HeaderValue>, to: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => to.collect_str(&String::from_utf8_lossy(value.as_bytes())),
        None => to.serialize_none(),
    }
}

pub(crate) fn list<T: Display, S: Serializer>(values: &[T], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(values.iter().map(ToString::to_string))
}

pub(crate) fn optional_list<T: Display, S: Serializer>(values: &Option<Vec<T>>, to: S) -> Result<S::Ok, S::Error> {
    list(values.as_deref().unwrap_or_default(), to)
}

/// A list of one is written as its element.
pub(crate) fn one_or_more<T: Display, S: Serializer>(values: &[T], to: S) -> Result<S::Ok, S::Error> {
    match values {
        [one] => display(one, to),
        values => list(values, to),
    }
}

pub(crate) fn or_off<T: Display, S: Serializer>(value: &Option<T>, to: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => to.collect_str(value),
        None => to.serialize_str("off"),
    }
}

pub(crate) fn count_or_off<S: Serializer>(value: &Option<usize>, to: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => to.serialize_u64(*value as u64),
        None => to.serialize_str("off"),
    }
}

pub(crate) fn level_or_off<S: Serializer>(value: &Option<u8>, to: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => to.serialize_u8(*value),
        None => to.serialize_str("off"),
    }
}

pub(crate) fn duration<S: Serializer>(value: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&format_duration(*value))
}

pub(crate) fn optional_duration<S: Serializer>(value: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => duration(value, to),
        None => to.serialize_none(),
    }
}

pub(crate) fn optional_duration_or_off<S: Serializer>(value: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => duration(value, to),
        None => to.serialize_str("off"),
    }
}

pub(crate) fn size<S: Serializer>(value: &usize, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&format_size(*value as u64))
}

pub(crate) fn optional_size<S: Serializer>(value: &Option<usize>, to: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => size(value, to),
        None => to.serialize_none(),
    }
}

pub(crate) fn size_or_off<S: Serializer>(value: &Option<usize>, to: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => size(value, to),
        None => to.serialize_str("off"),
    }
}

pub(crate) fn path<S: Serializer>(value: &Path, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&value.display())
}

pub(crate) fn paths<S: Serializer>(values: &[PathBuf], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(values.iter().map(|path| path.display().to_string()))
}

pub(crate) fn optional_path<S: Serializer>(value: &Option<PathBuf>, to: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => path(value, to),
        None => to.serialize_none(),
    }
}

pub(crate) fn secret<S: Serializer>(value: &Option<String>, to: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(_) => to.serialize_str(MASK),
        None => to.serialize_none(),
    }
}

pub(crate) fn table_or_off<T: Serialize, S: Serializer>(value: &Option<T>, to: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => value.serialize(to),
        None => to.serialize_str("off"),
    }
}

/// URLs, users and passwords masked.
pub(crate) fn urls<S: Serializer>(urls: &[Url], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(urls.iter().map(masked_url))
}

/// A URL, user and password masked, or `"off"`.
pub(crate) fn url_or_off<S: Serializer>(url: &Option<Url>, to: S) -> Result<S::Ok, S::Error> {
    match url {
        Some(url) => to.serialize_str(&masked_url(url)),
        None => to.serialize_str("off"),
    }
}

/// Headers as a table, secrets masked. The reader accepts each name only once, so no value is lost.
pub(crate) fn headers<S: Serializer>(value: &HeaderMap, to: S) -> Result<S::Ok, S::Error> {
    let mut map = to.serialize_map(Some(value.len()))?;
    for (name, value) in value {
        let text = String::from_utf8_lossy(value.as_bytes());
        let secret = value.is_sensitive() || is_secret(name);
        map.serialize_entry(name.as_str(), if secret { MASK } else { &text })?;
    }
    map.end()
}

/// Tables by name.
pub(crate) fn named<T: Serialize, S: Serializer>(value: &IndexMap<String, T>, to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(value)
}

/// Tables by name, if there are any.
pub(crate) fn optional_named<T: Serialize, S: Serializer>(
    value: &Option<IndexMap<String, T>>,
    to: S,
) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => to.collect_map(value),
        None => to.serialize_none(),
    }
}
