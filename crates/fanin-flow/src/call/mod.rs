//! One call: its arguments as captured, and the request made of them once they are there.

mod request;
mod terms;
mod text;

use std::borrow::Cow;

use fanin_config::OPERATION_CALL_OPTIONS;
use fanin_lang::value::view;
use fanin_lang::{Failure, HostCall, Kind, Readiness, Value, readiness};
use http::Method;
use smallvec::SmallVec;

pub(crate) use self::terms::{Merging, OnFailure, Terms, known};
pub(crate) use self::text::{header, text};
use crate::backend;
use crate::model;
use crate::operation;
use crate::upstream::{Backend, Target, UpstreamObject};

/// The arguments of a call, captured: changing a list after the call does not change the call.
pub(crate) struct Arguments {
    path: Value,
    params: Fields,
    query: Fields,
    headers: Fields,
    json: Option<Value>,
    text: Option<Value>,
    /// Named parameters of an operation, which fill its path first and its query with what is left. Of a statement's call the keys
    /// that a batch unites.
    pub(crate) named: Vec<(Box<str>, Value)>,
    /// The operation, by its place.
    operation: Option<usize>,
    /// The path is made already, and the body is JSON, whatever becomes of it on its way.
    plain: bool,
}

/// A dict among the arguments. One that is there is taken apart at once, which spares the snapshot of it.
enum Fields {
    Entries(SmallVec<[(Value, Value); 2]>),
    /// Not there yet, or no dict of the flow's own.
    Whole(Value),
}

impl Fields {
    const NONE: Fields = Fields::Entries(SmallVec::new_const());

    fn capture(call: &HostCall<'_>, value: &Value) -> Result<Fields, Failure> {
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
    fn entries(&self) -> Option<Cow<'_, [(Value, Value)]>> {
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
pub(crate) enum Need {
    Ready,
    Waits(fanin_lang::PendingValue),
    Failed(std::rc::Rc<Failure>),
    Absent(std::rc::Rc<Failure>),
}

#[cold]
pub(crate) fn wrong(message: impl Into<String>) -> Failure {
    Failure::new(Kind::Arguments, message)
}

/// Takes a call's arguments apart and captures them.
///
/// # Errors
/// What is wrong with them; nothing is sent.
pub(crate) fn parse(object: &UpstreamObject, call: &HostCall<'_>) -> Result<(Arguments, Terms), Failure> {
    let name = object.upstream.name();
    match &object.backend {
        Backend::Http => {}
        Backend::Grpc(grpc) => return grpc.parse(name, call),
        Backend::Sql(sql) => return sql.parse(name, call),
        Backend::Files => return backend::parse_files(name, call),
        Backend::Model => return model::parse(name, call),
    }
    let target = object.target(call.method).ok_or_else(|| wrong(format!("{name} has no such method")))?;
    let mut arguments = Arguments {
        path: Value::None,
        params: Fields::NONE,
        query: Fields::NONE,
        headers: Fields::NONE,
        json: None,
        text: None,
        named: Vec::new(),
        operation: object.operation_of(call.method),
        plain: false,
    };
    let operation = arguments.operation.map(|at| object.operation(at));
    let declared = operation.and_then(|(_, operation)| operation.params.as_ref());
    let mut merging = match &target {
        Target::Lookup | Target::Table => Some(Box::new(Merging { operation: None, batch: false, linger: None })),
        _ => arguments.operation.filter(|at| object.merges(*at)).map(|at| {
            let batch = object.operation(at).1.batch.is_some();
            Box::new(Merging { operation: Some(at), batch, linger: None })
        }),
    };
    let (method, safe, timeout, ok) = match &target {
        Target::Verb(verb) => ((*verb).clone(), verb.is_safe(), None, SmallVec::new()),
        Target::Operation(operation) => (
            operation.method.clone(),
            operation.safe.unwrap_or(operation.method.is_safe()),
            operation.timeout,
            operation.ok.iter().map(http::StatusCode::as_u16).collect(),
        ),
        Target::Lookup | Target::Table => (Method::GET, true, None, SmallVec::new()),
    };
    match (&target, call.args.pos) {
        (Target::Operation(operation), values) if let Some(declared) = declared => {
            arguments.path = Value::str(&operation.path);
            if values.len() > declared.len() {
                return Err(wrong(format!(
                    "{} takes at most {} arguments by position",
                    object.named(call.method),
                    declared.len()
                )));
            }
            for ((key, _), value) in declared.iter().zip(values) {
                arguments.named.push((key.as_str().into(), call.capture(value)?));
            }
        }
        (Target::Lookup, [key]) => arguments.path = call.capture(key)?,
        (Target::Lookup, _) => return Err(wrong(format!("{name}.lookup needs a key"))),
        (Target::Table, []) => {}
        (Target::Table, _) => return Err(wrong(format!("{name}.table takes no key: {name}.lookup(key) does"))),
        (Target::Verb(_), [path]) => arguments.path = call.capture(path)?,
        (Target::Verb(verb), []) => {
            return Err(wrong(format!("{name}.{} needs a path", verb.as_str().to_ascii_lowercase())));
        }
        (Target::Operation(operation), []) => arguments.path = Value::str(&operation.path),
        _ => return Err(wrong(format!("a call of {name} takes its arguments by name, only the path by position"))),
    }
    let mut terms = Terms {
        method,
        ok,
        timeout,
        on_failure: OnFailure::Fail,
        safe,
        operation: object.operation_of(call.method).and_then(|at| u32::try_from(at).ok()),
        merging: None,
    };
    for (key, value) in call.args.names.iter().zip(call.args.named) {
        if let Some(declared) = declared {
            if declared.contains_key(key.as_str()) {
                if arguments.named.iter().any(|(other, _)| **other == **key) {
                    return Err(wrong(format!("{} got {key:?} by position and by name", object.named(call.method))));
                }
                arguments.named.push((key.as_str().into(), call.capture(value)?));
                continue;
            }
            if !OPERATION_CALL_OPTIONS.contains(&key.as_str()) {
                let (message, hint) = operation::unknown(&object.named(call.method), declared, key);
                return Err(wrong(message).with_hint(hint));
            }
        }
        match key.as_str() {
            "linger" if operation.is_some() => {
                let linger = Some(operation::linger(name, &known(name, key, value)?)?);
                merging = merging.map(|merging| Box::new(Merging { linger, ..*merging }));
            }
            "params" if matches!(target, Target::Verb(_)) => arguments.params = Fields::capture(call, value)?,
            "query" => arguments.query = Fields::capture(call, value)?,
            "headers" => arguments.headers = Fields::capture(call, value)?,
            "json" => arguments.json = Some(call.capture(value)?),
            "text" => arguments.text = Some(call.capture(value)?),
            option if terms.option(name, option, value, call)? => {}
            other if matches!(target, Target::Operation(_)) => {
                arguments.named.push((other.into(), call.capture(value)?));
            }
            other => {
                return Err(wrong(format!("a call of {name} has no argument {other:?}")).with_hint(
                    "arguments are params, query, headers, json, text, timeout, ok, optional, default, safe, unordered",
                ));
            }
        }
    }
    terms.merging = merging;
    if let Some(declared) = declared {
        operation::complete(&object.named(call.method), declared, &mut arguments.named)?;
    }
    if arguments.json.is_some() && arguments.text.is_some() {
        return Err(wrong(format!("a call of {name} has both json and text: a request has one body")));
    }
    if (arguments.json.is_some() || arguments.text.is_some()) && matches!(terms.method, Method::GET | Method::HEAD) {
        return Err(wrong(format!("a {} of {name} cannot have a body", terms.method)));
    }
    Ok((arguments, terms))
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
    pub(crate) fn need(&self) -> Need {
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
                Readiness::Pending(slot) => return Need::Waits(slot),
                Readiness::Failed(failure) => failed = failed.or(Some(failure)),
                Readiness::Absent(failure) => absent = absent.or(Some(failure)),
                Readiness::TooDeep => {
                    failed = failed.or_else(|| Some(std::rc::Rc::new(wrong("an argument is nested too deep"))));
                }
            }
        }
        match (failed, absent) {
            (Some(failure), _) => Need::Failed(failure),
            (None, Some(failure)) => Need::Absent(failure),
            (None, None) => Need::Ready,
        }
    }

    /// Has a plain call send headers of its own.
    pub(crate) fn set_headers(&mut self, call: &HostCall<'_>, headers: &Value) -> Result<(), Failure> {
        self.headers = Fields::capture(call, headers)?;
        Ok(())
    }
}
