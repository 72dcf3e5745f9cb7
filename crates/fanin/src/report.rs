//! Output of diagnostics, for people and for programs.

use std::fmt;
use std::io::{IsTerminal, Write};

use fanin_config::{Diagnostic, Severity, render_all};

/// Prints diagnostics with their source lines to standard error; in colour on a terminal, unless `NO_COLOR` is set.
pub fn to_people(diagnostics: &[Diagnostic]) {
    let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    if !diagnostics.is_empty() {
        eprintln!("{}", render_all(diagnostics, colour));
    }
}

/// Writes to standard output. If the reader has closed it (`fanin schema | head`), the rest is dropped without an error.
pub fn out(text: fmt::Arguments<'_>) {
    let mut stdout = std::io::stdout().lock();
    let _ = stdout.write_fmt(text).and_then(|()| stdout.flush());
}

/// Prints an error and its causes on one line.
pub fn chain(error: &dyn std::error::Error) {
    let mut text = format!("error: {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    eprintln!("{text}");
}

/// Whether there are errors, not only warnings.
pub fn has_errors(diagnostics: &[Diagnostic]) -> bool {
    diagnostics.iter().any(|diagnostic| diagnostic.severity == Severity::Error)
}
