//! A stub: which calls it is for, and what it answers them.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use bytes::Bytes;
use fanin_lang::{Position, Value};
use fanin_upstream::{ErrorKind, StubRequest};
use http::StatusCode;
use http::header::{HeaderName, HeaderValue};

use crate::delay::Delay;
use crate::pattern::Pattern;

/// One `stub(...)` of a test. The newest that fits a request answers it.
pub(crate) struct StubRule {
    /// The upstream's name.
    pub(crate) upstream: String,
    /// The method, operation or statement; any, if the stub is for a whole upstream.
    pub(crate) method: Option<String>,
    pub(crate) path: Option<Pattern>,
    /// Query parameters that the request must have.
    pub(crate) query: Vec<(String, String)>,
    /// One for each request in turn; the last one stays.
    pub(crate) answers: Vec<AnswerSpec>,
    /// Items by key, for a batched operation.
    pub(crate) items: Option<Value>,
    /// How often it must have been used at the end.
    pub(crate) times: Option<u64>,
    pub(crate) used: Cell<u64>,
    pub(crate) position: Position,
}

/// What a request is answered.
#[derive(Clone, Default)]
pub(crate) struct AnswerSpec {
    /// JSON, or a function of the call that gives it.
    pub(crate) answer: Option<Value>,
    pub(crate) text: Option<String>,
    pub(crate) status: Option<Status>,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) delay: Option<Delay>,
    pub(crate) fail: Option<Fail>,
}

/// A status of HTTP, or a code of gRPC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Http(StatusCode),
    Grpc(&'static str, StatusCode),
}

/// How a request fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fail {
    /// It is never answered: its timeout ends it.
    Timeout,
    /// The answer's body is broken JSON.
    Decode,
    /// The answer is larger than `max_answer`.
    TooLarge,
    /// The transport fails in this way.
    Kind(ErrorKind),
}

/// The ways to fail that a test can name.
pub(crate) const FAILURES: [(&str, Fail); 6] = [
    ("timeout", Fail::Timeout),
    ("refused", Fail::Kind(ErrorKind::Refused)),
    ("connect", Fail::Kind(ErrorKind::Connect)),
    ("protocol", Fail::Kind(ErrorKind::Protocol)),
    ("decode", Fail::Decode),
    ("too_large", Fail::TooLarge),
];

impl Fail {
    pub(crate) fn parse(name: &str) -> Result<Fail, String> {
        FAILURES.iter().find(|(known, _)| *known == name).map(|(_, fail)| *fail).ok_or_else(|| {
            let known: Vec<&str> = FAILURES.iter().map(|(name, _)| *name).collect();
            format!("{name:?} is no failure of a stub; they are {} (a status is status = 503)", known.join(", "))
        })
    }
}

impl AnswerSpec {
    /// This, and where it says nothing, the other.
    pub(crate) fn or(self, other: &AnswerSpec) -> AnswerSpec {
        let has_body = self.answer.is_some() || self.text.is_some() || self.fail.is_some() || self.status.is_some();
        AnswerSpec {
            answer: self.answer.or_else(|| other.answer.clone().filter(|_| !has_body)),
            text: self.text.or_else(|| other.text.clone().filter(|_| !has_body)),
            status: self.status.or_else(|| other.status.clone()),
            headers: if self.headers.is_empty() { other.headers.clone() } else { self.headers },
            delay: self.delay.or(other.delay),
            fail: self.fail.or(other.fail.filter(|_| !has_body)),
        }
    }
}

impl StubRule {
    /// The path's parameters, if the stub is for this request. `method` is what the flow called.
    pub(crate) fn find(&self, request: &StubRequest, method: &str) -> Option<Vec<(String, String)>> {
        // `call` of a gRPC upstream stands for any method: the path names it.
        let fits = |own: &String| own == method || own == "call" && request.operation.is_none() && self.path.is_some();
        if self.upstream != *request.upstream || !self.method.as_ref().is_none_or(fits) {
            return None;
        }
        let (path, query) = split(&request.path_and_query);
        if !self.query.is_empty() {
            let given: Vec<(String, String)> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
            if !self.query.iter().all(|pair| given.contains(pair)) {
                return None;
            }
        }
        match &self.path {
            None => Some(Vec::new()),
            Some(pattern) => pattern.find(path),
        }
    }

    /// What the next request is answered.
    pub(crate) fn next(&self) -> (u64, AnswerSpec) {
        let number = self.used.replace(self.used.get() + 1);
        let at = usize::try_from(number).unwrap_or(usize::MAX).min(self.answers.len().saturating_sub(1));
        (number, self.answers.get(at).cloned().unwrap_or_default())
    }

    /// As messages name it: `catalog.get /products/{id}`.
    pub(crate) fn describe(&self) -> String {
        let mut text = self.upstream.clone();
        if let Some(method) = &self.method {
            text = format!("{text}.{method}");
        }
        match &self.path {
            Some(path) => format!("{text} {}", path.text()),
            None => text,
        }
    }
}

/// Path and query.
pub(crate) fn split(path_and_query: &str) -> (&str, &str) {
    path_and_query.split_once('?').unwrap_or((path_and_query, ""))
}

/// One request that reached a stub.
#[derive(Clone, Debug)]
pub(crate) struct SentRequest {
    pub(crate) request: StubRequest,
    /// What the flow called: a verb, an operation, a statement.
    pub(crate) method: String,
    /// Milliseconds since the test began.
    pub(crate) at: f64,
    /// How long somebody waits for the answer.
    pub(crate) left: Duration,
    /// Whether it was sent before the server would be ready: for a snapshot.
    pub(crate) is_start: bool,
    /// What it is answered; `None` without a stub.
    pub(crate) planned: Option<Planned>,
}

/// What a request is answered, as far as an exploration has to know.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    /// When and what the stub says, if it is an answer.
    pub(crate) healthy: Option<(Duration, StatusCode, Bytes)>,
    /// Whether something else was said.
    pub(crate) deviates: bool,
    pub(crate) delay: Duration,
    pub(crate) end: End,
}

/// How a request ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Answer,
    Fails,
    /// It did not reach the backend.
    NotSent,
    /// Nobody answers it.
    Never,
}

/// Stubs and what reached them, of one test.
#[derive(Default)]
pub(crate) struct Stubs {
    pub(crate) rules: RefCell<Vec<std::rc::Rc<StubRule>>>,
    pub(crate) sent: RefCell<Vec<SentRequest>>,
    /// What makes the test fail whatever the flow does with it: calls without a stub, functions of stubs that fail.
    pub(crate) problems: RefCell<Vec<String>>,
}

impl Stubs {
    pub(crate) fn problem(&self, text: String) {
        let mut problems = self.problems.borrow_mut();
        if !problems.contains(&text) {
            problems.push(text);
        }
    }
}
