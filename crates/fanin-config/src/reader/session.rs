//! The state of one reading: source text, environment, diagnostics.

use std::cell::RefCell;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::diagnostic::{Diagnostic, Position, Source};
use crate::values::env::Env;

/// One reading of one file: its text, its folder, the environment, and the diagnostics so far.
pub(crate) struct Reader<'r> {
    pub(super) source: Arc<Source>,
    dir: PathBuf,
    pub(super) env: Env<'r>,
    diagnostics: RefCell<Vec<Diagnostic>>,
}

impl<'r> Reader<'r> {
    pub fn new(source: Arc<Source>, dir: PathBuf, env: Env<'r>) -> Reader<'r> {
        Reader { source, dir, env, diagnostics: RefCell::default() }
    }

    /// All diagnostics, in the order in which they were found.
    pub fn finish(self) -> Vec<Diagnostic> {
        self.diagnostics.into_inner()
    }

    /// The folder that relative paths start from.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn position(&self, span: &Range<usize>) -> Position {
        self.source.position(span.clone())
    }

    pub fn error(&self, span: &Range<usize>, message: impl Into<String>) {
        self.diagnostics.borrow_mut().push(Diagnostic::error(&self.source, span.clone(), message));
    }

    pub fn error_hint(&self, span: &Range<usize>, message: impl Into<String>, hint: impl Into<String>) {
        self.diagnostics.borrow_mut().push(Diagnostic::error(&self.source, span.clone(), message).hint(hint));
    }

    pub fn warning(&self, span: &Range<usize>, message: impl Into<String>, hint: impl Into<String>) {
        self.diagnostics.borrow_mut().push(Diagnostic::error(&self.source, span.clone(), message).hint(hint).warning());
    }
}
