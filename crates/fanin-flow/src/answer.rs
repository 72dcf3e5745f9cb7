//! What stands behind a call's slot: its answer's status, headers and text, or why it failed.

use std::cell::{Cell, OnceCell};
use std::rc::Rc;
use std::sync::Arc;

use arcstr::ArcStr;
use fanin_json::Doc;
use fanin_lang::value::Struct;
use fanin_lang::{CallHandle, Failure, Kind, Outcome, Value};
use fanin_upstream::{Answer, CallError, Upstream};

use crate::request_object::{join_headers, object};

/// A call's end, as `.status`, `.error` and the response's assembly see it.
pub(crate) struct CallSource {
    upstream: Arc<Upstream>,
    /// On the heap, because most of a call's time it is not there.
    answer: OnceCell<Box<Answered>>,
    error: OnceCell<Arc<CallError>>,
    /// The answer was a batch's: its headers about its body are not this call's.
    split: Cell<bool>,
    /// The answer's bytes are not this call's own: it got a part of what others got too.
    part: Cell<bool>,
}

struct Answered {
    answer: Answer,
    /// As flows see them.
    headers: OnceCell<Doc>,
}

impl CallSource {
    pub(crate) fn new(upstream: Arc<Upstream>) -> Rc<CallSource> {
        Rc::new(CallSource {
            upstream,
            answer: OnceCell::new(),
            error: OnceCell::new(),
            part: Cell::new(false),
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

    pub(crate) fn set_split(&self) {
        self.split.set(true);
    }

    pub(crate) fn set_part(&self) {
        self.part.set(true);
    }

    /// The answer, if all of it is this call's own.
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

/// What an answer's body is taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    /// No body: `None`.
    Empty,
    /// JSON, also where nothing is said.
    Json,
    /// Some other type: its text.
    Text,
}

/// Goes by the `content-type`, not by the bytes, so that a broken JSON body cannot pass for a text.
pub(crate) fn content(answer: &Answer, head: bool) -> Content {
    let kind = match answer.headers.content_type() {
        // Nearly always, word for word.
        Some(b"application/json") if !answer.body.is_empty() => return Content::Json,
        kind => kind.and_then(|value| std::str::from_utf8(value).ok()),
    };
    if answer.body.is_empty() && (head || kind.is_none() || matches!(answer.status.as_u16(), 204 | 205 | 304)) {
        return Content::Empty;
    }
    match kind.map(|kind| kind.split(';').next().unwrap_or("").trim()) {
        None => Content::Json,
        Some(kind) if kind.eq_ignore_ascii_case("application/json") => Content::Json,
        Some(kind) if kind.len() > 5 && kind.as_bytes()[kind.len() - 5..].eq_ignore_ascii_case(b"+json") => {
            Content::Json
        }
        Some(_) if answer.body.is_empty() => Content::Empty,
        Some(_) => Content::Text,
    }
}

/// Headers that speak of all the bytes of an answer.
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
            .map_err(|_| Failure::new(Kind::Host, "internal: headers"))?;
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
