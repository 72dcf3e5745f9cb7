//! One call: its arguments as captured, and the request made of them once they are there.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fanin_config::{Batch, CALL_ARGUMENTS, Param, ParamPlace, QueryLists};
use fanin_lang::value::view;
use fanin_lang::{Deep, Failure, HostCall, Kind, Stop, Value, ValueKind, deep};
use fanin_upstream::Request;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::{HeaderMap, Method};
use smallvec::SmallVec;

use crate::backend;
use crate::encode;
use crate::json;
use crate::model;
use crate::operation;
use crate::upstream::{Backend, Target, UpstreamObject};

/// What becomes of a call's failure.
#[derive(Clone)]
pub(crate) enum OnFailure {
    /// It fails the flow where it is decided on.
    Fail,
    /// It becomes `None`, and so does all that needs it.
    Absent,
    /// It becomes this.
    Default(Value),
}

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

/// How a call is made, known when it is made.
pub(crate) struct Terms {
    pub(crate) method: Method,
    pub(crate) ok: SmallVec<[u16; 2]>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) on_failure: OnFailure,
    pub(crate) safe: bool,
    /// Its place among the upstream's operations.
    pub(crate) operation: Option<u32>,
    /// What an operation asks for beside the call itself; most have none.
    pub(crate) merging: Option<Box<Merging>>,
}

/// How a call shares work with others.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Merging {
    /// The operation, by its place; `None` for a look-up in a snapshot.
    pub(crate) operation: Option<usize>,
    /// Whether it may be served by a batch.
    pub(crate) batch: bool,
    /// How long it may wait for a partner, if it says so itself.
    pub(crate) linger: Option<Duration>,
}

/// Whether all that a call needs is there.
pub(crate) enum Need {
    Ready,
    Waits(fanin_lang::Slot),
    Failed(std::rc::Rc<Failure>),
    Absent(std::rc::Rc<Failure>),
}

#[cold]
pub(crate) fn wrong(message: impl Into<String>) -> Failure {
    Failure::new(Kind::Arguments, message)
}

impl Terms {
    pub(crate) fn new(method: Method, safe: bool) -> Terms {
        Terms {
            method,
            ok: SmallVec::new(),
            timeout: None,
            on_failure: OnFailure::Fail,
            safe,
            operation: None,
            merging: None,
        }
    }

    /// Takes an argument that says how to call. `false` if it is none of these.
    ///
    /// # Errors
    /// A value of the wrong kind.
    pub(crate) fn option(
        &mut self,
        name: &str,
        key: &str,
        value: &Value,
        call: &HostCall<'_>,
    ) -> Result<bool, Failure> {
        match key {
            "timeout" => self.timeout = Some(duration(name, &known(name, key, value)?)?),
            "ok" => self.ok.extend(statuses(name, &known(name, key, value)?)?),
            "safe" => self.safe = flag(name, key, value)?,
            "unordered" => {
                flag(name, key, value)?;
            }
            "optional" => {
                if flag(name, key, value)? && matches!(self.on_failure, OnFailure::Fail) {
                    self.on_failure = OnFailure::Absent;
                }
            }
            "default" => self.on_failure = OnFailure::Default(call.capture(value)?),
            _ => return Ok(false),
        }
        Ok(true)
    }
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
            if !CALL_ARGUMENTS.contains(&key.as_str()) {
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

/// A value that says how to call, not what: it must be there.
pub(crate) fn known(upstream: &str, key: &str, value: &Value) -> Result<Value, Failure> {
    match value.decide() {
        Ok(value) => Ok(value),
        Err(Stop::Fail(failure)) => Err(*failure),
        Err(_) => Err(wrong(format!("{key:?} of a call of {upstream} is not there yet"))
            .with_hint("decide on it before the call: if …, or a variable of its own")),
    }
}

fn flag(upstream: &str, key: &str, value: &Value) -> Result<bool, Failure> {
    match known(upstream, key, value)? {
        Value::Bool(value) => Ok(value),
        _ => Err(wrong(format!("{key:?} of a call of {upstream} must be True or False"))),
    }
}

fn duration(upstream: &str, value: &Value) -> Result<Duration, Failure> {
    value
        .as_str()
        .and_then(|text| fanin_config::parse_duration(text).ok())
        .filter(|duration| !duration.is_zero())
        .ok_or_else(|| wrong(format!("timeout of a call of {upstream} must be a duration such as \"80ms\"")))
}

fn statuses(upstream: &str, value: &Value) -> Result<SmallVec<[u16; 2]>, Failure> {
    let bad = || wrong(format!("ok of a call of {upstream} must be a list of statuses such as [404]"));
    view::elements(value)
        .map_err(|_| bad())?
        .iter()
        .map(|status| match status.decide() {
            Ok(Value::Int(status)) if (100..=599).contains(&status) => Ok(status as u16),
            _ => Err(bad()),
        })
        .collect()
}

/// Parameters of an operation that go neither into the path nor into the query.
#[derive(Default)]
struct Placed<'a> {
    json: Vec<(&'a str, &'a Value)>,
    headers: Vec<(&'a str, &'a Value)>,
}

impl<'a> Placed<'a> {
    fn put(&mut self, param: &'a Param, key: &'a str, value: &'a Value) {
        let key = param.wire(key);
        match param.place {
            ParamPlace::Query => {}
            // An optional one that is `None` is not sent.
            ParamPlace::Json if param.kind.optional && matches!(value.decide(), Ok(Value::None)) => {}
            ParamPlace::Json => self.json.push((key, value)),
            ParamPlace::Header => self.headers.push((key, value)),
        }
    }

    fn body(&self) -> Result<Bytes, json::JsonError> {
        let mut out = vec![b'{'];
        for (at, (key, value)) in self.json.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            fanin_json::write_str(&mut out, key);
            out.push(b':');
            out.extend_from_slice(&json::to_bytes(value, usize::MAX)?);
        }
        out.push(b'}');
        Ok(out.into())
    }
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
            match deep(value) {
                Deep::Ready => {}
                // Failures count only once everything has settled: which one is reported must not depend on timing.
                Deep::Pending(slot) => return Need::Waits(slot),
                Deep::Failed(failure) => failed = failed.or(Some(failure)),
                Deep::Absent(failure) => absent = absent.or(Some(failure)),
                Deep::TooDeep => {
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

    /// The request, once nothing is pending.
    ///
    /// # Errors
    /// What cannot be sent: it fails the call before anything is.
    pub(crate) fn request(
        &self,
        object: &UpstreamObject,
        method: &Method,
        client: &HeaderMap,
    ) -> Result<Request, Failure> {
        self.request_without(object, method, client, None)
    }

    /// The request, less the parameters of the keys and fields that a batch unites.
    ///
    /// # Errors
    /// As [`request`](Self::request).
    pub(crate) fn request_without(
        &self,
        object: &UpstreamObject,
        method: &Method,
        client: &HeaderMap,
        batch: Option<&Batch>,
    ) -> Result<Request, Failure> {
        let config = object.upstream.config();
        let name = object.upstream.name();
        let operation = self.operation.map(|at| object.operation(at).1);
        if self.plain {
            return self.plain_request(object, method, client);
        }
        let mut path = String::with_capacity(64);
        let template =
            text(&self.path).ok_or_else(|| wrong(format!("the path of a call of {name} must be a string")))?;
        let given = self.params.entries().ok_or_else(|| wrong(format!("params of a call of {name} must be a dict")))?;
        let mut params: SmallVec<[(Cow<'_, str>, Cow<'_, str>); 4]> = SmallVec::new();
        for (key, value) in given.iter() {
            let (Some(key), Some(value)) = (text(key), text(value)) else {
                return Err(wrong(format!("params of a call of {name} must be strings or numbers")));
            };
            params.push((key, value));
        }
        let mut rest: SmallVec<[(&str, &Value); 4]> = SmallVec::new();
        let mut placed = Placed::default();
        for (key, value) in &self.named {
            if batch.is_some_and(|batch| *batch.key == **key || batch.fields.as_deref() == Some(key)) {
                continue;
            }
            if let Some(param) = operation.and_then(|operation| operation.params.as_ref()?.get(&**key)) {
                operation::check(name, key, param, value)?;
                placed.put(param, key, value);
                if param.place != ParamPlace::Query && !template.contains(&format!("{{{key}}}")) {
                    continue;
                }
            }
            if template.contains(&format!("{{{key}}}")) {
                let value = text(value)
                    .ok_or_else(|| wrong(format!("the parameter {key:?} of {name} must be a string or a number")))?;
                params.push((Cow::Borrowed(key), value));
            } else {
                rest.push((key, value));
            }
        }
        let filled: SmallVec<[(&str, &str); 4]> = params.iter().map(|(key, value)| (&**key, &**value)).collect();
        encode::path(&mut path, &template, &filled).map_err(|error| wrong(format!("a call of {name}: {error}")))?;
        let mut first = true;
        let query = self.query.entries().ok_or_else(|| wrong(format!("query of a call of {name} must be a dict")))?;
        for (key, value) in query.iter() {
            let Some(key) = text(key) else {
                return Err(wrong(format!("query of a call of {name} has a key that is no string")));
            };
            pair(&mut path, &mut first, &key, value, config.query_lists, name)?;
        }
        for (key, value) in rest {
            let param = operation.and_then(|operation| operation.params.as_ref()?.get(key));
            let key = param.map_or(key, |param| param.wire(key));
            pair(&mut path, &mut first, key, value, config.query_lists, name)?;
        }
        let mut headers = forwarded(&object.upstream, client);
        self.own_headers(name, &mut headers)?;
        for (key, value) in &placed.headers {
            let (key, value) =
                header(&Value::str(key), value).map_err(|what| wrong(format!("a call of {name}: {what}")))?;
            if let (Some(key), Some(value)) = (key, value) {
                headers.insert(key, value);
            }
        }
        let body = match (&self.json, &self.text) {
            (None, None) if !placed.json.is_empty() => {
                headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static("application/json"));
                placed.body().map_err(|what| wrong(format!("a call of {name}: {what}")))?
            }
            (Some(value), _) => {
                headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static("application/json"));
                json::to_bytes(value, usize::MAX).map_err(|what| wrong(format!("json of a call of {name}: {what}")))?
            }
            (None, Some(value)) => {
                headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static("text/plain; charset=utf-8"));
                let text = text(value).ok_or_else(|| wrong(format!("text of a call of {name} must be a string")))?;
                Bytes::copy_from_slice(text.as_bytes())
            }
            (None, None) => Bytes::new(),
        };
        Ok(Request { method: method.clone(), path_and_query: path, headers, body })
    }

    fn own_headers(&self, upstream: &str, headers: &mut HeaderMap) -> Result<(), Failure> {
        let own =
            self.headers.entries().ok_or_else(|| wrong(format!("headers of a call of {upstream} must be a dict")))?;
        for (key, value) in own.iter() {
            let (key, value) = header(key, value).map_err(|what| wrong(format!("a call of {upstream}: {what}")))?;
            if let (Some(key), Some(value)) = (key, value) {
                headers.insert(key, value);
            }
        }
        Ok(())
    }

    /// Has a plain call send headers of its own.
    pub(crate) fn set_headers(&mut self, call: &HostCall<'_>, headers: &Value) -> Result<(), Failure> {
        self.headers = Fields::capture(call, headers)?;
        Ok(())
    }

    fn plain_request(&self, object: &UpstreamObject, method: &Method, client: &HeaderMap) -> Result<Request, Failure> {
        let name = object.upstream.name();
        // `plain()` makes both.
        let path_and_query = text(&self.path).unwrap_or_default().into_owned();
        let params = self.json.as_ref().unwrap_or(&Value::None);
        let body = json::to_bytes(params, usize::MAX)
            .map_err(|what| wrong(format!("the parameters of a call of {name}: {what}")))?;
        let mut headers = HeaderMap::new();
        if matches!(object.backend, Backend::Grpc(_)) {
            headers = forwarded(&object.upstream, client);
            self.own_headers(name, &mut headers)?;
        }
        Ok(Request { method: method.clone(), path_and_query, headers, body })
    }
}

/// Those of the client's headers that go on to an upstream.
fn forwarded(upstream: &fanin_upstream::Upstream, client: &HeaderMap) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let names = &upstream.config().forward_headers;
    // Comparing the few that came costs less than hashing each name that could have come.
    for (name, value) in client {
        if names.contains(name) {
            headers.append(name.clone(), value.clone());
        }
    }
    headers
}

/// A header of a flow's. `None` for a value of `None`, which leaves the header out.
///
/// # Errors
/// What is wrong: bad characters in the name, or a value that would end the line.
pub(crate) fn header(key: &Value, value: &Value) -> Result<(Option<HeaderName>, Option<HeaderValue>), String> {
    let key = text(key).ok_or("a header's name must be a string")?;
    let name = HeaderName::from_bytes(key.as_bytes()).map_err(|_| format!("{key:?} is no header name"))?;
    if matches!(value.decide(), Ok(Value::None)) {
        return Ok((None, None));
    }
    let text = text(value).ok_or_else(|| format!("the header {name} must be a string or a number"))?;
    let value = HeaderValue::from_str(&text)
        .or_else(|_| HeaderValue::from_bytes(text.as_bytes()))
        .map_err(|_| format!("the value of the header {name} holds a control character"))?;
    Ok((Some(name), Some(value)))
}

/// A scalar as it stands in a URL or header.
pub(crate) fn text(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::Str(text) => return Some(Cow::Borrowed(text)),
        Value::Int(value) => return Some(Cow::Owned(value.to_string())),
        Value::Json { at, doc } => {
            let node = doc.node(*at);
            // The digits as they came: 1.50 stays 1.50, and a long id keeps its end.
            return node.as_number_text().map(Cow::Borrowed).or_else(|| node.as_str());
        }
        _ => {}
    }
    match value.decide().ok()? {
        Value::Str(text) => Some(Cow::Owned(text.to_string())),
        Value::Int(value) => Some(Cow::Owned(value.to_string())),
        Value::BigInt(value) => Some(Cow::Owned(value.to_string())),
        Value::Float(value) => {
            let mut out = Vec::new();
            fanin_json::write_float(&mut out, value).ok()?;
            String::from_utf8(out).ok().map(Cow::Owned)
        }
        Value::Bool(value) => Some(Cow::Borrowed(if value { "true" } else { "false" })),
        _ => None,
    }
}

/// A list of an answer's, which need not become values first. `false` if it holds what cannot stand in a query.
fn json_list(out: &mut String, first: &mut bool, key: &str, list: fanin_json::Node<'_>, lists: QueryLists) -> bool {
    if lists == QueryLists::Comma
        && let Some(numbers) = plain_numbers(list.raw())
    {
        encode::pair(out, first, key, "");
        out.push_str(numbers);
        return true;
    }
    for (at, item) in list.elements().enumerate() {
        let text = match item.kind() {
            fanin_json::Kind::String => item.as_str(),
            fanin_json::Kind::Number => item.as_number_text().map(Cow::Borrowed),
            fanin_json::Kind::Bool => item.as_bool().map(|value| Cow::Borrowed(if value { "true" } else { "false" })),
            _ => None,
        };
        let Some(text) = text else { return false };
        if at == 0 || lists == QueryLists::Repeat {
            encode::pair(out, first, key, &text);
        } else {
            out.push(',');
            encode::component(out, &text);
        }
    }
    true
}

/// The inside of a JSON list that holds numbers only, and neither space nor anything that a query encodes: it stands in
/// a query as it is.
fn plain_numbers(list: &[u8]) -> Option<&str> {
    let inside = list.strip_prefix(b"[")?.strip_suffix(b"]")?;
    let plain = inside.iter().all(|byte| matches!(byte, b'0'..=b'9' | b',' | b'-' | b'.' | b'e' | b'E'));
    if plain { std::str::from_utf8(inside).ok() } else { None }
}

pub(crate) fn pair(
    out: &mut String,
    first: &mut bool,
    key: &str,
    value: &Value,
    lists: QueryLists,
    upstream: &Arc<str>,
) -> Result<(), Failure> {
    if let Some(value) = text(value) {
        encode::pair(out, first, key, &value);
        return Ok(());
    }
    let bad =
        || wrong(format!("query {key:?} of a call of {upstream} must be a string, a number, None or a list of them"));
    let value = value.decide().map_err(|_| bad())?;
    if matches!(value, Value::None) {
        return Ok(());
    }
    if let Some(text) = text(&value) {
        encode::pair(out, first, key, &text);
        return Ok(());
    }
    if let Value::Json { at, doc } = &value
        && let node = doc.node(*at)
        && node.kind() == fanin_json::Kind::Array
        && !node.is_empty()
    {
        return json_list(out, first, key, node, lists).then_some(()).ok_or_else(bad);
    }
    if !matches!(view::kind(&value), ValueKind::List | ValueKind::Tuple | ValueKind::Set | ValueKind::Range) {
        return Err(bad());
    }
    let items = view::elements(&value).map_err(|_| bad())?;
    if items.is_empty() {
        // An empty list is something else than no list: the upstream sees the name.
        encode::pair(out, first, key, "");
        return Ok(());
    }
    for (at, item) in items.iter().enumerate() {
        let item = text(item).ok_or_else(bad)?;
        match lists {
            QueryLists::Repeat => encode::pair(out, first, key, &item),
            QueryLists::Comma if at == 0 => encode::pair(out, first, key, &item),
            QueryLists::Comma => {
                out.push(',');
                encode::component(out, &item);
            }
        }
    }
    Ok(())
}
