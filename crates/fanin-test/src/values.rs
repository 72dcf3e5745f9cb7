//! Values of tests: structs, JSON, headers, and what `reply(...)` and `each(...)` give.

use std::rc::Rc;

use arcstr::ArcStr;
use bytes::Bytes;
use fanin_json::Doc;
use fanin_lang::Value;
use fanin_lang::value::{Struct, view};
use fanin_upstream::grpc::code_named;
use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, StatusCode};

use crate::delay::Delay;
use crate::stub::{AnswerSpec, Fail, Status};

/// The field that tells what a struct of this module is. No program can write it.
const MARK: &str = "\0mark";
const REPLY: &str = "reply";
const EACH: &str = "each";
/// How deep JSON may be nested.
const MAX_DEPTH: usize = 128;

/// A struct.
pub(crate) fn structure<'a>(fields: impl IntoIterator<Item = (&'a str, Value)>) -> Value {
    Value::Struct(Rc::new(Struct::new(fields.into_iter().map(|(name, value)| (ArcStr::from(name), value)).collect())))
}

/// A number of milliseconds: an int if it is whole.
pub(crate) fn number(value: f64) -> Value {
    let rounded = (value * 1e3).round() / 1e3;
    if rounded.fract() == 0.0 && rounded.abs() < 1e15 { Value::Int(rounded as i64) } else { Value::Float(rounded) }
}

/// A body as JSON, if it is any.
pub(crate) fn json(body: &[u8]) -> Option<Value> {
    document(body).map(Value::json)
}

/// The same as a document.
pub(crate) fn document(body: &[u8]) -> Option<Doc> {
    Doc::parse(Bytes::copy_from_slice(body), MAX_DEPTH).ok()
}

/// Headers by lower-case name, several values joined.
pub(crate) fn headers(map: &HeaderMap) -> Value {
    let joined = |name: &HeaderName| {
        let all: Vec<_> = map.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
        Value::str(&all.join(", "))
    };
    Value::record(map.keys().map(|name| (name.as_str(), joined(name))))
}

/// A key as text.
pub(crate) fn plain(value: &Value) -> String {
    match value.decide() {
        Ok(Value::Str(text)) => text.to_string(),
        Ok(Value::Int(number)) => number.to_string(),
        _ => String::new(),
    }
}

fn marked(mark: &str, mut fields: Vec<(ArcStr, Value)>) -> Value {
    fields.insert(0, (ArcStr::from(MARK), Value::str(mark)));
    Value::Struct(Rc::new(Struct::new(fields)))
}

fn is_marked(value: &Value, mark: &str) -> bool {
    view::field(value, MARK).is_some_and(|own| own.as_str() == Some(mark))
}

/// The options of an answer, which `stub`, `reply` and functions of stubs share.
pub(crate) const ANSWER_OPTIONS: [&str; 6] = ["answer", "text", "status", "headers", "delay", "fail"];

/// What `reply(...)` gives: its arguments, checked.
///
/// # Errors
/// What is wrong with them.
pub(crate) fn reply(given: &[(&str, &Value)]) -> Result<Value, String> {
    spec(given)?;
    Ok(marked(REPLY, given.iter().map(|(name, value)| (ArcStr::from(*name), (*value).clone())).collect()))
}

/// The answer that a value of `reply(...)` stands for; `None` for other values.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn reply_of(value: &Value) -> Result<Option<AnswerSpec>, String> {
    if !is_marked(value, REPLY) {
        return Ok(None);
    }
    let fields: Vec<(&str, Value)> =
        ANSWER_OPTIONS.iter().filter_map(|name| Some((*name, view::field(value, name)?))).collect();
    let given: Vec<(&str, &Value)> = fields.iter().map(|(name, value)| (*name, value)).collect();
    spec(&given).map(Some)
}

/// An answer from the arguments that describe it. `None` as an answer is JSON's `null`.
///
/// # Errors
/// What is wrong with them.
pub(crate) fn spec(given: &[(&str, &Value)]) -> Result<AnswerSpec, String> {
    let mut spec = AnswerSpec::default();
    for (name, value) in given {
        let decided = value.decide().map_err(|_| format!("{name} is not there"))?;
        let text = || match &decided {
            Value::Str(text) => Ok(text.to_string()),
            other => Err(format!("{name} must be a string, not {}", view::type_name(other))),
        };
        match *name {
            "answer" => spec.answer = Some((*value).clone()),
            "text" => spec.text = Some(text()?),
            "status" => spec.status = Some(status(&decided)?),
            "headers" => spec.headers = header_pairs(&decided)?,
            "delay" => spec.delay = Some(Delay::parse(&text()?)?),
            "fail" => spec.fail = Some(Fail::parse(&text()?)?),
            _ => return Err(format!("there is no {name}")),
        }
    }
    match (&spec.answer, &spec.text, spec.fail) {
        (Some(_), Some(_), _) => Err("it takes answer or text, not both".to_owned()),
        (Some(_), _, Some(_)) | (_, Some(_), Some(_)) => Err("a request that fails has no answer".to_owned()),
        _ if spec.fail.is_some() && spec.status.is_some() => Err("a request that fails has no status".to_owned()),
        _ => Ok(spec),
    }
}

fn status(value: &Value) -> Result<Status, String> {
    match value {
        Value::Int(number) => u16::try_from(*number)
            .ok()
            .and_then(|number| StatusCode::from_u16(number).ok())
            .filter(|status| (200..600).contains(&status.as_u16()))
            .map(Status::Http)
            .ok_or_else(|| format!("{number} is no status: they are 200 to 599")),
        Value::Str(code) => {
            let known = fanin_upstream::grpc::error_names().find(|name| *name == code.as_str());
            match known.zip(code_named(code)) {
                Some((name, (_, status))) => Ok(Status::Grpc(name, status)),
                None => Err(format!("{code:?} is no status: write a number, or a code of gRPC such as \"NOT_FOUND\"")),
            }
        }
        other => Err(format!("a status is a number or a code of gRPC, not {}", view::type_name(other))),
    }
}

/// Headers of a dict.
///
/// # Errors
/// What is wrong with them.
pub(crate) fn header_pairs(value: &Value) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
    let entries = view::entries(value).ok_or("headers must be a dict")?;
    let one = |(name, value): &(Value, Value)| {
        let (name, value) = (plain(name), plain(value));
        let name = HeaderName::try_from(&name).map_err(|_| format!("{name:?} is no name of a header"))?;
        let value =
            HeaderValue::try_from(&value).map_err(|_| format!("the value of the header {name} cannot be sent"))?;
        Ok((name, value))
    };
    entries.iter().map(one).collect()
}

/// What `each(...)` gives: cases with their labels.
pub(crate) fn each(cases: Vec<(String, Value)>) -> Value {
    let cases = cases.into_iter().map(|(label, value)| Value::pair(Value::str(&label), value)).collect();
    marked(EACH, vec![(ArcStr::from("cases"), Value::list(cases))])
}

/// The cases of a value of `each(...)`; `None` for other values.
pub(crate) fn cases_of(value: &Value) -> Option<Vec<(String, Value)>> {
    if !is_marked(value, EACH) {
        return None;
    }
    let cases = view::elements(&view::field(value, "cases")?).ok()?;
    let pair = |case: Value| {
        let pair = view::elements(&case).ok()?;
        Some((pair.first()?.as_str()?.to_owned(), pair.get(1)?.clone()))
    };
    cases.into_iter().map(pair).collect()
}
