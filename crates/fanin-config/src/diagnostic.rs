//! What is wrong, and where.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use serde::ser::{Serialize, SerializeStruct, Serializer};
use thiserror::Error;

/// A file's name and text, for messages about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The file as messages name it.
    pub name: String,
    /// The whole text.
    pub text: String,
}

impl Source {
    /// A file's name and text.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Source {
        Source { name: name.into(), text: text.into() }
    }

    /// Line and column, both from 1, the column in characters, of a range of bytes. A range beyond the text is cut to it.
    pub fn position(&self, span: Range<usize>) -> Position {
        let floor = |at: usize| {
            let mut at = at.min(self.text.len());
            while !self.text.is_char_boundary(at) {
                at -= 1;
            }
            at
        };
        let start = floor(span.start);
        let end = floor(span.end).max(start);
        let line_start = self.text[..start].rfind('\n').map_or(0, |newline| newline + 1);
        Position {
            line: 1 + self.text[..start].bytes().filter(|byte| *byte == b'\n').count() as u32,
            column: 1 + self.text[line_start..start].chars().count() as u32,
            start,
            end,
        }
    }
}

/// A place in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// From 1; 0 is the file as a whole.
    pub line: u32,
    /// In characters, from 1.
    pub column: u32,
    /// First byte.
    pub start: usize,
    /// One past the last byte.
    pub end: usize,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Nothing is served with it.
    Error,
    /// It works, but hardly as meant.
    Warning,
}

impl Severity {
    /// `"error"` or `"warning"`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
        }
    }
}

/// One thing that is wrong in a configuration or flow file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Error or warning.
    pub severity: Severity,
    /// The file, with its text where that is at hand, so that the line can be shown.
    pub source: Arc<Source>,
    /// Where in it; line 0 speaks of the file as a whole.
    pub at: Position,
    /// What is wrong, one sentence.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// The name by which a comment silences a warning about a flow.
    pub lint: Option<&'static str>,
}

impl Diagnostic {
    /// An error at a range of bytes of a file.
    pub fn error(source: &Arc<Source>, span: Range<usize>, message: impl Into<String>) -> Diagnostic {
        Diagnostic {
            severity: Severity::Error,
            source: source.clone(),
            at: source.position(span),
            message: message.into(),
            hint: None,
            lint: None,
        }
    }

    /// An error about a file as a whole, such as that it can't be read.
    pub fn file(name: impl Into<String>, message: impl Into<String>) -> Diagnostic {
        Diagnostic {
            severity: Severity::Error,
            source: Arc::new(Source::new(name, "")),
            at: Position::default(),
            message: message.into(),
            hint: None,
            lint: None,
        }
    }

    /// The same as a warning.
    #[must_use]
    pub fn warning(mut self) -> Diagnostic {
        self.severity = Severity::Warning;
        self
    }

    /// The same with a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Diagnostic {
        self.hint = Some(hint.into());
        self
    }
}

/// `file:line:column: message` and the hint, on one line.
impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.source.name)?;
        if self.at.line > 0 {
            write!(f, "{}:{}:", self.at.line, self.at.column)?;
        }
        if self.severity == Severity::Warning {
            write!(f, " warning:")?;
        }
        write!(f, " {}", self.message)?;
        match &self.hint {
            Some(hint) => write!(f, " ({hint})"),
            None => Ok(()),
        }
    }
}

/// For `fanin check --json`: severity, file, line, column, end, message, hint, lint.
impl Serialize for Diagnostic {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let end = self.source.position(self.at.end..self.at.end);
        let mut fields = to.serialize_struct("Diagnostic", 9)?;
        fields.serialize_field("severity", self.severity.as_str())?;
        fields.serialize_field("file", &self.source.name)?;
        fields.serialize_field("line", &self.at.line)?;
        fields.serialize_field("column", &self.at.column)?;
        fields.serialize_field("end_line", &if self.at.line == 0 { 0 } else { end.line })?;
        fields.serialize_field("end_column", &if self.at.line == 0 { 0 } else { end.column })?;
        fields.serialize_field("message", &self.message)?;
        fields.serialize_field("hint", &self.hint)?;
        fields.serialize_field("lint", &self.lint)?;
        fields.end()
    }
}

/// A configuration that can't be used, with every reason.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}", lines(diagnostics))]
pub struct ConfigError {
    /// All that is wrong, in the file's order; errors, and warnings between them.
    pub diagnostics: Vec<Diagnostic>,
}

fn lines(diagnostics: &[Diagnostic]) -> String {
    diagnostics.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}
