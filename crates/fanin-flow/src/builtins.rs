//! The builtins of flows besides the language: `response` and `abort`.

use std::fmt;
use std::sync::Arc;

use fanin_lang::value::Object;
use fanin_lang::{Args, Awaits, Ctx, Failure, Globals, Kind, NativeFn, Stop, Value};
use http::StatusCode;

/// `response(status = 200, headers = {}, body = None, text = None)`
#[derive(Clone)]
pub(crate) struct ResponseObject {
    pub(crate) status: StatusCode,
    pub(crate) headers: Value,
    pub(crate) body: Value,
    pub(crate) text: Option<Value>,
}

impl fmt::Debug for ResponseObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<response {}>", self.status.as_u16())
    }
}

impl Object for ResponseObject {
    fn type_name(&self) -> &'static str {
        "response"
    }

    fn attribute(&self, name: &str) -> Result<Option<Value>, Stop> {
        Ok(Some(match name {
            "status" => Value::Int(self.status.as_u16().into()),
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
        Some(code) => status(code, "response", 200)?,
        None => StatusCode::OK,
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

static FUNCTIONS: [NativeFn; 2] = [
    NativeFn::new("response", response)
        .awaits(Awaits::These(0))
        .signature("response(status: int?, headers?, body?, text?)"),
    NativeFn::new("abort", abort).signature("abort(status: int, message: str | None?)"),
];

/// The globals of the language, with these functions.
pub(crate) fn globals() -> Globals {
    let mut globals = Globals::standard();
    globals.functions(&FUNCTIONS);
    globals.types(&["request", "response", "upstream"]);
    globals
}
