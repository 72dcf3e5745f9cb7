//! File upstreams: the methods of a folder.

use fanin_config::CALL_OPTIONS;
use fanin_lang::{Effect, Failure, HostCall, Method, Value};
use http::Method as Verb;

use crate::call::{Arguments, CallOptions, argument_error};

/// The methods of a folder. A method's number is its index.
pub(crate) const METHODS: [&str; 5] = ["read", "json", "lines", "count_lines", "list"];

/// The method with this name.
pub(crate) fn method(name: &str) -> Option<Method> {
    let at = METHODS.iter().position(|method| *method == name)?;
    Some(Method { id: at as u32, effect: Effect::Read })
}

/// Captures a call's arguments.
pub(crate) fn parse(upstream: &str, call: &HostCall<'_>) -> Result<(Arguments, CallOptions), Failure> {
    let Some(name) = METHODS.get(call.method as usize) else {
        return Err(argument_error(format!("{upstream} has no such method")));
    };
    let path = match call.args.pos {
        [path] => call.capture(path)?,
        [] if *name == "list" => Value::str(""),
        _ => return Err(argument_error(format!("{upstream}.{name} takes one argument by position, the path"))),
    };
    let mut options = CallOptions::new(Verb::GET, true);
    for (key, value) in call.args.names.iter().zip(call.args.named) {
        if !options.set(upstream, key, value, call)? {
            return Err(argument_error(format!("a call of {upstream} has no argument {key:?}"))
                .with_hint(format!("arguments by name are {}", CALL_OPTIONS.join(", "))));
        }
    }
    Ok((Arguments::plain(format!("/{name}"), Value::tuple(vec![path])), options))
}
