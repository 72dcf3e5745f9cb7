//! One deviation: a request, and what it is answered instead.

use std::cell::Cell;
use std::fmt::{self, Write};
use std::time::Duration;

use http::StatusCode;
use serde_json::Value as Json;

use crate::delay::Delay;
use crate::deviate::{Deviation, Edit};
use crate::pattern::Pattern;
use crate::stub::{AnswerSpec, Fail, Status};
use crate::values;
use fanin_upstream::ErrorKind;

/// A request of a run, by what it is and how many like it came before.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Slot {
    pub(crate) upstream: String,
    /// The operation, statement or verb.
    pub(crate) method: Option<String>,
    /// Empty if the method says all.
    pub(crate) path: String,
    /// From 1.
    pub(crate) number: u64,
}

/// What a request is answered instead of what its stub says.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Change {
    /// It is never answered.
    Never,
    /// It is answered after so long, just before its timeout.
    Late(Duration),
    /// It is answered after so long.
    After(Duration),
    Refused,
    /// The transport breaks off.
    Protocol,
    Status(u16),
    /// A code of gRPC.
    Code(&'static str, u16),
    Malformed,
    /// The body is this JSON.
    Body(String),
    /// The body lacks this key.
    Without(String),
    /// The body has this JSON at this key.
    Replace(String, String),
}

/// All deviations of a run, in order.
pub(crate) type Case = Vec<(Slot, Change)>;

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.target())?;
        if !self.path.is_empty() {
            write!(f, " {}", self.path)?;
        }
        if self.number > 1 {
            write!(f, " (request {})", self.number)?;
        }
        Ok(())
    }
}

impl Slot {
    /// As flows name it: `catalog.products`.
    pub(crate) fn target(&self) -> String {
        match &self.method {
            Some(method) => format!("{}.{method}", self.upstream),
            None => self.upstream.clone(),
        }
    }
}

impl Change {
    /// In words, after the request's name.
    pub(crate) fn words(&self) -> String {
        match self {
            Change::Never => "is not answered".to_owned(),
            Change::Late(after) => format!("is answered just before its timeout, after {}", duration(*after)),
            Change::After(after) => format!("is answered after {}", duration(*after)),
            Change::Refused => "is refused".to_owned(),
            Change::Protocol => "is broken off".to_owned(),
            Change::Status(status) => format!("is answered with status {status}"),
            Change::Code(code, _) => format!("is answered with {code}"),
            Change::Malformed => "is answered with broken JSON".to_owned(),
            Change::Body(json) => format!("is answered with {json}"),
            Change::Without(path) => format!("is answered without the key {path}"),
            Change::Replace(path, json) => format!("is answered with {json} as {path}"),
        }
    }

    /// As arguments of `deviate(...)`.
    fn code(&self) -> String {
        match self {
            Change::Never => "fail = \"timeout\"".to_owned(),
            Change::Late(after) | Change::After(after) => format!("delay = \"{}\"", duration(*after)),
            Change::Refused => "fail = \"refused\"".to_owned(),
            Change::Protocol => "fail = \"protocol\"".to_owned(),
            Change::Status(status) => format!("status = {status}"),
            Change::Code(code, _) => format!("status = \"{code}\""),
            Change::Malformed => "fail = \"decode\"".to_owned(),
            Change::Body(json) => format!("answer = {}", literal(json)),
            Change::Without(path) => format!("without = {path:?}"),
            Change::Replace(path, json) => format!("replace = {{{path:?}: {}}}", literal(json)),
        }
    }

    /// Whether it changes no more than the time of an answer.
    pub(crate) fn is_order(&self) -> bool {
        matches!(self, Change::After(_))
    }

    fn spec(&self) -> (AnswerSpec, Vec<Edit>) {
        let mut spec = AnswerSpec::default();
        let mut edits = Vec::new();
        match self {
            Change::Never => spec.fail = Some(Fail::Timeout),
            Change::Late(after) | Change::After(after) => spec.delay = Some(Delay::Fixed(*after)),
            Change::Refused => spec.fail = Some(Fail::Kind(ErrorKind::Refused)),
            Change::Protocol => spec.fail = Some(Fail::Kind(ErrorKind::Protocol)),
            Change::Status(status) => spec.status = StatusCode::from_u16(*status).ok().map(Status::Http),
            Change::Code(code, status) => {
                spec.status = StatusCode::from_u16(*status).ok().map(|status| Status::Grpc(code, status));
            }
            Change::Malformed => spec.fail = Some(Fail::Decode),
            Change::Body(json) => spec.answer = values::json(json.as_bytes()),
            Change::Without(path) => edits.push(Edit::Without(path.clone())),
            Change::Replace(path, json) => {
                edits.push(Edit::Replace(path.clone(), serde_json::from_str(json).unwrap_or(Json::Null)));
            }
        }
        (spec, edits)
    }
}

/// The deviation that answers the request so.
pub(crate) fn rule((slot, change): &(Slot, Change)) -> Deviation {
    let (spec, edits) = change.spec();
    Deviation {
        upstream: slot.upstream.clone(),
        method: slot.method.clone(),
        path: Pattern::parse(&slot.path).ok(),
        number: Some(slot.number),
        spec,
        edits,
        seen: Cell::new(0),
    }
}

/// In words.
pub(crate) fn words((slot, change): &(Slot, Change)) -> String {
    format!("{slot} {}", change.words())
}

/// As a line of a test.
pub(crate) fn line((slot, change): &(Slot, Change)) -> String {
    let mut line = format!("deviate({}", slot.target());
    if !slot.path.is_empty() {
        let _ = write!(line, ", {:?}", slot.path);
    }
    let _ = write!(line, ", number = {}, {})", slot.number, change.code());
    line
}

/// JSON as Starlark: what changes use has no other literals.
fn literal(json: &str) -> &str {
    if json == "null" { "None" } else { json }
}

fn duration(time: Duration) -> String {
    let micros = time.as_micros();
    if micros.is_multiple_of(1000) { format!("{}ms", micros / 1000) } else { format!("{micros}us") }
}
