//! Why a flow failed.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use arcstr::ArcStr;

use super::source_position::Position;

/// One function of a traceback.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceFrame {
    /// Name of the function; `<module>` for the top level.
    pub function: ArcStr,
    /// The place it was at.
    pub position: Position,
}

/// The kinds of failures, as a program's author tells them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// An argument of the right type and a wrong value.
    Value,
    /// An operation that the type does not have.
    Type,
    /// A key that is not in a dict or an answer.
    Key,
    /// An index outside a sequence.
    Index,
    /// A variable that has no value yet.
    Name,
    /// A field or method that does not exist.
    Attribute,
    /// Division by zero, a shift by too much, a number too large.
    Arithmetic,
    /// A change to something that cannot be changed, or not now.
    Frozen,
    /// Wrong arguments of a call.
    Arguments,
    /// A function that calls itself.
    Recursion,
    /// One of the guards: steps, memory, depth, fibers, sizes.
    Limit,
    /// `fail(...)`.
    Fail,
    /// Something that the host reports: a call that failed, an abort.
    Host,
}

/// Why a flow failed. `Display` is the message alone; position and trace are for the log.
#[derive(Clone, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// What kind of mistake it is.
    pub kind: Kind,
    /// One line that says what is wrong.
    pub message: String,
    /// Where. A failed call carries the line that made the call; all others the operation that failed.
    pub position: Option<Position>,
    /// The functions that were running, outermost first; the last is where the failure came up.
    pub trace: Vec<TraceFrame>,
    /// What would probably help.
    pub hint: Option<String>,
    /// What the host attached, such as the error of a call.
    pub payload: Option<Arc<dyn Any + Send + Sync>>,
}

impl Failure {
    /// A failure without a place: the machine fills in place and trace when it is raised.
    #[cold]
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), position: None, trace: Vec::new(), hint: None, payload: None }
    }

    /// The same with a hint.
    #[cold]
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The same with the host's payload.
    #[cold]
    #[must_use]
    pub fn with_payload(mut self, payload: Arc<dyn Any + Send + Sync>) -> Self {
        self.payload = Some(payload);
        self
    }

    /// The same at a place of the host's choice.
    #[cold]
    #[must_use]
    pub fn at(mut self, position: Position) -> Self {
        self.position = Some(position);
        self
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.message)?;
        if let Some(position) = &self.position {
            write!(f, " at {position}")?;
        }
        Ok(())
    }
}

impl PartialEq for Failure {
    /// Equal as a reader sees them: kind, message and place.
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind && self.message == other.message && self.position == other.position
    }
}
