//! The builtins of flows besides the language: `response`, `abort` and `stream`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use fanin_lang::value::Object;
use fanin_lang::{Args, Awaits, Ctx, Failure, Globals, Kind, NativeFn, Stop, Value};
use fanin_upstream::StreamBounds;
use http::StatusCode;

use crate::call::STREAM;
use crate::flow_host::{FlowHost, StreamOptions};
use crate::messages;

/// `response(status = 200, headers = {}, body = None, text = None)`
#[derive(Clone)]
pub(crate) struct ResponseObject {
    /// `None` if the flow sets none: 200, or that of a streamed answer.
    pub(crate) status: Option<StatusCode>,
    pub(crate) headers: Value,
    pub(crate) body: Value,
    pub(crate) text: Option<Value>,
}

impl fmt::Debug for ResponseObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<response {}>", self.status().as_u16())
    }
}

impl ResponseObject {
    pub(crate) fn status(&self) -> StatusCode {
        self.status.unwrap_or(StatusCode::OK)
    }
}

impl Object for ResponseObject {
    fn type_name(&self) -> &'static str {
        "response"
    }

    fn attribute(&self, name: &str) -> Result<Option<Value>, Stop> {
        Ok(Some(match name {
            "status" => Value::Int(self.status().as_u16().into()),
            "headers" => self.headers.clone(),
            "body" => self.body.clone(),
            "text" => self.text.clone().unwrap_or_default(),
            _ => return Ok(None),
        }))
    }

    fn names(&self) -> Vec<&str> {
        vec!["body", "headers", "status", "text"]
    }

    fn visit(&self, visit: &mut dyn FnMut(&Value)) {
        visit(&self.headers);
        visit(&self.body);
        self.text.iter().for_each(visit);
    }

    fn show(&self) -> String {
        format!("{self:?}")
    }
}

/// `abort(404, "no such product")`: the payload of the failure that ends the flow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Abort {
    pub(crate) status: StatusCode,
    pub(crate) message: String,
}

fn status(value: &Value, name: &str, least: u16) -> Result<StatusCode, Stop> {
    match value.decide()? {
        Value::Int(status) if (i64::from(least)..=599).contains(&status) => {
            // Every number from 100 to 599 is a valid status.
            StatusCode::from_u16(status as u16).map_err(|_| Stop::fail(Kind::Value, "no status"))
        }
        _ => Err(Stop::fail(Kind::Value, format!("the status of {name}() must be an int from {least} to 599"))),
    }
}

fn response(_: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    let [code, headers, body, text] = args.bind("response", false, ["status", "headers", "body", "text"], 0)?;
    let status = match code {
        Some(code) => Some(status(code, "response", 200)?),
        None => None,
    };
    if body.is_some() && text.is_some() {
        return Err(Stop::fail(Kind::Arguments, "response() takes body or text, not both"));
    }
    Ok(Value::object(ResponseObject {
        status,
        headers: headers.cloned().unwrap_or_default(),
        body: body.cloned().unwrap_or_default(),
        text: text.cloned(),
    }))
}

fn abort(_: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    let [code, message] = args.bind("abort", false, ["status", "message"], 1)?;
    let status = match code {
        Some(code) => status(code, "abort", 400)?,
        None => StatusCode::BAD_REQUEST,
    };
    let message = match message.map(Value::decide).transpose()? {
        None | Some(Value::None) => status.canonical_reason().unwrap_or("").to_owned(),
        Some(Value::Str(text)) => text.to_string(),
        Some(_) => return Err(Stop::fail(Kind::Type, "abort()'s message must be a string")),
    };
    let payload = Arc::new(Abort { status, message: message.clone() });
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

static FUNCTIONS: [NativeFn; 3] = [
    NativeFn::new("response", response)
        .awaits(Awaits::These(0))
        .signature("response(status: int?, headers?, body?, text?)"),
    NativeFn::new("abort", abort).signature("abort(status: int, message: str | None?)"),
    NativeFn::new(STREAM, stream).awaits(Awaits::These(0)).signature(
        "stream(answer, ranges: bool?, max: int | str | None?, idle_timeout: str | None?, timeout: str | None?, format: str | None?)",
    ),
];

/// The globals of the language, with these functions.
pub(crate) fn globals() -> Globals {
    let mut globals = Globals::standard();
    globals.functions(&FUNCTIONS);
    globals.types(&["request", "response", "upstream"]);
    globals
}
