//! Model upstreams: `antispam.infer({"input": row})`.
//!
//! The body of the request is `[inputs, outputs, version]` as JSON. Inference is not an effect.

use fanin_config::CALL_OPTIONS;
use fanin_lang::{Effect, Failure, HostCall, Method, StaticArgs, Value};
use http::Method as Verb;

use crate::call::{Arguments, CallOptions, argument_error};

/// The only method.
pub(crate) const INFER: &str = "infer";
/// Its own arguments by name.
const OUTPUTS: &str = "outputs";
const VERSION: &str = "version";

pub(crate) fn method(name: &str) -> Option<Method> {
    (name == INFER).then_some(Method { id: 0, effect: Effect::Read })
}

fn one_argument(upstream: &str) -> String {
    format!(
        "{upstream}.infer takes one argument by position: a dict of the inputs by name, or the only input as a list"
    )
}

fn unknown(upstream: &str, name: &str) -> (String, String) {
    let known = [[OUTPUTS, VERSION].as_slice(), CALL_OPTIONS.as_slice()].concat();
    (format!("{upstream}.infer has no argument {name:?}"), format!("arguments by name are {}", known.join(", ")))
}

/// Checks a call statically. Returns message and hint of an error.
pub(crate) fn check_static(upstream: &str, args: &StaticArgs<'_>) -> Option<(String, Option<String>)> {
    if args.positional != 1 && !(args.open && args.positional == 0) {
        return Some((one_argument(upstream), None));
    }
    let is_known = |name: &&str| [OUTPUTS, VERSION].contains(name) || CALL_OPTIONS.contains(name);
    let name = args.names.iter().find(|name| !is_known(name))?;
    let (message, hint) = unknown(upstream, name);
    Some((message, Some(hint)))
}

/// Captures a call's arguments.
///
/// # Errors
/// Wrong arguments. The call is not sent.
pub(crate) fn parse(upstream: &str, call: &HostCall<'_>) -> Result<(Arguments, CallOptions), Failure> {
    let [inputs] = call.args.pos else { return Err(argument_error(one_argument(upstream))) };
    let inputs = call.capture(inputs)?;
    let (mut outputs, mut version) = (Value::None, Value::None);
    let mut options = CallOptions::new(Verb::GET, true);
    for (key, value) in call.args.names.iter().zip(call.args.named) {
        match key.as_str() {
            OUTPUTS => outputs = call.capture(value)?,
            VERSION => version = call.capture(value)?,
            _ if options.set(upstream, key, value, call)? => {}
            other => {
                let (message, hint) = unknown(upstream, other);
                return Err(argument_error(message).with_hint(hint));
            }
        }
    }
    Ok((Arguments::plain(format!("/{INFER}"), Value::tuple(vec![inputs, outputs, version])), options))
}
