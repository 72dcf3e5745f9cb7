//! One call: its captured arguments and its options. Knows no kind of upstream.

mod options;
mod text;

use std::borrow::Cow;

use fanin_lang::value::view;
use fanin_lang::{Failure, HostCall, Kind, Readiness, Value, readiness};
use smallvec::SmallVec;

pub(crate) use self::options::{CallOptions, Merging, OnFailure, known};
pub(crate) use self::text::{header, pair, text};

/// The arguments of a call, captured: changing a list after the call does not change the call.
pub(crate) struct Arguments {
    pub(crate) path: Value,
    pub(crate) params: Fields,
    pub(crate) query: Fields,
    pub(crate) headers: Fields,
    pub(crate) json: Option<Value>,
    pub(crate) text: Option<Value>,
    /// Named parameters of an operation, which fill its path first and its query with what is left. Of a statement's call the keys
    /// that a batch unites.
    pub(crate) named: Vec<(Box<str>, Value)>,
    /// The operation, by its place.
    pub(crate) operation: Option<usize>,
    /// The path is made already, and the body is JSON, whatever becomes of it on its way.
    pub(crate) plain: bool,
}

/// A dict among the arguments. One that is there is taken apart at once, which spares the snapshot of it.
pub(crate) enum Fields {
    Entries(SmallVec<[(Value, Value); 2]>),
    /// Not there yet, or no dict of the flow's own.
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

    /// The entries, all of it being there; `None` if it is no dict.
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

/// Whether all that a call needs is there.
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
    /// Of a call that is no HTTP: a path that names what is asked, and its parameters.
    pub(crate) fn plain(path: String, params: Value) -> Arguments {
        Arguments {
            path: Value::str(&path),
            params: Fields::NONE,
            query: Fields::NONE,
            headers: Fields::NONE,
            json: Some(params),
            text: None,
            named: Vec::new(),
            operation: None,
            plain: true,
        }
    }

    /// The value of a named parameter.
    pub(crate) fn named(&self, name: &str) -> Option<&Value> {
        self.named.iter().find(|(key, _)| **key == *name).map(|(_, value)| value)
    }

    /// The key of a look-up.
    pub(crate) fn key(&self) -> &Value {
        &self.path
    }

    /// Whether everything that the request needs is there.
    pub(crate) fn state(&self) -> ArgumentState {
        let named = self.named.iter().map(|(_, value)| value);
        let values = std::iter::once(&self.path)
            .chain(self.params.values())
            .chain(self.query.values())
            .chain(self.headers.values())
            .chain(&self.json)
            .chain(&self.text)
            .chain(named);
        let (mut failed, mut absent) = (None, None);
        for value in values {
            if matches!(value, Value::None | Value::Str(_) | Value::Int(_) | Value::Json { .. }) {
                continue;
            }
            match readiness(value) {
                Readiness::Ready => {}
                // Failures count only once everything has settled: which one is reported must not depend on timing.
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

    /// Has a plain call send headers of its own.
    pub(crate) fn set_headers(&mut self, call: &HostCall<'_>, headers: &Value) -> Result<(), Failure> {
        self.headers = Fields::capture(call, headers)?;
        Ok(())
    }
}
