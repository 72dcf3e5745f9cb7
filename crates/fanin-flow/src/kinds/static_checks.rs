//! Static checks of calls: reports certain errors before a flow runs.

use fanin_config::{EscapedSlashes, Operation, Shape, UnsafeSegment, check_segments};
use fanin_lang::{Argument, CallDiagnostic, StaticCall, Value};
use http::Method;

use crate::call::STREAM;

/// Arguments that every call takes.
pub(crate) const NAMES: [&str; 13] = [
    "query",
    "headers",
    "json",
    "text",
    "body",
    "stream",
    "timeout",
    "ok",
    "optional",
    "default",
    "returns",
    "safe",
    "unordered",
];

/// Arguments of verbs only.
const OF_VERBS: [&str; 3] = ["params", "form", "multipart"];

fn problem(argument: Option<Argument>, message: String) -> CallDiagnostic {
    CallDiagnostic { argument, name_is_wrong: false, message, hint: None }
}

fn named(name: &str) -> Argument {
    Argument::Named(name.to_owned())
}

/// The error of `stream(...)` around a call that cannot be streamed.
pub(crate) fn stream_of_other_kind(upstream: &str, call: &StaticCall<'_>) -> Vec<CallDiagnostic> {
    match call.within {
        Some(STREAM) => {
            let message = format!("stream() takes calls of HTTP and gRPC upstreams, and {upstream} is neither");
            vec![problem(None, message)]
        }
        _ => Vec::new(),
    }
}

/// Errors of a call of a verb, whose first argument is the path.
pub(crate) fn verb(
    upstream: &str,
    slashes: EscapedSlashes,
    verb: &Method,
    call: &StaticCall<'_>,
) -> Vec<CallDiagnostic> {
    let mut found = Vec::new();
    let shown = format!("{upstream}.{}", verb.as_str().to_ascii_lowercase());
    match call.positional {
        0 if !call.spread => {
            let mut missing = problem(None, format!("{shown}() needs a path"));
            missing.hint = Some(format!("{shown}(\"/...\")"));
            found.push(missing);
        }
        0 | 1 => {}
        many => {
            let mut more = problem(
                Some(Argument::Position(1)),
                format!("{shown}() takes one argument by position, the path; {many} given"),
            );
            more.hint = Some("write others by name: params, query, headers, json, text, ...".to_owned());
            found.push(more);
        }
    }
    for name in &call.names {
        if !OF_VERBS.contains(name) && !NAMES.contains(name) {
            let mut unknown = problem(Some(named(name)), format!("{shown}() has no argument {name}"));
            unknown.name_is_wrong = true;
            let near = near(name, NAMES.iter().copied().chain(OF_VERBS));
            unknown.hint = Some(match near {
                Some(near) => format!("did you mean {near}?"),
                None => "write parameters of the request into query = {...} or json = ...".to_owned(),
            });
            found.push(unknown);
        }
    }
    let first = Argument::Position(0);
    if let Some(Value::Str(path)) = (call.literal)(&first) {
        if !path.starts_with('/') {
            let mut wrong = problem(Some(first.clone()), format!("the path {path:?} does not start with /"));
            wrong.hint = Some(format!("{:?}", format!("/{path}")));
            found.push(wrong);
        }
        if let Err(unsafe_path) = check_segments(&path, slashes) {
            let mut wrong = problem(Some(first.clone()), format!("the path {path:?} {unsafe_path}"));
            if unsafe_path == UnsafeSegment::Slash {
                wrong.hint = Some(format!("set escaped_slashes = \"encode\" in [upstreams.{upstream}]"));
            }
            found.push(wrong);
        }
        let given = if call.names.contains(&"params") { (call.keys)(&named("params")) } else { Some(Vec::new()) };
        if let (Some(given), false) = (given, call.spread) {
            template(&path, &given, &first, &mut found);
        }
    } else if let Some(other) = (call.literal)(&first)
        && !matches!(other, Value::Str(_))
    {
        found.push(problem(Some(first), format!("the path of {shown}() must be a string")));
    }
    options(&shown, verb, call, &mut found);
    found
}

/// Errors of a call of an operation, whose arguments are named.
pub(crate) fn operation(
    upstream: &str,
    name: &str,
    operation: &Operation,
    call: &StaticCall<'_>,
) -> Vec<CallDiagnostic> {
    let mut found = Vec::new();
    let shown = format!("{upstream}.{name}");
    if operation.params.is_some() {
        // The compiler checks the arguments against the declared parameters.
        options(&shown, &operation.method, call, &mut found);
        return found;
    }
    if call.positional > 0 {
        let mut more = problem(Some(Argument::Position(0)), format!("{shown}() takes its arguments by name"));
        more.hint = parameters(&operation.path).first().map(|first| format!("{shown}({first} = ...)"));
        found.push(more);
    }
    if !call.spread {
        for wanted in parameters(&operation.path) {
            if !call.names.contains(&wanted) && call.positional == 0 {
                let mut missing = problem(None, format!("{shown}() needs the argument {wanted}"));
                missing.hint = Some(format!("its path is {}", operation.path));
                let near = near(wanted, call.names.iter().copied().filter(|name| !NAMES.contains(name)));
                if let Some(near) = near {
                    missing.argument = Some(named(near));
                    missing.name_is_wrong = true;
                    missing.hint = Some(format!("did you mean {wanted}?"));
                }
                found.push(missing);
            }
        }
    }
    options(&shown, &operation.method, call, &mut found);
    found
}

/// Errors of a call's options and body.
fn options(shown: &str, method: &Method, call: &StaticCall<'_>, found: &mut Vec<CallDiagnostic>) {
    let literal = |name: &str| call.names.contains(&name).then(|| (call.literal)(&named(name))).flatten();
    for name in ["optional", "safe", "stream", "unordered"] {
        if let Some(value) = literal(name)
            && !matches!(value, Value::Bool(_))
        {
            found.push(problem(Some(named(name)), format!("{name} of {shown}() must be True or False")));
        }
    }
    if let Some(timeout) = literal("timeout") {
        let parsed = timeout.as_str().map(fanin_config::parse_duration);
        if !matches!(parsed, Some(Ok(duration)) if !duration.is_zero()) {
            let mut wrong = problem(Some(named("timeout")), format!("timeout of {shown}() must be a duration"));
            wrong.hint = Some(match timeout {
                Value::Int(number) => format!("\"{number}ms\", \"{number}s\""),
                _ => "\"80ms\", \"1.5s\"".to_owned(),
            });
            found.push(wrong);
        }
    }
    if let Some(ok) = literal("ok") {
        let statuses = fanin_lang::value::view::elements(&ok).ok();
        let fine = |value: &Value| matches!(value, Value::Int(status) if (100..=599).contains(status));
        if !statuses.is_some_and(|statuses| statuses.iter().all(fine)) {
            let mut wrong = problem(Some(named("ok")), format!("ok of {shown}() must be a list of statuses"));
            wrong.hint = Some(match ok {
                Value::Int(status) => format!("[{status}]"),
                _ => "[404]".to_owned(),
            });
            found.push(wrong);
        }
    }
    if let Some(Value::Str(name)) = literal("returns")
        && let Err(mistake) = Shape::read(&serde_json::Value::String(name.to_string()))
    {
        found.push(problem(Some(named("returns")), format!("returns of {shown}(): {mistake}")));
    }
    let has = |name: &str| call.names.contains(&name);
    let mut bodies = ["json", "text", "form", "multipart"].into_iter().filter(|name| has(name));
    if let (Some(first), Some(second)) = (bodies.next(), bodies.next()) {
        let message = format!("{shown}() has both {first} and {second}: a request has one body");
        found.push(problem(Some(named(second)), message));
    }
    if let Some(body) = ["json", "text", "form", "multipart"].into_iter().find(|name| has(name))
        && matches!(*method, Method::GET | Method::HEAD)
    {
        let mut wrong = problem(Some(named(body)), format!("a {method} cannot have a body"));
        wrong.name_is_wrong = true;
        wrong.hint = Some("write its parameters into query = {...}".to_owned());
        found.push(wrong);
    }
}

/// Missing parameters of a path template.
fn template(path: &str, given: &[String], at: &Argument, found: &mut Vec<CallDiagnostic>) {
    for wanted in parameters(path) {
        if !given.iter().any(|name| name == wanted) {
            let mut missing =
                problem(Some(at.clone()), format!("the path needs the parameter {wanted}, which params does not have"));
            missing.hint = Some(match near(wanted, given.iter().map(String::as_str)) {
                Some(near) => format!("params has {near}"),
                None => format!("params = {{\"{wanted}\": ...}}"),
            });
            found.push(missing);
        }
    }
}

/// The names in braces of a path template.
fn parameters(path: &str) -> Vec<&str> {
    path.split('{').skip(1).filter_map(|part| part.split_once('}').map(|(name, _)| name)).collect()
}

fn near<'n>(wanted: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    names
        .map(|name| (strsim::damerau_levenshtein(wanted, name), name))
        .filter(|(distance, name)| *distance <= (name.len() / 3).max(1))
        .min()
        .map(|(_, name)| name)
}
