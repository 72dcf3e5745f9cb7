//! What is wrong with a program, found before it runs.

use super::source_position::Position;
use crate::check::lint::Lint;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// It would certainly fail.
    Error,
    /// It works, but is probably a mistake.
    Warning,
}

/// A mistake that is found before anything runs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{position}: {message}")]
pub struct Diagnostic {
    /// How bad it is.
    pub severity: Severity,
    /// The name by which a comment silences it; only warnings have one.
    pub lint: Option<&'static str>,
    /// One line that says what is wrong.
    pub message: String,
    /// Where.
    pub position: Position,
    /// What would probably help.
    pub hint: Option<String>,
}

impl Diagnostic {
    /// An error.
    #[must_use]
    pub fn error(position: Position, message: impl Into<String>) -> Self {
        Self { severity: Severity::Error, lint: None, message: message.into(), position, hint: None }
    }

    pub(crate) fn warning(lint: Lint, position: Position, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, lint: Some(lint.name()), ..Self::error(position, message) }
    }

    /// The same with a hint, if there is one.
    #[must_use]
    pub fn hint(mut self, hint: Option<String>) -> Self {
        self.hint = hint;
        self
    }
}
