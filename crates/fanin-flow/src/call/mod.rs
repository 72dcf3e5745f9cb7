//! The captured arguments and the options of a call. Knows no kind of upstream.

mod options;
mod text;

use std::borrow::Cow;

use fanin_lang::value::view;
use fanin_lang::{Failure, HostCall, Kind, Readiness, Value, readiness};
use smallvec::SmallVec;

pub(crate) use self::options::{CallOptions, Merging, OnFailure, Streaming, flag, known};
pub(crate) use self::text::{header, pair, text};

/// The builtin that marks a call as streamed, and the argument of a call that does the same.
pub(crate) const STREAM: &str = "stream";

/// The captured arguments of a call: changing a list afterwards does not change the call.
pub(crate) struct Arguments {
    pub(crate) path: Value,
    pub(crate) params: Fields,
    pub(crate) query: Fields,
    pub(crate) headers: Fields,
    pub(crate) json: Option<Value>,
    pub(crate) text: Option<Value>,
    /// The fields of a form, and whether it is a multipart one.
    pub(crate) form: Option<Box<(Value, bool)>>,
    /// Named parameters of an operation: they fill its path, and the others its query. For a batched statement, the keys.
    pub(crate) named: Vec<(Box<str>, Value)>,
    /// The operation's index.
    pub(crate) operation: Option<usize>,
    /// The upstream is not HTTP: the path is complete and the body is JSON.
    pub(crate) plain: bool,
}

/// A dict among the arguments. One that is not pending is captured entry by entry, which avoids a copy of the dict.
pub(crate) enum Fields {
    Entries(SmallVec<[(Value, Value); 2]>),
    /// Pending, or not a dict that the flow built.
    Whole(Value),
}

impl Fields {
    pub(crate) const NONE: Fields = Fields::Entries(SmallVec::new_const());

    pub(crate) fn capture(call: &HostCall<'_>, value: &Value) -> Result<Fields, Failure> {
        match value {
            Value::Dict(dict) => {
                let dict = dict.map();
                let mut entries = SmallVec::with_capacity(dict.len());
                for (key, value) in dict.iter() {
                    entries.push((key.clone(), call.capture(value)?));
                }
                Ok(Fields::Entries(entries))
            }
            other => call.capture(other).map(Fields::Whole),
        }
    }

    fn values(&self) -> impl Iterator<Item = &Value> {
        let (entries, whole) = match self {
            Fields::Entries(entries) => (entries.as_slice(), None),
            Fields::Whole(value) => (&[][..], Some(value)),
        };
        entries.iter().map(|(_, value)| value).chain(whole)
    }

    /// The entries, once nothing is pending; `None` if it is not a dict.
    pub(crate) fn entries(&self) -> Option<Cow<'_, [(Value, Value)]>> {
        match self {
            Fields::Entries(entries) => Some(Cow::Borrowed(entries)),
            Fields::Whole(value) => match value.decide().ok()? {
                Value::None => Some(Cow::Borrowed(&[])),
                value => view::entries(&value).map(Cow::Owned),
            },
        }
    }
}

/// Whether a call's arguments have arrived.
pub(crate) enum ArgumentState {
    Ready,
    Pending(fanin_lang::PendingValue),
    Failed(std::rc::Rc<Failure>),
    Absent(std::rc::Rc<Failure>),
}

#[cold]
pub(crate) fn argument_error(message: impl Into<String>) -> Failure {
    Failure::new(Kind::Arguments, message)
}

impl Arguments {
    /// For an upstream that is not HTTP: a path that names the method, and its parameters.
    pub(crate) fn plain(path: String, params: Value) -> Arguments {
        Arguments {
            path: Value::str(&path),
            params: Fields::NONE,
            query: Fields::NONE,
            headers: Fields::NONE,
            json: Some(params),
            text: None,
            form: None,
            named: Vec::new(),
            operation: None,
            plain: true,
        }
    }

    /// The value of a named parameter.
    pub(crate) fn named(&self, name: &str) -> Option<&Value> {
        self.named.iter().find(|(key, _)| **key == *name).map(|(_, value)| value)
    }

    /// The method of a call that is not HTTP.
    pub(crate) fn method_name(&self) -> Option<&str> {
        self.plain.then(|| self.path.as_str()).flatten()
    }

    /// The key of a lookup in a snapshot.
    pub(crate) fn key(&self) -> &Value {
        &self.path
    }

    /// Whether all arguments have arrived.
    pub(crate) fn state(&self) -> ArgumentState {
        let named = self.named.iter().map(|(_, value)| value);
        let values = std::iter::once(&self.path)
            .chain(self.params.values())
            .chain(self.query.values())
            .chain(self.headers.values())
            .chain(&self.json)
            .chain(&self.text)
            .chain(self.form.as_ref().map(|form| &form.0))
            .chain(named);
        let (mut failed, mut absent) = (None, None);
        for value in values {
            if matches!(value, Value::None | Value::Str(_) | Value::Int(_) | Value::Json { .. }) {
                continue;
            }
            match readiness(value) {
                Readiness::Ready => {}
                // Failures count only once nothing is pending, so that the reported one does not depend on timing.
                Readiness::Pending(slot) => return ArgumentState::Pending(slot),
                Readiness::Failed(failure) => failed = failed.or(Some(failure)),
                Readiness::Absent(failure) => absent = absent.or(Some(failure)),
                Readiness::TooDeep => {
                    failed =
                        failed.or_else(|| Some(std::rc::Rc::new(argument_error("an argument is nested too deep"))));
                }
            }
        }
        match (failed, absent) {
            (Some(failure), _) => ArgumentState::Failed(failure),
            (None, Some(failure)) => ArgumentState::Absent(failure),
            (None, None) => ArgumentState::Ready,
        }
    }

    /// Sets the headers of a call that is not HTTP.
    pub(crate) fn set_headers(&mut self, call: &HostCall<'_>, headers: &Value) -> Result<(), Failure> {
        self.headers = Fields::capture(call, headers)?;
        Ok(())
    }
}
