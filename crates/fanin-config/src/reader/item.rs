//! One value of the file: strings with variables, numbers, type errors.

use std::fmt;
use std::ops::{Range, RangeInclusive};

use toml::Spanned;
use toml::de::DeValue;

use crate::reader::session::Reader;
use crate::values::env::{Expanded, expand};

/// A value with its position in the file.
pub(crate) struct Located<T> {
    pub value: T,
    pub span: Range<usize>,
}

/// A raw TOML value, with its dotted name for messages.
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

    /// An element of this list.
    pub fn element(&self, index: usize, value: &'t Spanned<DeValue<'t>>) -> Item<'t, 'r> {
        Item { reader: self.reader, name: format!("{}[{index}]", self.name), value }
    }

    /// A member of this table.
    pub fn member(&self, key: &str, value: &'t Spanned<DeValue<'t>>) -> Item<'t, 'r> {
        Item { reader: self.reader, name: format!("{}.{key}", self.name), value }
    }

    /// Records an error at the value.
    pub fn error(&self, message: impl fmt::Display) {
        self.reader.error(&self.span(), format!("{}: {message}", self.name));
    }

    /// Records that the value has the wrong type. `what` is the expected one, with its article.
    pub fn type_error(&self, what: &str, hint: Option<String>) {
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

    /// The string, with environment variables expanded.
    pub fn string(&self, what: &str) -> Option<Expanded> {
        let DeValue::String(raw) = self.get() else {
            self.type_error(what, None);
            return None;
        };
        match expand(raw, self.reader.env) {
            Ok(expanded) => Some(expanded),
            Err(error) => {
                // Points at the variable itself, unless TOML escapes make it look different in the file.
                let whole = self.span();
                let span = self
                    .reader
                    .source
                    .text
                    .get(whole.clone())
                    .and_then(|text| text.find(error.part))
                    .map_or(whole.clone(), |at| whole.start + at..whole.start + at + error.part.len());
                let message = format!("{}: {}", self.name, error.message);
                match error.hint {
                    Some(hint) => self.reader.error_hint(&span, message, hint),
                    None => self.reader.error(&span, message),
                }
                None
            }
        }
    }

    /// The string, parsed. An error of `parse` is recorded at the value.
    pub fn parsed<T>(&self, what: &str, parse: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        let text = self.string(what)?;
        parse(&text.text).map_err(|problem| self.error(problem)).ok()
    }

    /// A whole number in a range.
    pub fn number(&self, range: &RangeInclusive<u64>) -> Option<u64> {
        let what = "a whole number";
        let number = match self.get() {
            DeValue::Integer(integer) => {
                i128::from_str_radix(integer.as_str(), integer.radix()).map_err(|_| self.type_error(what, None)).ok()?
            }
            // Only a string with a variable may stand for a number.
            DeValue::String(raw) if raw.contains("${") => {
                self.parsed(what, |text| text.trim().parse().map_err(|_| format!("`{text}` is not a whole number")))?
            }
            _ => {
                self.type_error(what, None);
                return None;
            }
        };
        match u64::try_from(number).ok().filter(|number| range.contains(number)) {
            Some(number) => Some(number),
            None if *range.end() == u64::MAX => {
                self.error(format_args!("{number} is too small; the minimum is {}", range.start()));
                None
            }
            None => {
                self.error(format_args!("{number} is out of range; write {} to {}", range.start(), range.end()));
                None
            }
        }
    }
}
