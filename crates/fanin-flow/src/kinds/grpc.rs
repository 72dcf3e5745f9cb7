//! gRPC upstreams: methods by name, messages as dicts, streams as lists.

use std::sync::Arc;

use fanin_config::CALL_OPTIONS;
use fanin_lang::{Argument, CallDiagnostic, Failure, HostCall, Method, StaticArgs, StaticCall, StaticValue, Value};
use fanin_upstream::grpc::{self, Mismatch, Services, Shape, nearest};
use http::Method as Verb;

use super::effect::effect;
use crate::call::{Arguments as Captured, CallOptions, STREAM, argument_error, flag};

/// Calls a method by its full name: `users.call("shop.Users/Get", {...})`.
const CALL: &str = "call";
/// An argument of gRPC calls besides the call options.
const METADATA: &str = "metadata";

/// Number of a `call` whose method is not a literal.
const UNRESOLVED: u32 = u32::MAX;
/// First number for names that several services have. The index of the first such method is added.
const AMBIGUOUS: u32 = 1 << 30;

/// The methods of a gRPC upstream.
pub(crate) struct Grpc {
    services: Arc<Services>,
}

/// The meaning of a method's number.
enum Called<'a> {
    /// A method by its short name.
    Method(&'a grpc::Method),
    /// A method by its full name, which is the first argument.
    Named(&'a grpc::Method),
    /// The same, with a name known only at run time.
    Unresolved,
    Ambiguous(&'a grpc::Method),
}

impl Grpc {
    pub(crate) fn new(services: Arc<Services>) -> Grpc {
        Grpc { services }
    }

    fn called(&self, id: u32) -> Called<'_> {
        let (at, known) = (id as usize, self.services.iter().len());
        let method = |at: usize| self.services.at(at);
        match id {
            UNRESOLVED => Called::Unresolved,
            AMBIGUOUS.. => method(at - AMBIGUOUS as usize).map_or(Called::Unresolved, Called::Ambiguous),
            _ if at < known => method(at).map_or(Called::Unresolved, Called::Method),
            _ => method(at - known).map_or(Called::Unresolved, Called::Named),
        }
    }

    pub(crate) fn method(&self, name: &str, literal: &dyn Fn(&str) -> Option<Value>) -> Option<Method> {
        let made = |id: usize, safe: bool| Some(Method { id: id as u32, effect: effect(!safe, literal) });
        if name != CALL {
            return match self.services.find_short(name) {
                Ok((at, method)) => made(at, method.is_safe()),
                Err(several) => {
                    let (at, _) = self.services.find(several.first()?)?;
                    made(AMBIGUOUS as usize + at, false)
                }
            };
        }
        match literal("0") {
            Some(Value::Str(full)) => match self.services.find(&full) {
                Some((at, method)) => made(self.services.iter().len() + at, method.is_safe()),
                None => made(UNRESOLVED as usize, self.services.is_declared_safe(&full)),
            },
            _ => made(UNRESOLVED as usize, false),
        }
    }

    /// The method of this short name, if one has it.
    pub(crate) fn find(&self, name: &str) -> Option<&grpc::Method> {
        self.services.find_short(name).ok().map(|(_, method)| method)
    }

    pub(crate) fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.services.iter().map(grpc::Method::name).collect();
        names.sort_unstable();
        names.dedup();
        names.push(CALL);
        names
    }

    pub(crate) fn check_static(
        &self,
        upstream: &str,
        method: u32,
        args: &StaticArgs<'_>,
    ) -> Option<(String, Option<String>)> {
        match (self.called(method), args.first) {
            (Called::Ambiguous(method), _) => Some(self.ambiguous(upstream, method)),
            (Called::Unresolved, Some(Value::Str(full))) => self.unknown(upstream, full),
            (Called::Unresolved, Some(_)) => Some(unnamed(upstream)),
            (Called::Unresolved, None) if args.positional == 0 && !args.open => Some(unnamed(upstream)),
            _ => None,
        }
    }

    fn ambiguous(&self, upstream: &str, method: &grpc::Method) -> (String, Option<String>) {
        let full = self.services.find_short(method.name()).err().unwrap_or_default();
        let message = format!("{upstream} has several methods {}: {}", method.name(), full.join(", "));
        (message, Some(format!("{upstream}.call({:?}, ...)", method.full_name())))
    }

    /// Message and hint, if no method can have this full name.
    fn unknown(&self, upstream: &str, full: &str) -> Option<(String, Option<String>)> {
        if self.services.find(full).is_some() {
            return None;
        }
        let named = full.trim_start_matches('/').split_once('/').is_some_and(|(service, method)| {
            let name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
            !service.is_empty() && !method.is_empty() && service.chars().all(name) && method.chars().all(name)
        });
        if named && !self.services.are_known() {
            return None;
        }
        let (message, mut hint) = self.services.unknown_method(full.trim_start_matches('/'));
        if !named {
            hint = hint.or(Some("methods are named \"package.Service/Method\"".to_owned()));
        }
        Some((format!("{upstream}: {message}"), hint))
    }

    pub(crate) fn check(&self, upstream: &str, name: &str, call: &StaticCall<'_>) -> Vec<CallDiagnostic> {
        let literal = |wanted: &str| match wanted {
            "0" => (call.literal)(&Argument::Position(0)),
            _ => None,
        };
        let Some(Method { id, .. }) = self.method(name, &literal) else { return Vec::new() };
        let (method, first) = match self.called(id) {
            Called::Method(method) => (Some(method), 0),
            Called::Named(method) => (Some(method), 1),
            Called::Unresolved => (None, 1),
            Called::Ambiguous(_) => return Vec::new(),
        };
        let shown = format!("{upstream}.{}", method.map_or(name, grpc::Method::name));
        let mut found = Vec::new();
        if call.positional > first + 1 {
            found.push(CallDiagnostic {
                argument: Some(Argument::Position(first + 1)),
                name_is_wrong: false,
                message: format!(
                    "{shown}() takes one message; {} arguments given by position",
                    call.positional - first
                ),
                hint: Some("write a message as a dict, and a stream of messages as a list of dicts".to_owned()),
            });
        }
        for name in &call.names {
            if ![METADATA, STREAM].contains(name) && !CALL_OPTIONS.contains(name) {
                let field = method.is_some_and(|method| method.input().get_field_by_name(name).is_some());
                found.push(CallDiagnostic {
                    argument: Some(Argument::Named((*name).to_owned())),
                    name_is_wrong: true,
                    message: format!("{shown}() has no argument {name}"),
                    hint: Some(match nearest(name, CALL_OPTIONS.into_iter().chain([METADATA, STREAM])) {
                        _ if field => format!("write fields into the message: {shown}({{{name:?}: ...}})"),
                        Some(near) => format!("did you mean {near}?"),
                        None => arguments(),
                    }),
                });
            }
        }
        let asked = Argument::Named(STREAM.to_owned());
        let asks = call.names.contains(&STREAM).then(|| (call.literal)(&asked)).flatten();
        if asks.as_ref().is_some_and(|value| !matches!(value, Value::Bool(_))) {
            let message = format!("{STREAM} of {shown}() must be True or False");
            found.push(CallDiagnostic { argument: Some(asked), name_is_wrong: false, message, hint: None });
        } else if let Some(method) = method
            && (call.within == Some(STREAM) || matches!(asks, Some(Value::Bool(true))))
            && let Err((message, hint)) = returns_stream(method)
        {
            let argument = asks.map(|_| asked);
            found.push(CallDiagnostic { argument, name_is_wrong: false, message, hint: Some(hint) });
        }
        if let Some(method) = method
            && call.positional > first
            && let Some(Mismatch { message, hint }) = check_message(method, &(call.shape)(&Argument::Position(first)))
        {
            found.push(CallDiagnostic {
                argument: Some(Argument::Position(first)),
                name_is_wrong: false,
                message: format!("{shown}(): {message}"),
                hint,
            });
        }
        found
    }

    /// Whether the answer of a call can be passed on as a stream. The methods of server reflection are checked when the call is sent.
    ///
    /// # Errors
    /// Its method returns one message.
    pub(crate) fn check_stream(&self, call: &Captured) -> Result<(), Failure> {
        match call.method_name().and_then(|full| self.services.find(full)) {
            Some((_, method)) => {
                returns_stream(method).map_err(|(message, hint)| argument_error(message).with_hint(hint))
            }
            None => Ok(()),
        }
    }

    pub(crate) fn parse(&self, upstream: &str, call: &HostCall<'_>) -> Result<(Captured, CallOptions), Failure> {
        let failure = |(message, hint): (String, Option<String>)| match hint {
            Some(hint) => argument_error(message).with_hint(hint),
            None => argument_error(message),
        };
        let (path, method, safe, messages) = match (self.called(call.method), call.args.pos) {
            (Called::Method(method), messages) => {
                (format!("/{}", method.full_name()), Some(method), method.is_safe(), messages)
            }
            (Called::Named(method), messages) => {
                (format!("/{}", method.full_name()), Some(method), method.is_safe(), messages.get(1..).unwrap_or(&[]))
            }
            (Called::Ambiguous(method), _) => return Err(failure(self.ambiguous(upstream, method))),
            (Called::Unresolved, []) => return Err(failure(unnamed(upstream))),
            (Called::Unresolved, [full, messages @ ..]) => {
                let Ok(Value::Str(full)) = full.decide() else { return Err(failure(unnamed(upstream))) };
                if let Some(unknown) = self.unknown(upstream, &full) {
                    return Err(failure(unknown));
                }
                let method = self.services.find(&full).map(|(_, method)| method);
                let safe = method.map_or(self.services.is_declared_safe(&full), grpc::Method::is_safe);
                (format!("/{}", full.trim_start_matches('/')), method, safe, messages)
            }
        };
        let shown = &path[1..];
        let message = match messages {
            [] if method.is_some_and(grpc::Method::is_client_streaming) => Value::list(Vec::new()),
            [] => Value::record(std::iter::empty::<(&str, Value)>()),
            [message] => call.capture(message)?,
            _ => {
                return Err(argument_error(format!("{shown} of {upstream} takes one message"))
                    .with_hint("write a message as a dict, and a stream of messages as a list of dicts"));
            }
        };
        let mut options = CallOptions::new(if safe { Verb::GET } else { Verb::POST }, safe);
        let mut metadata = None;
        for (key, value) in call.args.names.iter().zip(call.args.named) {
            match key.as_str() {
                METADATA => metadata = Some(value),
                STREAM => options.stream = flag(upstream, key, value)?,
                option if options.set(upstream, option, value, call)? => {}
                other => {
                    return Err(argument_error(format!("{shown} of {upstream} has no argument {other:?}"))
                        .with_hint(arguments()));
                }
            }
        }
        let mut captured = Captured::plain(path, message);
        if let Some(metadata) = metadata {
            captured.set_headers(call, metadata)?;
        }
        Ok((captured, options))
    }
}

fn arguments() -> String {
    format!("arguments by name are {METADATA}, {STREAM}, {}", CALL_OPTIONS.join(", "))
}

/// Message and hint if a method's answer is one message, which cannot be passed on as a stream.
fn returns_stream(method: &grpc::Method) -> Result<(), (String, String)> {
    if method.is_server_streaming() {
        return Ok(());
    }
    let message = format!("{} returns one message: only a stream of messages can be passed on", method.full_name());
    Err((message, "return the answer without stream".to_owned()))
}

fn unnamed(upstream: &str) -> (String, Option<String>) {
    let message =
        format!("{upstream}.call needs the full name of a method as its first argument, a string that is not pending");
    (message, Some(format!("{upstream}.call(\"package.Service/Method\", {{...}})")))
}

/// A certain mismatch between a method's message type and its argument.
fn check_message(method: &grpc::Method, given: &StaticValue) -> Option<Mismatch> {
    let given = shape(given);
    if !method.is_client_streaming() {
        return grpc::find_mismatch(method.input(), &given);
    }
    match given {
        Shape::Unknown => None,
        Shape::List(items) => items.iter().find_map(|item| grpc::find_mismatch(method.input(), item)),
        _ => Some(Mismatch {
            message: format!("it takes a stream of {}", method.input().full_name()),
            hint: Some("write a list of messages".to_owned()),
        }),
    }
}

fn shape(value: &StaticValue) -> Shape {
    match value {
        StaticValue::Unknown => Shape::Unknown,
        StaticValue::Dict(entries) => {
            Shape::Dict(entries.iter().map(|(key, value)| (key.clone(), shape(value))).collect())
        }
        StaticValue::List(items) => Shape::List(items.iter().map(shape).collect()),
        StaticValue::Literal(value) => match value {
            Value::None => Shape::Null,
            Value::Bool(_) => Shape::Bool,
            Value::Int(number) => Shape::Int(*number),
            Value::Float(_) => Shape::Number,
            Value::Str(text) => Shape::Text(text.to_string()),
            _ => Shape::Unknown,
        },
    }
}
