//! The builtins of flows besides the language: `response`, `abort` and `stream`; `redirect`, `cookie`, `sign`, `unsign` and `file` have files
//! of their own.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fanin_lang::value::view;
use fanin_lang::{
    Args, Argument, Awaits, CallDiagnostic, Ctx, Failure, Globals, Kind, NativeFn, StaticCall, Stop, Value,
};
use fanin_upstream::StreamBounds;
use http::StatusCode;

use crate::call::STREAM;
use crate::cookies;
use crate::flow_host::{FlowHost, StreamOptions};
use crate::form;
use crate::json;
use crate::messages;
use crate::redirect;
use crate::response_object::{ResponseObject, RpcParts};
use crate::rpc_status::{RpcStatus, error_code};
use crate::signing;

/// `abort(404, "no such product")`: the payload of the failure that ends the flow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Abort {
    pub(crate) status: StatusCode,
    pub(crate) message: String,
    /// The status of a gRPC code.
    pub(crate) rpc: Option<RpcStatus>,
}

/// An HTTP status, and the number of the code if it is given as one of gRPC.
fn status(value: &Value, name: &str, least: u16) -> Result<(StatusCode, Option<u8>), Stop> {
    match value.decide()? {
        Value::Int(status) if (i64::from(least)..=599).contains(&status) => {
            // Every number from 100 to 599 is a valid status.
            let status = StatusCode::from_u16(status as u16).map_err(|_| Stop::fail(Kind::Value, "no status"))?;
            Ok((status, None))
        }
        Value::Str(code) => match error_code(&code) {
            Ok((number, status)) => Ok((status, Some(number))),
            Err((what, hint)) => Err(Failure::new(Kind::Value, format!("{name}(): {what}")).with_hint(hint).into()),
        },
        _ => Err(Stop::fail(
            Kind::Value,
            format!(
                "the status of {name}() must be an int from {least} to 599, or a code of gRPC such as \"NOT_FOUND\""
            ),
        )),
    }
}

/// What is certainly wrong with a status that is written out.
fn check_status(name: &str, call: &StaticCall<'_>) -> Vec<CallDiagnostic> {
    let given = [Argument::Named("status".to_owned()), Argument::Position(0)];
    let literals = given.into_iter().filter_map(|argument| Some(((call.literal)(&argument)?, argument)));
    let wrong = literals.filter_map(|(value, argument)| {
        let (what, hint) = error_code(value.as_str()?).err()?;
        let message = format!("{name}(): {what}");
        Some(CallDiagnostic { argument: Some(argument), name_is_wrong: false, message, hint: Some(hint) })
    });
    wrong.collect()
}

/// The largest details of an error, in bytes of JSON. They are sent in a header.
const MAX_DETAILS: usize = 4 << 10;

/// The details of an error as JSON.
pub(crate) fn details(name: &str, value: Option<&Value>) -> Result<Vec<Bytes>, Failure> {
    let wrong = |what: String| Failure::new(Kind::Value, format!("{name}(): {what}"));
    let pending = || wrong("details are pending".to_owned());
    let Some(value) = value else { return Ok(Vec::new()) };
    let value = value.decide().map_err(|_| pending())?;
    if matches!(value, Value::None) {
        return Ok(Vec::new());
    }
    if !matches!(value, Value::List(_) | Value::Tuple(_)) {
        return Err(wrong("details must be a list of messages, each a dict with \"@type\"".to_owned()));
    }
    let items = view::elements(&value).map_err(|_| pending())?;
    let mut left = MAX_DETAILS;
    let one = |item: Value| {
        let json = json::to_bytes(&item, left).map_err(|error| wrong(format!("details: {error}")))?;
        left -= json.len().min(left);
        Ok(json)
    };
    items.into_iter().map(one).collect()
}

fn response(_: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    let names = ["status", "headers", "body", "text", "message", "details", "trailers", "cookies"];
    let [code, headers, body, text, message, details, trailers, cookies] = args.bind("response", false, names, 0)?;
    let (status, code) = match code {
        Some(code) => status(code, "response", 200).map(|(status, code)| (Some(status), code))?,
        None => (None, None),
    };
    let rpc = if code.is_some() || message.is_some() || details.is_some() || trailers.is_some() {
        let [message, details, trailers] = [message, details, trailers].map(|value| value.cloned());
        if code.is_none() && (message.is_some() || details.is_some()) {
            let what = "response(): message and details need a status that is a code of gRPC, such as \"NOT_FOUND\"";
            return Err(Stop::fail(Kind::Arguments, what));
        }
        Some(Box::new(RpcParts { code, message, details, trailers }))
    } else {
        None
    };
    if body.is_some() && text.is_some() {
        return Err(Stop::fail(Kind::Arguments, "response() takes body or text, not both"));
    }
    Ok(Value::object(ResponseObject {
        status,
        headers: headers.cloned().unwrap_or_default(),
        body: body.cloned().unwrap_or_default(),
        text: text.cloned(),
        is_empty: false,
        cookies: cookies.cloned().unwrap_or_default(),
        rpc,
    }))
}

fn abort(_: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    let [code, message, given] = args.bind("abort", false, ["status", "message", "details"], 1)?;
    let (status, code) = match code {
        Some(code) => status(code, "abort", 400)?,
        None => (StatusCode::BAD_REQUEST, None),
    };
    let message = match message.map(Value::decide).transpose()? {
        None | Some(Value::None) => status.canonical_reason().unwrap_or("").to_owned(),
        Some(Value::Str(text)) => text.to_string(),
        Some(_) => return Err(Stop::fail(Kind::Type, "abort()'s message must be a string")),
    };
    let details = details("abort", given)?;
    if code.is_none() && !details.is_empty() {
        let what = "abort(): details need a status that is a code of gRPC, such as \"NOT_FOUND\"";
        return Err(Stop::fail(Kind::Arguments, what));
    }
    let rpc = code.map(|code| RpcStatus { code, message: message.clone(), details, ..RpcStatus::default() });
    let payload = Arc::new(Abort { status, message: message.clone(), rpc });
    Err(Failure::new(Kind::Host, message).with_payload(payload).into())
}

/// `stream(answer, ranges = False, max = None, idle_timeout = None, timeout = None, format = None)`
fn stream(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    let [answer, ranges, max, idle_timeout, timeout, format] =
        args.bind(STREAM, false, ["answer", "ranges", "max", "idle_timeout", "timeout", "format"], 1)?;
    let wrong = |name: &str, wanted: &str| Stop::fail(Kind::Arguments, format!("stream()'s {name} must be {wanted}"));
    let given = |value: Option<&Value>| -> Result<Option<Value>, Stop> {
        Ok(value.map(Value::decide).transpose()?.filter(|value| !matches!(value, Value::None)))
    };
    let duration = |name: &str, value: Option<&Value>| -> Result<Option<Duration>, Stop> {
        let Some(value) = given(value)? else { return Ok(None) };
        let read = value.as_str().and_then(|text| fanin_config::parse_duration(text).ok());
        match read.filter(|duration| !duration.is_zero()) {
            Some(duration) => Ok(Some(duration)),
            None => Err(wrong(name, "a duration such as \"30s\"")),
        }
    };
    let ranges = match given(ranges)? {
        None => false,
        Some(Value::Bool(ranges)) => ranges,
        Some(_) => return Err(wrong("ranges", "True or False")),
    };
    let max = match given(max)? {
        None => None,
        Some(Value::Int(max)) if max > 0 => usize::try_from(max).ok(),
        Some(value) => match value.as_str().and_then(|text| fanin_config::parse_size(text).ok()) {
            Some(max) if max > 0 => usize::try_from(max).ok(),
            _ => return Err(wrong("max", "a size such as \"2GB\"")),
        },
    };
    let format = match given(format)? {
        None => None,
        Some(value) => match value.as_str().and_then(messages::format) {
            Some(framing) => Some(framing),
            None => return Err(wrong("format", "\"jsonl\" or \"sse\"")),
        },
    };
    let bounds = StreamBounds {
        max,
        idle_timeout: duration("idle_timeout", idle_timeout)?,
        timeout: duration("timeout", timeout)?,
    };
    // The result of a function that made the call is the call, once it is there.
    let mut value = answer.cloned().unwrap_or_default();
    while let Value::Pending(pending) = &value
        && pending.source().is_none()
    {
        value = match pending.outcome() {
            Some(Ok(inner)) => inner,
            Some(Err(failure)) => return Err(Stop::Fail(Box::new((*failure).clone()))),
            None => return Err(Stop::Wait(pending.clone())),
        };
    }
    match &value {
        Value::Pending(slot) if slot.is_call() => {
            let Some(host) = ctx.host.as_any().downcast_mut::<FlowHost>() else {
                return Err(Stop::fail(Kind::Host, "stream() works in flows only"));
            };
            host.stream(slot, StreamOptions { ranges, format, bounds })?;
            Ok(value)
        }
        _ => Err(Stop::fail(
            Kind::Arguments,
            "stream() takes a call of an upstream, such as stream(files.get(\"/big\"))",
        )),
    }
}

static FUNCTIONS: [NativeFn; 8] = [
    NativeFn::new("response", response)
        .awaits(Awaits::These(0))
        .signature("response(status: int | str?, headers?, body?, text?, message?, details?, trailers?, cookies?)")
        .checked(|call| check_status("response", call)),
    NativeFn::new("abort", abort)
        .awaits(Awaits::Deep)
        .signature("abort(status: int | str, message: str | None?, details: list | None?)")
        .checked(|call| check_status("abort", call)),
    NativeFn::new("redirect", redirect::redirect)
        .awaits(Awaits::Deep)
        .signature("redirect(location, status: int?, query: dict | None?, hosts: list | None?, cookies: list | None?)")
        .checked(redirect::check),
    NativeFn::new("cookie", cookies::cookie).awaits(Awaits::Deep).signature(
        "cookie(name: str, value, max_age: int | str | None?, path: str?, domain: str | None?, http_only: bool?, secure: bool?, same_site: str?)",
    ),
    NativeFn::new("sign", signing::sign).awaits(Awaits::Deep).signature("sign(value: str, name: str?)"),
    NativeFn::new("unsign", signing::unsign)
        .awaits(Awaits::Deep)
        .signature("unsign(text, name: str?, max_age: str | None?)"),
    NativeFn::new("file", form::file).awaits(Awaits::Deep).signature("file(content, filename: str, type: str?)"),
    NativeFn::new(STREAM, stream).awaits(Awaits::These(0)).signature(
        "stream(answer, ranges: bool?, max: int | str | None?, idle_timeout: str | None?, timeout: str | None?, format: str | None?)",
    ),
];

/// The globals of the language, with these functions.
pub(crate) fn globals() -> Globals {
    let mut globals = Globals::standard();
    globals.functions(&FUNCTIONS);
    globals.types(&["cookie", "file", "request", "response", "upstream"]);
    globals
}
