//! A recorded request as a test: stubs with what its backends answered, and assertions of what it was answered.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use fanin_recording::{Exchange, Request};
use serde_json::Value;

/// The text of a file with one test.
///
/// # Errors
/// Why there can be none.
pub fn as_test(request: &Request, number: usize) -> Result<String, String> {
    let response = request.response.as_ref().ok_or("the request has no response")?;
    let mut body = String::new();
    let mut upstreams: BTreeSet<&str> = BTreeSet::new();
    let mut used: BTreeSet<&str> = BTreeSet::from(["assert_equal", "request", "stub", "together"]);
    let mut groups: BTreeMap<(usize, String), Vec<&Exchange>> = BTreeMap::new();
    let mut order: Vec<String> = Vec::new();
    for exchange in request.exchanges.iter().filter(|exchange| exchange.keys.is_empty()) {
        let target = target(exchange)?;
        upstreams.insert(&exchange.upstream);
        let at = order.iter().position(|known| *known == target).unwrap_or_else(|| {
            order.push(target.clone());
            order.len() - 1
        });
        groups.entry((at, target)).or_default().push(exchange);
    }
    for ((_, target), exchanges) in &groups {
        match &exchanges[..] {
            [only] => {
                let _ = writeln!(body, "    stub({target}, {})", reply(only));
            }
            several => {
                used.insert("reply");
                let _ = writeln!(body, "    stub({target}, answers = [");
                for one in several {
                    let _ = writeln!(body, "        reply({}),", reply(one));
                }
                body.push_str("    ])\n");
            }
        }
    }
    let headers: Vec<String> = request
        .headers
        .iter()
        .map(|pair| format!("{}: {}", literal(&pair.name), literal(&String::from_utf8_lossy(&pair.value))))
        .collect();
    let mut arguments = format!("{}, {}", literal(&request.method), literal(&request.target));
    if !headers.is_empty() {
        let _ = write!(arguments, ", headers = {{{}}}", headers.join(", "));
    }
    if !request.body.is_empty() {
        let _ = write!(arguments, ", text = {}", literal(&String::from_utf8_lossy(&request.body)));
    }
    if let Some(principal) = &request.principal {
        let _ = write!(arguments, ", principal = {}", literal(principal));
    }
    if let Some(claims) = request.claims.as_ref().and_then(|claims| serde_json::from_slice::<Value>(claims).ok()) {
        let _ = write!(arguments, ", claims = {}", starlark(&claims));
    }
    let _ = writeln!(body, "    response = together([request({arguments})])[0]");
    let _ = writeln!(body, "    assert_equal(response.status, {})", response.status);
    if !response.without_body {
        match serde_json::from_slice::<Value>(&response.body) {
            // Its text may tell times.
            Ok(_) if response.error.is_some() => {}
            Ok(json) => {
                let _ = writeln!(body, "    assert_equal(response.json, {})", starlark(&json));
            }
            Err(_) => {
                let text = String::from_utf8_lossy(&response.body);
                let _ = writeln!(body, "    assert_equal(response.text, {})", literal(&text));
            }
        }
    }
    let names = |names: &BTreeSet<&str>| names.iter().map(|name| literal(name)).collect::<Vec<_>>().join(", ");
    let mut text = format!("load(\"@test\", {})\n", names(&used));
    if !upstreams.is_empty() {
        let _ = writeln!(text, "load(\"@upstreams\", {})", names(&upstreams));
    }
    let _ = write!(text, "\ndef test_recorded_{number}():\n    \"\"\"{}\"\"\"\n{body}", shown(request));
    Ok(text)
}

fn shown(request: &Request) -> String {
    format!("{} {}", request.method, request.target).replace('\\', "/").replace('"', "'")
}

/// What a stub is for.
fn target(exchange: &Exchange) -> Result<String, String> {
    let upstream = &exchange.upstream;
    if let Some(operation) = &exchange.operation {
        return Ok(match exchange.method.as_str() {
            // A batch asks differently each time; a plain operation has one path for each of its arguments.
            _ if is_plain(exchange) => format!("{upstream}.{operation}, path = {}", literal(path(exchange).0)),
            _ => format!("{upstream}.{operation}"),
        });
    }
    let verb = exchange.method.to_ascii_lowercase();
    if !matches!(verb.as_str(), "get" | "post" | "put" | "patch" | "delete" | "head") {
        return Err(format!("a test has no stub for {} of {upstream}", exchange.method));
    }
    let (path, query) = path(exchange);
    let mut text = format!("{upstream}.{verb}, path = {}", literal(path));
    let pairs: Vec<(String, String)> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    if !pairs.is_empty() {
        let pairs: Vec<String> =
            pairs.iter().map(|(name, value)| format!("{}: {}", literal(name), literal(value))).collect();
        let _ = write!(text, ", query = {{{}}}", pairs.join(", "));
    }
    Ok(text)
}

/// Whether the path tells one call of an operation from others.
fn is_plain(exchange: &Exchange) -> bool {
    exchange.path.starts_with('/')
        && exchange.keys.is_empty()
        && !path(exchange).0.is_empty()
        && exchange.method == "GET"
}

fn path(exchange: &Exchange) -> (&str, &str) {
    exchange.path.split_once('?').unwrap_or((&exchange.path, ""))
}

/// The arguments of a stub or of `reply`.
fn reply(exchange: &Exchange) -> String {
    let took = exchange.ended_us.map(|ended| ended.saturating_sub(exchange.begun_us));
    let mut parts = Vec::new();
    match (&exchange.answer, &exchange.failure) {
        (Some(answer), _) => {
            match serde_json::from_slice::<Value>(&answer.body) {
                Ok(json) => parts.push(format!("answer = {}", starlark(&json))),
                Err(_) if answer.body.is_empty() => {}
                Err(_) => parts.push(format!("text = {}", literal(&String::from_utf8_lossy(&answer.body)))),
            }
            if answer.status != 200 {
                parts.push(format!("status = {}", answer.status));
            }
        }
        (None, Some(kind)) => {
            let known = ["timeout", "refused", "connect", "protocol", "too_large"];
            let kind = if known.contains(&kind.as_str()) { kind.as_str() } else { "protocol" };
            parts.push(format!("fail = {}", literal(kind)));
        }
        // It was cancelled: it takes longer than anybody waited.
        (None, None) => parts.push("fail = \"timeout\"".to_owned()),
    }
    if let Some(took) = took.filter(|_| exchange.answer.is_some()) {
        parts.push(format!("delay = \"{}us\"", took));
    }
    parts.join(", ")
}

/// A text of Starlark.
fn literal(text: &str) -> String {
    let mut out = String::from("\"");
    for char in text.chars() {
        match char {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            char if char.is_control() => {
                let _ = write!(out, "\\u{:04x}", u32::from(char));
            }
            char => out.push(char),
        }
    }
    out.push('"');
    out
}

/// JSON as a value of Starlark.
fn starlark(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => literal(text),
        Value::Array(all) => format!("[{}]", all.iter().map(starlark).collect::<Vec<_>>().join(", ")),
        Value::Object(members) => {
            let all: Vec<String> =
                members.iter().map(|(name, value)| format!("{}: {}", literal(name), starlark(value))).collect();
            format!("{{{}}}", all.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_of_starlark() {
        let value = json!({"a": [1, 1.5, null, true], "b": "x\"\n\\"});
        assert_eq!(starlark(&value), r#"{"a": [1, 1.5, None, True], "b": "x\"\n\\"}"#);
    }
}
