//! Arguments of operations: static checks of a call, defaults, and checks of types at run time.

use std::time::Duration;

use fanin_config::{OPERATION_CALL_OPTIONS, Param, ParamType};
use fanin_lang::value::view;
use fanin_lang::{Failure, Value, ValueKind};
use indexmap::IndexMap;

use crate::call::{argument_error, text};

type Declared = IndexMap<String, Param>;

/// Message and hint for an argument that the operation does not have.
#[cold]
pub(crate) fn unknown(operation: &str, declared: &Declared, key: &str) -> (String, String) {
    let known = declared.keys().map(String::as_str).chain(OPERATION_CALL_OPTIONS);
    let near = known.clone().max_by(|a, b| strsim::jaro(a, key).total_cmp(&strsim::jaro(b, key)));
    let hint = match near.filter(|near| strsim::jaro(near, key) > 0.7) {
        Some(near) => format!("did you mean {near}?"),
        None => format!("its parameters are {}", declared.keys().map(String::as_str).collect::<Vec<_>>().join(", ")),
    };
    (format!("{operation} has no parameter {key}"), hint)
}

#[cold]
fn missing(operation: &str, key: &str) -> String {
    format!("{operation} needs the parameter {key}")
}

/// Checks a call statically. Returns message and hint of an error. `open`: `*args` or `**kwargs` may add arguments.
pub(crate) fn check_static(
    operation: &str,
    declared: &Declared,
    positional: usize,
    names: &[&str],
    open: bool,
) -> Option<(String, Option<String>)> {
    if positional > declared.len() {
        return Some((format!("{operation} takes at most {} arguments by position", declared.len()), None));
    }
    for (at, name) in names.iter().enumerate() {
        match declared.get_index_of(*name) {
            Some(index) if index < positional => {
                return Some((format!("{operation} gets {name} by position and by name"), None));
            }
            Some(_) => {}
            None if OPERATION_CALL_OPTIONS.contains(name) => {}
            None => {
                let (message, hint) = unknown(operation, declared, name);
                return Some((message, Some(hint)));
            }
        }
        if names[..at].contains(name) {
            return Some((format!("{operation} gets {name} twice"), None));
        }
    }
    let absent = declared
        .iter()
        .skip(positional)
        .find(|(key, param)| !param.is_optional() && !names.contains(&key.as_str()) && !open);
    absent.map(|(key, _)| (missing(operation, key), None))
}

/// Adds the defaults of omitted parameters.
///
/// # Errors
/// A required parameter is missing.
pub(crate) fn fill_defaults(
    operation: &str,
    declared: &Declared,
    named: &mut Vec<(Box<str>, Value)>,
) -> Result<(), Failure> {
    for (key, param) in declared {
        if named.iter().any(|(given, _)| **given == **key) {
            continue;
        }
        match &param.default {
            Some(default) => named.push((key.as_str().into(), value(default))),
            None if param.kind.optional => {}
            None => return Err(argument_error(missing(operation, key))),
        }
    }
    Ok(())
}

/// A JSON value of the configuration as a value of flows.
fn value(json: &serde_json::Value) -> Value {
    use serde_json::Value as Json;
    match json {
        Json::Null => Value::None,
        Json::Bool(value) => Value::Bool(*value),
        Json::Number(number) => match number.as_i64() {
            Some(value) => Value::Int(value),
            None => Value::Float(number.as_f64().unwrap_or_default()),
        },
        Json::String(text) => Value::str(text),
        Json::Array(items) => Value::list(items.iter().map(value).collect()),
        Json::Object(entries) => Value::record(entries.iter().map(|(key, item)| (key.as_str(), value(item)))),
    }
}

/// Checks a value, which must not be pending, against its parameter's type.
///
/// # Errors
/// The value has another type.
pub(crate) fn check(upstream: &str, key: &str, param: &Param, value: &Value) -> Result<(), Failure> {
    // The most frequent types, without awaiting or copying.
    match (param.kind.base, value) {
        (ParamType::Any, _)
        | (ParamType::String | ParamType::List, Value::Str(_))
        | (ParamType::Int | ParamType::Float | ParamType::List, Value::Int(_))
        | (ParamType::List, Value::List(_)) => return Ok(()),
        _ => {}
    }
    let Ok(value) = value.decide() else { return Ok(()) };
    let kind = view::kind(&value);
    let fits = match (param.kind.base, kind) {
        (_, ValueKind::None) => param.kind.optional,
        (ParamType::String, ValueKind::Str) | (ParamType::Bool, ValueKind::Bool) => true,
        (ParamType::Int | ParamType::Float, ValueKind::Int) | (ParamType::Float, ValueKind::Float) => true,
        (ParamType::List, ValueKind::List | ValueKind::Tuple | ValueKind::Set | ValueKind::Range) => true,
        (ParamType::List, _) => text(&value).is_some(),
        _ => false,
    };
    if fits {
        return Ok(());
    }
    let wanted = param.kind.base.as_str();
    Err(argument_error(format!(
        "the parameter {key} of a call of {upstream} must be a {wanted}, not a {}",
        view::type_name(&value)
    )))
}

/// `linger = 0`, or a duration.
pub(crate) fn linger(upstream: &str, value: &Value) -> Result<Duration, Failure> {
    let read = match value {
        Value::Int(0) => Some(Duration::ZERO),
        other => other.as_str().and_then(|text| fanin_config::parse_duration(text).ok()),
    };
    read.ok_or_else(|| {
        argument_error(format!("linger of a call of {upstream} must be 0 or a duration such as \"5ms\""))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declared() -> Declared {
        let mut fields = Param::new(ParamType::List);
        fields.kind.optional = true;
        let mut page = Param::new(ParamType::Int);
        page.default = Some(1.into());
        [("ids", Param::new(ParamType::List)), ("fields", fields), ("page", page)]
            .map(|(name, param)| (name.to_owned(), param))
            .into_iter()
            .collect()
    }

    #[test]
    fn static_checks() {
        let check_static =
            |positional, names: &[&str], open| check_static("c.products", &declared(), positional, names, open);
        for (positional, names) in
            [(1, &[][..]), (2, &["page"]), (3, &["optional", "linger"]), (0, &["page", "ids", "timeout"])]
        {
            assert_eq!(check_static(positional, names, false), None, "{positional} {names:?}");
        }
        let message_of = |positional, names: &[&str]| {
            let (message, hint) = check_static(positional, names, false).unwrap();
            format!("{message} ({})", hint.unwrap_or_default())
        };
        assert_eq!(message_of(0, &["fields"]), "c.products needs the parameter ids ()");
        assert_eq!(message_of(4, &[]), "c.products takes at most 3 arguments by position ()");
        assert_eq!(message_of(1, &["field"]), "c.products has no parameter field (did you mean fields?)");
        assert_eq!(message_of(1, &["zzz"]), "c.products has no parameter zzz (its parameters are ids, fields, page)");
        assert_eq!(message_of(1, &["ids"]), "c.products gets ids by position and by name ()");
        assert_eq!(message_of(1, &["page", "page"]), "c.products gets page twice ()");
        assert_eq!(check_static(0, &[], true), None, "the rest may be in **arguments");
    }

    #[test]
    fn defaults_are_added() {
        let mut named = vec![("ids".into(), Value::list(vec![Value::Int(1)]))];
        fill_defaults("c.products", &declared(), &mut named).unwrap();
        let names: Vec<&str> = named.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["ids", "page"]);
        assert!(matches!(named[1].1, Value::Int(1)));
        let failure = fill_defaults("c.products", &declared(), &mut Vec::new()).unwrap_err();
        assert!(failure.message.contains("needs the parameter ids"), "{}", failure.message);
    }

    #[test]
    fn types_are_checked() {
        let declared = declared();
        let is = |key: &str, value: Value| check("c", key, &declared[key], &value).is_ok();
        assert!(is("ids", Value::list(vec![])) && is("ids", Value::Int(7)) && is("ids", Value::str("x")));
        assert!(is("fields", Value::None) && !is("ids", Value::None));
        assert!(is("page", Value::Int(1)) && !is("page", Value::str("1")) && !is("page", Value::Bool(true)));
        assert!(!is("ids", Value::Dict(Default::default())));
    }
}
