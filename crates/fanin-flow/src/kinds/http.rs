//! HTTP upstreams: verbs, operations, and lookups in a snapshot.

use std::rc::Rc;

use fanin_config::{HttpVersion, OPERATION_CALL_OPTIONS};
use fanin_lang::{Failure, HostCall, Value};
use http::Method;
use smallvec::SmallVec;

use super::operation;
use super::upstream_object::{Target, UpstreamObject};
use crate::call::{Arguments, CallOptions, Fields, Merging, OnFailure, argument_error, flag, known};
use crate::upload::{ClientBody, UploadedBody};

/// Captures a call's arguments and options.
///
/// # Errors
/// Wrong arguments. The call is not sent.
pub(super) fn parse(object: &UpstreamObject, call: &HostCall<'_>) -> Result<(Arguments, CallOptions), Failure> {
    let name = object.upstream.name();
    let target = object.target(call.method).ok_or_else(|| argument_error(format!("{name} has no such method")))?;
    let mut arguments = Arguments {
        path: Value::None,
        params: Fields::NONE,
        query: Fields::NONE,
        headers: Fields::NONE,
        json: None,
        text: None,
        form: None,
        named: Vec::new(),
        operation: object.operation_of(call.method),
        plain: false,
    };
    let operation = arguments.operation.map(|at| object.operation(at));
    let declared = operation.and_then(|(_, operation)| operation.params.as_ref());
    let mut merging = match &target {
        Target::Lookup | Target::Table => Some(Box::new(Merging { operation: None, batch: false, linger: None })),
        _ => arguments.operation.filter(|at| object.merges(*at)).map(|at| {
            let batch = object.operation(at).1.batch.is_some();
            Box::new(Merging { operation: Some(at), batch, linger: None })
        }),
    };
    let (method, safe, timeout, ok) = match &target {
        Target::Verb(verb) => ((*verb).clone(), verb.is_safe(), None, SmallVec::new()),
        Target::Operation(operation) => (
            operation.method.clone(),
            operation.safe.unwrap_or(operation.method.is_safe()),
            operation.timeout,
            operation.ok.iter().map(http::StatusCode::as_u16).collect(),
        ),
        Target::Lookup | Target::Table => (Method::GET, true, None, SmallVec::new()),
    };
    match (&target, call.args.pos) {
        (Target::Operation(operation), values) if let Some(declared) = declared => {
            arguments.path = Value::str(&operation.path);
            if values.len() > declared.len() {
                return Err(argument_error(format!(
                    "{} takes at most {} arguments by position",
                    object.full_name(call.method),
                    declared.len()
                )));
            }
            for ((key, _), value) in declared.iter().zip(values) {
                arguments.named.push((key.as_str().into(), call.capture(value)?));
            }
        }
        (Target::Lookup, [key]) => arguments.path = call.capture(key)?,
        (Target::Lookup, _) => return Err(argument_error(format!("{name}.lookup takes one argument, the key"))),
        (Target::Table, []) => {}
        (Target::Table, _) => {
            return Err(argument_error(format!(
                "{name}.table takes no argument; for one row, call {name}.lookup(key)"
            )));
        }
        (Target::Verb(_), [path]) => arguments.path = call.capture(path)?,
        (Target::Verb(verb), []) => {
            return Err(argument_error(format!("{name}.{} needs a path", verb.as_str().to_ascii_lowercase())));
        }
        (Target::Operation(operation), []) => arguments.path = Value::str(&operation.path),
        _ => {
            return Err(argument_error(format!("a call of {name} takes its arguments by name, except the path")));
        }
    }
    let mut options = CallOptions {
        method,
        ok,
        // The shape of shared answers is checked before they are cached or split.
        returns: match &target {
            Target::Operation(operation) if merging.is_none() => operation.returns.clone(),
            _ => None,
        },
        timeout,
        on_failure: OnFailure::Fail,
        safe,
        operation: object.operation_of(call.method).and_then(|at| u32::try_from(at).ok()),
        merging: None,
        stream: false,
        streaming: None,
        upload: None,
    };
    for (key, value) in call.args.names.iter().zip(call.args.named) {
        if let Some(declared) = declared {
            if declared.contains_key(key.as_str()) {
                if arguments.named.iter().any(|(other, _)| **other == **key) {
                    return Err(argument_error(format!(
                        "{} got {key:?} by position and by name",
                        object.full_name(call.method)
                    )));
                }
                arguments.named.push((key.as_str().into(), call.capture(value)?));
                continue;
            }
            if !OPERATION_CALL_OPTIONS.contains(&key.as_str()) && client_body(value).is_none() {
                let (message, hint) = operation::unknown(&object.full_name(call.method), declared, key);
                return Err(argument_error(message).with_hint(hint));
            }
        }
        match key.as_str() {
            "linger" if operation.is_some() => {
                let linger = Some(operation::linger(name, &known(name, key, value)?)?);
                merging = merging.map(|merging| Box::new(Merging { linger, ..*merging }));
            }
            "params" if matches!(target, Target::Verb(_)) => arguments.params = Fields::capture(call, value)?,
            "query" => arguments.query = Fields::capture(call, value)?,
            "headers" => arguments.headers = Fields::capture(call, value)?,
            "json" => arguments.json = Some(call.capture(value)?),
            "text" => arguments.text = Some(call.capture(value)?),
            "form" | "multipart" if matches!(target, Target::Verb(_)) => {
                let is_multipart = key.as_str() == "multipart";
                if arguments.form.replace(Box::new((call.capture(value)?, is_multipart))).is_some() {
                    return Err(argument_error(format!("a call of {name} has both form and multipart")));
                }
            }
            "stream" => options.stream = flag(name, key, value)?,
            "body" if let Some(body) = client_body(value) => {
                options.upload = Some(body.take().ok_or_else(|| {
                    argument_error(format!("req.stream cannot be sent to {name}: another call of this flow has it"))
                })?);
            }
            "body" if matches!(target, Target::Verb(_)) => {
                return Err(argument_error(format!("body of a call of {name} takes req.stream"))
                    .with_hint("write other bodies into json = ... or text = ..."));
            }
            option if options.set(name, option, value, call)? => {}
            other if matches!(target, Target::Operation(_)) => {
                arguments.named.push((other.into(), call.capture(value)?));
            }
            other => {
                return Err(argument_error(format!("a call of {name} has no argument {other:?}")).with_hint(
                    "arguments are params, query, headers, json, text, form, multipart, body, stream, timeout, ok, optional, default, returns, safe, unordered",
                ));
            }
        }
    }
    options.merging = merging;
    if let Some(declared) = declared {
        operation::fill_defaults(&object.full_name(call.method), declared, &mut arguments.named)?;
    }
    if options.upload.is_some() {
        if arguments.json.is_some() || arguments.text.is_some() || arguments.form.is_some() {
            return Err(argument_error(format!("a call of {name} has several bodies: a request has one")));
        }
        if options.merging.is_some() || matches!(options.method, Method::GET | Method::HEAD) {
            let shown = object.full_name(call.method);
            return Err(argument_error(format!("{shown} cannot send a body that is not collected")));
        }
        if object.upstream.config().http != HttpVersion::Http1 {
            return Err(argument_error(format!("{name} has http = 2, and req.stream can be sent over HTTP/1.1 only")));
        }
    }
    if arguments.json.is_some() && arguments.text.is_some() {
        return Err(argument_error(format!("a call of {name} has both json and text: a request has one body")));
    }
    if arguments.form.is_some() && (arguments.json.is_some() || arguments.text.is_some()) {
        return Err(argument_error(format!("a call of {name} has a form and another body: a request has one body")));
    }
    if (arguments.json.is_some() || arguments.text.is_some() || arguments.form.is_some())
        && matches!(options.method, Method::GET | Method::HEAD)
    {
        return Err(argument_error(format!("a {} of {name} cannot have a body", options.method)));
    }
    Ok((arguments, options))
}

/// The client's body, if the value is `req.stream`.
fn client_body(value: &Value) -> Option<Rc<UploadedBody>> {
    match value {
        Value::Object(object) => object.downcast::<ClientBody>().map(|body| body.0.clone()),
        _ => None,
    }
}
