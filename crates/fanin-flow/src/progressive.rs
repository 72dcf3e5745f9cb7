//! Answers in parts: first all that is there when every required call has ended, then each optional part as it comes.
//!
//! The parts are lines of JSON, either as JSON lines or as the data of server-sent events (WHATWG HTML, section 9.2):
//!
//! | line | event | meaning |
//! |---|---|---|
//! | `{"body":…}` | `body` | the answer, with `null` for each part that has not come |
//! | `{"path":"/a/0","value":…}` | `patch` | the part at a JSON pointer (RFC 6901); it replaces the `null`, or is added |
//! | `{"done":true,"partial":["reviews"]}` | `done` | the answer is complete; `partial` names upstreams whose optional calls failed |
//! | `{"error":{…}}` | `error` | the answer cannot be completed: a problem document (RFC 9457) |

use std::collections::VecDeque;

use bytes::Bytes;
use fanin_json::{Writer, write_str};
use fanin_lang::{Failure, PendingValue, Value};
use http::HeaderMap;
use http::header::{ACCEPT, CACHE_CONTROL, HeaderName, HeaderValue, VARY};

use crate::client_headers::ClientHeaders;
use crate::flow_error::FlowError;
use crate::json::{self, Pieces};

/// How the parts are told from each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    /// `text/event-stream`
    Events,
    /// `application/jsonl` or `application/x-ndjson`
    Lines(&'static str),
}

/// The framing that the client prefers to one answer. A wildcard is no wish for parts.
pub(crate) fn framing(headers: &ClientHeaders) -> Option<Framing> {
    let mut best: Option<(f32, Framing)> = None;
    let mut whole = 0.0_f32;
    let values = headers.iter().filter(|(name, _)| **name == ACCEPT).filter_map(|(_, value)| value.to_str().ok());
    for range in values.flat_map(|value| value.split(',')) {
        let mut parts = range.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
        let weight = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
        let weight = weight.map_or(1.0, |weight| weight.trim().parse().unwrap_or(0.0));
        let framing = match kind.as_str() {
            "text/event-stream" => Framing::Events,
            "application/jsonl" => Framing::Lines("application/jsonl"),
            "application/x-ndjson" => Framing::Lines("application/x-ndjson"),
            "application/json" => {
                whole = whole.max(weight);
                continue;
            }
            _ => continue,
        };
        if weight > 0.0 && best.is_none_or(|(other, _)| weight > other) {
            best = Some((weight, framing));
        }
    }
    best.filter(|(weight, _)| *weight >= whole).map(|(_, framing)| framing)
}

impl Framing {
    /// One line of JSON: `head`, the value, and a closing brace.
    pub(crate) fn frame(self, event: &str, head: &[u8], value: Pieces) -> Pieces {
        let mut start = match self {
            Framing::Events => format!("event: {event}\ndata: ").into_bytes(),
            Framing::Lines(_) => Vec::new(),
        };
        start.extend_from_slice(head);
        let mut pieces = Pieces::new();
        pieces.push(start.into());
        pieces.extend(value.into_iter().map(one_line));
        pieces.push(Bytes::from_static(match self {
            Framing::Events => b"}\n\n",
            Framing::Lines(_) => b"}\n",
        }));
        pieces
    }

    /// The part that says that all has come.
    pub(crate) fn done(self) -> Pieces {
        self.frame("done", b"{\"done\":true", Pieces::new())
    }

    /// The part that says that the rest fails.
    pub(crate) fn error(self, error: &FlowError) -> Pieces {
        let mut problem = Vec::new();
        let mut writer = Writer::new(&mut problem);
        writer.begin_object();
        writer.key("type");
        writer.str(&format!("urn:fanin:problem:{}", error.kind));
        writer.key("title");
        writer.str(error.title);
        writer.key("status");
        writer.int(error.status.as_u16().into());
        writer.key("detail");
        writer.str(&error.detail);
        writer.end_object();
        self.frame("error", b"{\"error\":", [Bytes::from(problem)].into_iter().collect())
    }
}

/// Whether a value can be sent in parts: an object or a list that is known itself.
pub(crate) fn is_splittable(value: &Value) -> bool {
    matches!(value, Value::Dict(_) | Value::List(_) | Value::Tuple(_) | Value::Struct(_))
}

/// What depends on the client's `Accept` says so to caches.
pub(crate) fn vary(headers: &mut HeaderMap) {
    headers.append(VARY, HeaderValue::from_static("accept"));
}

/// The headers of an answer in parts: it is for nobody else, and no proxy may wait for its end.
pub(crate) fn headers(framing: Framing, headers: &mut HeaderMap) {
    const BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
    let kind = match framing {
        Framing::Events => "text/event-stream",
        Framing::Lines(kind) => kind,
    };
    headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(BUFFERING, HeaderValue::from_static("no"));
    vary(headers);
}

/// A part that has not come.
struct Late {
    /// JSON pointer.
    path: String,
    slot: PendingValue,
}

/// An answer of which the first part is sent.
pub(crate) struct Progress {
    framing: Framing,
    /// In the order of the body.
    late: Vec<Late>,
    /// Bytes that the answer may still have.
    left: usize,
    /// The list of errors is to be added.
    errors: bool,
    /// The mark of completion, or an error, is sent.
    ended: bool,
}

impl Progress {
    /// The first part, from a body without pending parts that must be awaited.
    ///
    /// # Errors
    /// If it cannot be JSON, or is too large.
    pub(crate) fn start(
        limit: usize,
        framing: Framing,
        body: &Value,
        errors: bool,
    ) -> Result<(Pieces, Progress), json::JsonError> {
        let mut progress = Progress { framing, late: Vec::new(), left: limit, errors, ended: false };
        let pieces = progress.write(body, String::new())?;
        Ok((progress.frame("body", b"{\"body\":", pieces), progress))
    }

    /// Writes a value, and notes its parts that have not come.
    fn write(&mut self, value: &Value, path: String) -> Result<Pieces, json::JsonError> {
        let pieces = json::to_pieces_without_pending(value, self.left)?;
        self.left -= pieces.iter().map(Bytes::len).sum::<usize>();
        let before = self.late.len();
        let mut path = path;
        find_late(value, &mut path, &mut self.late);
        // What came with a part comes before the parts behind it.
        let found = self.late.split_off(before);
        self.late.splice(0..0, found);
        Ok(pieces)
    }

    /// Whether a part has come that is not sent.
    pub(crate) fn has_settled(&mut self) -> bool {
        self.follow();
        self.late.iter().any(|late| late.slot.is_settled())
    }

    /// A function's result may be a pending value itself. The part has come with that.
    fn follow(&mut self) {
        for late in &mut self.late {
            while let Some(Ok(Value::Pending(inner))) = late.slot.outcome() {
                late.slot = inner;
            }
        }
    }

    /// Whether parts are missing.
    pub(crate) fn is_late(&self) -> bool {
        !self.late.is_empty()
    }

    /// The first part, in the order of the body, that has come and is not sent.
    ///
    /// # Errors
    /// The failure of the part, which fails the flow, and what has failed.
    pub(crate) fn next_settled(&mut self) -> Option<Result<Pieces, (Failure, PendingValue)>> {
        self.follow();
        let at = self.late.iter().position(|late| late.slot.is_settled())?;
        let Late { path, slot } = self.late.remove(at);
        let written = match slot.outcome()? {
            Ok(value) => self.write(&value, path.clone()).map_err(|error| error.failure()),
            Err(failure) => Err((*failure).clone()),
        };
        Some(written.map(|pieces| self.patch(&path, pieces)).map_err(|failure| (failure, slot)))
    }

    /// What follows the last part; `None` at the end. `missing`: the list of errors, and the names of the upstreams that failed.
    pub(crate) fn next_at_end(&mut self, missing: Option<(Vec<u8>, String)>) -> Option<Pieces> {
        if std::mem::take(&mut self.errors)
            && let Some((list, _)) = missing
        {
            return Some(self.patch("/errors", [Bytes::from(list)].into_iter().collect()));
        }
        (!std::mem::replace(&mut self.ended, true)).then(|| self.done(missing.map(|(_, names)| names)))
    }

    /// Nothing follows.
    pub(crate) fn end(&mut self) {
        (self.errors, self.ended) = (false, true);
        self.late.clear();
    }

    fn patch(&self, path: &str, value: Pieces) -> Pieces {
        let mut head = b"{\"path\":".to_vec();
        write_str(&mut head, path);
        head.extend_from_slice(b",\"value\":");
        self.frame("patch", &head, value)
    }

    fn done(&self, failed: Option<String>) -> Pieces {
        let Some(failed) = failed else { return self.framing.done() };
        let mut names = Vec::new();
        let mut writer = Writer::new(&mut names);
        writer.begin_array();
        failed.split(',').for_each(|name| writer.str(name));
        writer.end_array();
        self.frame("done", b"{\"done\":true,\"partial\":", [Bytes::from(names)].into_iter().collect())
    }

    /// The part that says that the rest fails.
    pub(crate) fn error(&self, error: &FlowError) -> Pieces {
        self.framing.error(error)
    }

    fn frame(&self, event: &str, head: &[u8], value: Pieces) -> Pieces {
        self.framing.frame(event, head, value)
    }
}

/// The same JSON without line breaks. They can only be whitespace between its tokens.
fn one_line(piece: Bytes) -> Bytes {
    if memchr::memchr2(b'\n', b'\r', &piece).is_none() {
        return piece;
    }
    piece.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte }).collect()
}

/// Finds the pending parts of a value, in its order. The language bounds the nesting of containers.
fn find_late(value: &Value, path: &mut String, found: &mut Vec<Late>) {
    let mut member = |path: &mut String, key: &str, value: &Value| {
        let length = path.len();
        path.push('/');
        // RFC 6901, section 4.
        key.chars().for_each(|letter| match letter {
            '~' => path.push_str("~0"),
            '/' => path.push_str("~1"),
            other => path.push(other),
        });
        find_late(value, path, found);
        path.truncate(length);
    };
    match value {
        Value::Pending(slot) => match slot.outcome() {
            Some(Ok(inner)) => find_late(&inner, path, found),
            // A failure was found when the value was written.
            Some(Err(_)) => {}
            None => found.push(Late { path: path.clone(), slot: slot.clone() }),
        },
        Value::List(list) => {
            list.items().iter().enumerate().for_each(|(at, value)| member(path, &at.to_string(), value));
        }
        Value::Tuple(items) => items.iter().enumerate().for_each(|(at, value)| member(path, &at.to_string(), value)),
        Value::Dict(dict) => {
            for (key, value) in dict.map().iter() {
                // Other keys were refused when the value was written.
                if let Ok(Value::Str(key)) = key.decide() {
                    member(path, &key, value);
                }
            }
        }
        Value::Struct(fields) => fields.fields().iter().for_each(|(key, value)| member(path, key, value)),
        _ => {}
    }
}

/// Parts that wait to be sent.
#[derive(Default)]
pub(crate) struct Queue(VecDeque<Bytes>);

impl Queue {
    /// Adds a part, as one piece if it is short: each piece is a write.
    pub(crate) fn push(&mut self, pieces: Pieces) {
        const SHORT: usize = 16 << 10;
        match pieces.iter().map(Bytes::len).sum::<usize>() {
            0..=SHORT => self.0.push_back(pieces.concat().into()),
            _ => self.0.extend(pieces),
        }
    }

    pub(crate) fn pop(&mut self) -> Option<Bytes> {
        self.0.pop_front()
    }
}
