//! Typed values of single keys.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderName, Method};
use toml::de::DeValue;

use crate::reader::item::Located;
use crate::reader::table::Table;
use crate::values::duration::parse_duration;
use crate::values::http::{METHODS, any_method, header_name};
use crate::values::size::{parse_size, saturating_usize};

impl Table<'_, '_> {
    /// The path of an existing file.
    pub fn file(&mut self, key: &'static str) -> Option<PathBuf> {
        let dir = self.reader.dir();
        let file = self.parsed(key, "a file's path", |text| match text {
            "" => Err("is empty".into()),
            text => Ok(dir.join(text)),
        })?;
        if !file.value.is_file() {
            self.error(key, format_args!("there is no file {}", file.value.display()));
            return None;
        }
        Some(file.value)
    }

    /// The path of an existing folder.
    pub fn folder(&mut self, key: &'static str) -> Option<PathBuf> {
        let dir = self.reader.dir();
        let folder = self.parsed(key, "a folder's path", |text| match text {
            "" => Err("is empty".into()),
            text => Ok(dir.join(text)),
        })?;
        if !folder.value.is_dir() {
            self.error(key, format_args!("there is no folder {}", folder.value.display()));
        }
        Some(folder.value)
    }

    /// A duration above zero.
    pub fn duration(&mut self, key: &'static str) -> Option<Duration> {
        let item = self.item(key)?;
        let what = "a duration such as \"100ms\"";
        if let DeValue::Integer(integer) = item.get() {
            item.type_error(what, Some(format!("did you mean \"{0}ms\" or \"{0}s\"?", integer.as_str())));
            return None;
        }
        let duration = item.parsed(what, parse_duration)?;
        if duration.is_zero() {
            item.error("must be longer than zero");
            return None;
        }
        Some(duration)
    }

    /// A duration above zero, or `"off"`.
    pub fn duration_or_off(&mut self, key: &'static str) -> Option<Option<Duration>> {
        let duration = self.parsed(key, "a duration such as \"5ms\" or \"off\"", |text| match text {
            "off" => Ok(None),
            text => match parse_duration(text)? {
                Duration::ZERO => Err("must be longer than zero; to disable it, write \"off\"".to_owned()),
                duration => Ok(Some(duration)),
            },
        });
        duration.map(|found| found.value)
    }

    /// A size in bytes, at least `min`.
    pub fn size(&mut self, key: &'static str, min: u64) -> Option<usize> {
        let item = self.item(key)?;
        let bytes = match item.get() {
            DeValue::Integer(_) => item.number(&(0..=i64::MAX as u64))?,
            _ => item.parsed("a size such as \"16MB\"", parse_size)?,
        };
        if bytes < min {
            item.error(format_args!("{bytes} bytes is too small; the minimum is {min}"));
            return None;
        }
        Some(saturating_usize(bytes))
    }

    /// A whole number in a range.
    pub fn count(&mut self, key: &'static str, range: RangeInclusive<u64>) -> Option<usize> {
        self.number(key, range).map(saturating_usize)
    }

    /// A whole number above zero, or `"off"`.
    pub fn count_or_off(&mut self, key: &'static str) -> Option<Option<usize>> {
        let item = self.item(key)?;
        match item.get() {
            DeValue::String(text) if text == "off" => Some(None),
            _ => item.number(&(1..=u64::MAX)).map(|number| Some(saturating_usize(number))),
        }
    }

    /// A small number in a range, or `"off"`.
    pub fn level_or_off(&mut self, key: &'static str, range: RangeInclusive<u64>) -> Option<Option<u8>> {
        let item = self.item(key)?;
        match item.get() {
            DeValue::String(text) if text == "off" => Some(None),
            _ => item.number(&range).map(|number| u8::try_from(number).ok()),
        }
    }

    /// A whole number in a range, as `u64`.
    pub fn number(&mut self, key: &'static str, range: RangeInclusive<u64>) -> Option<u64> {
        self.item(key)?.number(&range)
    }

    /// A number with or without a fraction, in a range.
    pub fn float(&mut self, key: &'static str, min: f64, max: f64) -> Option<f64> {
        let item = self.item(key)?;
        let number = match item.get() {
            DeValue::Float(float) => float.as_str().parse().ok(),
            DeValue::Integer(integer) => i64::from_str_radix(integer.as_str(), integer.radix()).ok().map(|n| n as f64),
            // Only a string with a variable may stand for a number.
            DeValue::String(raw) if raw.contains("${") => Some(
                item.parsed("a number", |text| text.trim().parse().map_err(|_| format!("`{text}` is not a number")))?,
            ),
            _ => None,
        };
        let Some(number) = number else {
            item.type_error("a number", None);
            return None;
        };
        if (min..=max).contains(&number) {
            return Some(number);
        }
        match max {
            f64::MAX => item.error(format_args!("{number} is too small; the minimum is {min}")),
            max => item.error(format_args!("{number} is out of range; write {min} to {max}")),
        }
        None
    }

    /// `true` or `false`.
    pub fn boolean(&mut self, key: &'static str) -> Option<bool> {
        let item = self.item(key)?;
        match item.get() {
            DeValue::Boolean(value) => Some(*value),
            DeValue::String(raw) if raw.contains("${") => item.parsed("true or false", |text| match text {
                "true" => Ok(true),
                "false" => Ok(false),
                _ => Err(format!("`{text}` is neither true nor false")),
            }),
            _ => {
                item.type_error("true or false", None);
                None
            }
        }
    }

    /// One of several words.
    pub fn choice<T: Copy>(&mut self, key: &'static str, choices: &[(&str, T)]) -> Option<T> {
        let words = choices.iter().map(|(word, _)| format!("\"{word}\"")).collect::<Vec<_>>().join(" or ");
        let chosen = self.parsed(key, &words, |text| {
            choices
                .iter()
                .find(|(word, _)| *word == text)
                .map(|(_, value)| *value)
                .ok_or_else(|| format!("`{text}` is not allowed; write {words}"))
        });
        chosen.map(|found| found.value)
    }

    /// The name of a header, or `"off"`.
    pub fn header_or_off(&mut self, key: &'static str) -> Option<Option<HeaderName>> {
        let name = self.parsed(key, "a header's name or \"off\"", |text| match text {
            "off" => Ok(None),
            text => header_name(text).map(Some),
        });
        name.map(|found| found.value)
    }

    /// An HTTP method.
    pub fn method(&mut self, key: &'static str) -> Option<Method> {
        self.parsed(key, "an HTTP method", parse_method).map(|found| found.value)
    }

    /// An HTTP method or a list of them, each once; with `any`, also one that flows do not know. `None` if the key is missing or no method is valid.
    pub fn methods(&mut self, key: &'static str, any: bool) -> Option<Vec<Method>> {
        if self.is_empty_list(key) {
            self.error(key, "needs at least one method");
        }
        let parse = if any { any_method } else { parse_method };
        let found = self.list(key, "an HTTP method", true, parse)?;
        let mut methods = Vec::new();
        for Located { value, span } in found {
            if methods.contains(&value) {
                self.reader().error(&span, format!("{}.{key}: {value} occurs twice", self.name()));
                continue;
            }
            methods.push(value);
        }
        (!methods.is_empty()).then_some(methods)
    }
}

fn parse_method(text: &str) -> Result<Method, String> {
    if METHODS.contains(&text) {
        return Method::from_bytes(text.as_bytes()).map_err(|error| error.to_string());
    }
    Err(format!("`{text}` is not one of {}", METHODS.join(", ")))
}
