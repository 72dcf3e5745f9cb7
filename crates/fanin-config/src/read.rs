//! Reading values of a parsed file, each with its place, noting all that is wrong on the way.

use std::cell::RefCell;
use std::fmt;
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::HeaderName;
use toml::Spanned;
use toml::de::DeValue;

use crate::env::{Env, Expanded, expand};
use crate::{Diagnostic, Source};

/// HTTP methods that routes and operations may have.
pub(crate) const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

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

/// What one reading of a file shares: its text, its folder, the environment, what was found wrong.
pub(crate) struct Reader<'r> {
    source: Arc<Source>,
    dir: PathBuf,
    env: Env<'r>,
    found: RefCell<Vec<Diagnostic>>,
}

impl<'r> Reader<'r> {
    pub fn new(source: Arc<Source>, dir: PathBuf, env: Env<'r>) -> Reader<'r> {
        Reader { source, dir, env, found: RefCell::default() }
    }

    pub fn finish(self) -> Vec<Diagnostic> {
        self.found.into_inner()
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn position(&self, span: &Range<usize>) -> Position {
        self.source.position(span.clone())
    }

    pub fn error(&self, span: &Range<usize>, message: impl Into<String>) {
        self.found.borrow_mut().push(Diagnostic::error(&self.source, span.clone(), message));
    }

    pub fn error_hint(&self, span: &Range<usize>, message: impl Into<String>, hint: impl Into<String>) {
        self.found.borrow_mut().push(Diagnostic::error(&self.source, span.clone(), message).hint(hint));
    }

    pub fn warning(&self, span: &Range<usize>, message: impl Into<String>, hint: impl Into<String>) {
        self.found.borrow_mut().push(Diagnostic::error(&self.source, span.clone(), message).hint(hint).warning());
    }
}

/// A value read, and where it stands.
pub(crate) struct At<T> {
    pub value: T,
    pub span: Range<usize>,
}

/// A value of the file under its dotted name.
pub(crate) struct Item<'t, 'r> {
    pub reader: &'r Reader<'r>,
    pub name: String,
    pub value: &'t Spanned<DeValue<'t>>,
}

impl<'t, 'r> Item<'t, 'r> {
    pub fn get(&self) -> &'t DeValue<'t> {
        self.value.get_ref()
    }

    pub fn span(&self) -> Range<usize> {
        self.value.span()
    }

    pub fn error(&self, message: impl fmt::Display) {
        self.reader.error(&self.span(), format!("{}: {message}", self.name));
    }

    /// Says that the value has the wrong type. `what` names the right one, with its article.
    pub fn wrong(&self, what: &str, hint: Option<String>) {
        let found = match self.get() {
            DeValue::String(_) => "a string",
            DeValue::Integer(_) => "an integer",
            DeValue::Float(_) => "a float",
            DeValue::Boolean(_) => "a boolean",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
        };
        let message = format!("{} must be {what}, not {found}", self.name);
        match hint {
            Some(hint) => self.reader.error_hint(&self.span(), message, hint),
            None => self.reader.error(&self.span(), message),
        }
    }

    /// The string with its variables put in.
    pub fn text(&self, what: &str) -> Option<Expanded> {
        let DeValue::String(raw) = self.get() else {
            self.wrong(what, None);
            return None;
        };
        match expand(raw, self.reader.env) {
            Ok(expanded) => Some(expanded),
            Err(wrong) => {
                // The part as it stands in the file, unless escapes hide it there.
                let whole = self.span();
                let span = self
                    .reader
                    .source
                    .text
                    .get(whole.clone())
                    .and_then(|text| text.find(wrong.part))
                    .map_or(whole.clone(), |at| whole.start + at..whole.start + at + wrong.part.len());
                let message = format!("{}: {}", self.name, wrong.message);
                match wrong.hint {
                    Some(hint) => self.reader.error_hint(&span, message, hint),
                    None => self.reader.error(&span, message),
                }
                None
            }
        }
    }

    pub fn parsed<T>(&self, what: &str, parse: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        let text = self.text(what)?;
        parse(&text.text).map_err(|problem| self.error(problem)).ok()
    }

    pub fn number(&self, range: &RangeInclusive<u64>) -> Option<u64> {
        let what = "a whole number";
        let number = match self.get() {
            DeValue::Integer(integer) => {
                i128::from_str_radix(integer.as_str(), integer.radix()).map_err(|_| self.wrong(what, None)).ok()?
            }
            // A variable can stand for a number; a plain string can't.
            DeValue::String(raw) if raw.contains("${") => {
                self.parsed(what, |text| text.trim().parse().map_err(|_| format!("`{text}` is not a whole number")))?
            }
            _ => {
                self.wrong(what, None);
                return None;
            }
        };
        match u64::try_from(number).ok().filter(|number| range.contains(number)) {
            Some(number) => Some(number),
            None if *range.end() == u64::MAX => {
                self.error(format_args!("{number} is below the least, {}", range.start()));
                None
            }
            None => {
                self.error(format_args!("{number} is not between {} and {}", range.start(), range.end()));
                None
            }
        }
    }
}

/// The known word that a misspelt one was probably meant to be.
pub(crate) fn nearest<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    let plain = |word: &str| word.to_ascii_lowercase().replace('-', "_");
    let word = plain(word);
    known
        .iter()
        .map(|candidate| (strsim::damerau_levenshtein(&word, candidate), *candidate))
        .filter(|(distance, candidate)| *distance <= 1 + candidate.len().min(word.len()) / 4)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

pub(crate) fn header_name(text: &str) -> Result<HeaderName, String> {
    HeaderName::from_bytes(text.as_bytes()).map_err(|_| format!("`{text}` is not a header's name"))
}

pub(crate) fn saturated(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
