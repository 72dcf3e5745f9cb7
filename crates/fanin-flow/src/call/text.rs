//! Values as text in a path, a query or a header.

use std::borrow::Cow;
use std::sync::Arc;

use fanin_config::QueryLists;
use fanin_lang::value::view;
use fanin_lang::{Failure, Value, ValueKind};
use http::header::{HeaderName, HeaderValue};

use super::argument_error;
use crate::encode;

/// A header that a flow sets. `None` for the value `None`, which omits the header.
///
/// # Errors
/// Invalid characters in the name, or control characters in the value.
pub(crate) fn header(key: &Value, value: &Value) -> Result<(Option<HeaderName>, Option<HeaderValue>), String> {
    let key = text(key).ok_or("a header's name must be a string")?;
    let name = HeaderName::from_bytes(key.as_bytes()).map_err(|_| format!("{key:?} is not a valid header name"))?;
    if matches!(value.decide(), Ok(Value::None)) {
        return Ok((None, None));
    }
    let text = text(value).ok_or_else(|| format!("the header {name} must be a string or a number"))?;
    let value = HeaderValue::from_str(&text)
        .or_else(|_| HeaderValue::from_bytes(text.as_bytes()))
        .map_err(|_| format!("the value of the header {name} contains a control character"))?;
    Ok((Some(name), Some(value)))
}

/// A scalar as text in a URL or header.
pub(crate) fn text(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::Str(text) => return Some(Cow::Borrowed(text)),
        Value::Int(value) => return Some(Cow::Owned(value.to_string())),
        Value::Json { at, doc } => {
            let node = doc.node(*at);
            // The original digits: 1.50 stays 1.50, and a long id stays exact.
            return node.as_number_text().map(Cow::Borrowed).or_else(|| node.as_str());
        }
        _ => {}
    }
    match value.decide().ok()? {
        Value::Str(text) => Some(Cow::Owned(text.to_string())),
        Value::Int(value) => Some(Cow::Owned(value.to_string())),
        Value::BigInt(value) => Some(Cow::Owned(value.to_string())),
        Value::Float(value) => {
            let mut out = Vec::new();
            fanin_json::write_float(&mut out, value).ok()?;
            String::from_utf8(out).ok().map(Cow::Owned)
        }
        Value::Bool(value) => Some(Cow::Borrowed(if value { "true" } else { "false" })),
        _ => None,
    }
}

/// Writes a list of an answer into a query, without making values of it. `false` if an item is not a scalar.
fn json_list(out: &mut String, first: &mut bool, key: &str, list: fanin_json::Node<'_>, lists: QueryLists) -> bool {
    if lists == QueryLists::Comma
        && let Some(numbers) = plain_numbers(list.raw())
    {
        encode::pair(out, first, key, "");
        out.push_str(numbers);
        return true;
    }
    for (at, item) in list.elements().enumerate() {
        let text = match item.kind() {
            fanin_json::Kind::String => item.as_str(),
            fanin_json::Kind::Number => item.as_number_text().map(Cow::Borrowed),
            fanin_json::Kind::Bool => item.as_bool().map(|value| Cow::Borrowed(if value { "true" } else { "false" })),
            _ => None,
        };
        let Some(text) = text else { return false };
        if at == 0 || lists == QueryLists::Repeat {
            encode::pair(out, first, key, &text);
        } else {
            out.push(',');
            encode::component(out, &text);
        }
    }
    true
}

/// The inside of a JSON list of numbers without spaces or characters that a query encodes, so it can be copied into a query.
fn plain_numbers(list: &[u8]) -> Option<&str> {
    let inside = list.strip_prefix(b"[")?.strip_suffix(b"]")?;
    let plain = inside.iter().all(|byte| matches!(byte, b'0'..=b'9' | b',' | b'-' | b'.' | b'e' | b'E'));
    if plain { std::str::from_utf8(inside).ok() } else { None }
}

/// Adds a parameter to a query. `first`: the query is empty.
///
/// # Errors
/// A value that cannot be in a query.
pub(crate) fn pair(
    out: &mut String,
    first: &mut bool,
    key: &str,
    value: &Value,
    lists: QueryLists,
    upstream: &Arc<str>,
) -> Result<(), Failure> {
    if let Some(value) = text(value) {
        encode::pair(out, first, key, &value);
        return Ok(());
    }
    let invalid = || {
        argument_error(format!(
            "query {key:?} of a call of {upstream} must be a string, a number, None or a list of these"
        ))
    };
    let value = value.decide().map_err(|_| invalid())?;
    if matches!(value, Value::None) {
        return Ok(());
    }
    if let Some(text) = text(&value) {
        encode::pair(out, first, key, &text);
        return Ok(());
    }
    if let Value::Json { at, doc } = &value
        && let node = doc.node(*at)
        && node.kind() == fanin_json::Kind::Array
        && !node.is_empty()
    {
        return json_list(out, first, key, node, lists).then_some(()).ok_or_else(invalid);
    }
    if !matches!(view::kind(&value), ValueKind::List | ValueKind::Tuple | ValueKind::Set | ValueKind::Range) {
        return Err(invalid());
    }
    let items = view::elements(&value).map_err(|_| invalid())?;
    if items.is_empty() {
        // An empty list is sent as a name without value, unlike `None`.
        encode::pair(out, first, key, "");
        return Ok(());
    }
    for (at, item) in items.iter().enumerate() {
        let item = text(item).ok_or_else(invalid)?;
        match lists {
            QueryLists::Repeat => encode::pair(out, first, key, &item),
            QueryLists::Comma if at == 0 => encode::pair(out, first, key, &item),
            QueryLists::Comma => {
                out.push(',');
                encode::component(out, &item);
            }
        }
    }
    Ok(())
}
