//! The answer behind a call's pending value: status, headers and text, or the error.

use std::cell::{Cell, OnceCell};
use std::rc::Rc;
use std::sync::Arc;

use arcstr::ArcStr;
use fanin_json::{Doc, JsonError};
use fanin_lang::value::Struct;
use fanin_lang::{CallHandle, Failure, Kind, Outcome, Value};
use fanin_upstream::{Answer, CallError, ErrorKind, Fault, Upstream};
use http::Method;

use crate::request_docs::object;
use crate::request_object::join_headers;

/// The answer or error of a call, for `.status`, `.error` and the response.
pub(crate) struct CallSource {
    upstream: Arc<Upstream>,
    /// Boxed, because it is empty while the call is in flight.
    answer: OnceCell<Box<Answered>>,
    error: OnceCell<Arc<CallError>>,
    /// The answer is that of a batch, so its headers about the body do not apply to this call.
    split: Cell<bool>,
    /// The answer is a part of a shared document.
    part: Cell<bool>,
    /// The answer's body is passed on without being read.
    streamed: Cell<bool>,
}

struct Answered {
    answer: Answer,
    /// The headers as flows see them.
    headers: OnceCell<Doc>,
}

impl CallSource {
    pub(crate) fn new(upstream: Arc<Upstream>) -> Rc<CallSource> {
        Rc::new(CallSource {
            upstream,
            answer: OnceCell::new(),
            error: OnceCell::new(),
            part: Cell::new(false),
            streamed: Cell::new(false),
            split: Cell::new(false),
        })
    }

    pub(crate) fn upstream(&self) -> &Arc<str> {
        self.upstream.name()
    }

    pub(crate) fn set_answer(&self, answer: Answer) {
        let _ = self.answer.set(Box::new(Answered { answer, headers: OnceCell::new() }));
    }

    pub(crate) fn set_error(&self, error: Arc<CallError>) {
        let _ = self.error.set(error);
    }

    /// The error of an answer that cannot be used. It counts as invalid for the upstream.
    #[cold]
    pub(crate) fn unusable(&self, answer: &Answer, problem: String) -> CallError {
        self.upstream.unusable(answer, problem)
    }

    /// The same error without counting it.
    #[cold]
    pub(crate) fn unreadable(&self, answer: &Answer, problem: String) -> CallError {
        CallError {
            upstream: self.upstream.name().clone(),
            kind: ErrorKind::Decode,
            fault: Fault::Upstream,
            retry: false,
            elapsed: answer.elapsed,
            detail: problem.into(),
        }
    }

    pub(crate) fn set_streamed(&self) {
        self.streamed.set(true);
    }

    pub(crate) fn set_split(&self) {
        self.split.set(true);
    }

    pub(crate) fn set_part(&self) {
        self.part.set(true);
    }

    /// The answer, unless it is a part of a shared document.
    pub(crate) fn whole(&self) -> Option<&Answer> {
        self.answer().filter(|_| !self.part.get())
    }

    pub(crate) fn answer(&self) -> Option<&Answer> {
        self.answer.get().map(|answered| &answered.answer)
    }

    pub(crate) fn error(&self) -> Option<&Arc<CallError>> {
        self.error.get()
    }
}

/// How an answer's body is decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    /// No body: `None`.
    Empty,
    /// JSON, also without a content type.
    Json,
    /// Another type: a string.
    Text,
    /// No body where JSON must be.
    Missing,
}

/// Whether a call's answer has a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyRule {
    /// An answer to HEAD has none.
    Never,
    /// A write is often answered without one.
    Optional,
    /// A read of JSON has one if its status is 200, 203 or 206.
    Required,
}

impl BodyRule {
    pub(crate) fn of(method: &Method, safe: bool) -> BodyRule {
        match (method == Method::HEAD, safe) {
            (true, _) => BodyRule::Never,
            (false, true) => BodyRule::Required,
            (false, false) => BodyRule::Optional,
        }
    }
}

/// Why an answer's body cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unreadable {
    #[error(transparent)]
    Json(#[from] JsonError),
    #[error("the answer has no body (returns = \"any\" accepts it)")]
    NoBody,
}

/// What is wrong with a part that nothing requested.
pub(crate) const UNREQUESTED_PART: &str =
    "status 206: the answer is a part, and the call sent no range (ok = [206] accepts it)";

/// Decides by the `content-type`, not by the bytes, so that invalid JSON is not taken for text.
pub(crate) fn content(answer: &Answer, rule: BodyRule) -> Content {
    let kind = match answer.headers.content_type() {
        // The most frequent value.
        Some(b"application/json") if !answer.body.is_empty() => return Content::Json,
        kind => kind.and_then(|value| std::str::from_utf8(value).ok()),
    };
    let is_json = kind.map(|kind| kind.split(';').next().unwrap_or("").trim()).is_none_or(|kind| {
        kind.eq_ignore_ascii_case("application/json")
            || kind.len() > 5 && kind.as_bytes()[kind.len() - 5..].eq_ignore_ascii_case(b"+json")
    });
    match (answer.body.is_empty(), is_json) {
        (false, true) => Content::Json,
        (false, false) => Content::Text,
        (true, false) => Content::Empty,
        (true, true) => {
            let status = answer.status.as_u16();
            let whole = rule == BodyRule::Required && matches!(status, 200 | 203 | 206);
            let never = rule == BodyRule::Never || matches!(status, 204 | 205 | 304);
            if never || kind.is_none() && !whole { Content::Empty } else { Content::Missing }
        }
    }
}

/// Headers about the whole body of an answer.
const OF_THE_BODY: [&str; 6] = ["content-digest", "content-length", "content-md5", "digest", "etag", "repr-digest"];

const ATTRIBUTES: &[&str] = &["error", "failed", "headers", "status", "text"];

impl CallHandle for CallSource {
    fn attribute(&self, name: &str, outcome: &Outcome) -> Result<Option<Value>, Failure> {
        let value = match name {
            "failed" => Value::Bool(self.error.get().is_some() || outcome.is_err()),
            "error" => match (self.error.get(), outcome) {
                (Some(error), _) => self.describe_error(error),
                (None, Err(failure)) => Value::from(failure.message.as_str()),
                (None, Ok(_)) => Value::None,
            },
            "status" | "headers" | "text" => {
                let Some(answered) = self.answer.get() else {
                    return match outcome {
                        Err(failure) => Err((**failure).clone()),
                        Ok(_) => Ok(Some(Value::None)),
                    };
                };
                let answer = &answered.answer;
                match name {
                    "status" => Value::Int(answer.status.as_u16().into()),
                    "headers" => Value::json(self.headers(answered)?),
                    _ if self.streamed.get() => {
                        let message = format!("the answer of {} is streamed, so its text is not read", self.upstream());
                        return Err(Failure::new(Kind::Value, message));
                    }
                    _ if self.part.get() => match outcome {
                        Ok(value) => {
                            let json = crate::json::to_bytes(value, usize::MAX)
                                .map_err(|error| Failure::new(Kind::Value, error.to_string()))?;
                            Value::str(&String::from_utf8_lossy(&json))
                        }
                        Err(failure) => return Err((**failure).clone()),
                    },
                    _ => match std::str::from_utf8(&answer.body) {
                        Ok(text) => Value::str(text),
                        Err(_) => {
                            let message = format!("the answer of {} is not UTF-8 text", self.upstream());
                            return Err(Failure::new(Kind::Value, message));
                        }
                    },
                }
            }
            _ => return Ok(None),
        };
        Ok(Some(value))
    }

    fn attributes(&self) -> &'static [&'static str] {
        ATTRIBUTES
    }

    fn describe(&self) -> String {
        format!("answer of {}", self.upstream())
    }
}

impl CallSource {
    fn headers(&self, answered: &Answered) -> Result<Doc, Failure> {
        if let Some(doc) = answered.headers.get() {
            return Ok(doc.clone());
        }
        let mut joined = join_headers(&answered.answer.headers);
        if self.split.get() {
            joined.retain(|(name, _)| !OF_THE_BODY.contains(&name.as_str()));
        }
        let doc = object(joined.iter().map(|(name, value)| (name.as_str(), value.as_str())))
            .map_err(|_| Failure::new(Kind::Host, "internal error: invalid headers of an answer"))?;
        Ok(answered.headers.get_or_init(|| doc).clone())
    }

    fn describe_error(&self, error: &CallError) -> Value {
        let status = self.answer().map_or(Value::None, |answer| Value::Int(answer.status.as_u16().into()));
        Value::Struct(Rc::new(Struct::new(vec![
            (ArcStr::from("upstream"), Value::str(&error.upstream)),
            (ArcStr::from("kind"), Value::str(error.kind.as_str())),
            (ArcStr::from("status"), status),
            (ArcStr::from("message"), Value::str(&error.to_string())),
        ])))
    }
}

/// The text of an answer that is not JSON. Invalid UTF-8 is replaced.
pub(crate) fn text(answer: &Answer) -> Value {
    Value::str(&String::from_utf8_lossy(&answer.body))
}
