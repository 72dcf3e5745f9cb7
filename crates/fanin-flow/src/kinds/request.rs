//! Builds the request of a call from its arguments, once none of them is pending.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use fanin_config::{Batch, EscapedSlashes, Param, ParamLocation, UnsafeSegment};
use fanin_lang::{Failure, Value};
use fanin_upstream::Request;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Method};
use smallvec::SmallVec;

use super::operation;
use super::upstream_object::{Backend, UpstreamObject};
use crate::call::{Arguments, argument_error, header, pair, text};
use crate::client_headers::ClientHeaders;
use crate::encode;
use crate::form;
use crate::json;
use crate::refused_path::RefusedPath;

/// Parameters of an operation that go into the body or the headers.
#[derive(Default)]
struct PlacedParams<'a> {
    json: Vec<(&'a str, &'a Value)>,
    headers: Vec<(&'a str, &'a Value)>,
}

impl<'a> PlacedParams<'a> {
    fn put(&mut self, param: &'a Param, key: &'a str, value: &'a Value) {
        let key = param.wire_name(key);
        match param.location {
            ParamLocation::Query => {}
            // An optional one that is `None` is not sent.
            ParamLocation::Json if param.kind.optional && matches!(value.decide(), Ok(Value::None)) => {}
            ParamLocation::Json => self.json.push((key, value)),
            ParamLocation::Header => self.headers.push((key, value)),
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
    /// The request, once nothing is pending.
    ///
    /// # Errors
    /// Arguments that cannot be sent. The call fails.
    pub(crate) fn request(
        &self,
        object: &UpstreamObject,
        method: &Method,
        client: &ClientHeaders,
    ) -> Result<Request, Failure> {
        self.request_without(object, method, client, None)
    }

    /// The base request of a batch: without the parameters of its keys and fields.
    ///
    /// # Errors
    /// As [`request`](Self::request).
    pub(crate) fn request_without(
        &self,
        object: &UpstreamObject,
        method: &Method,
        client: &ClientHeaders,
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
            text(&self.path).ok_or_else(|| argument_error(format!("the path of a call of {name} must be a string")))?;
        let given = self
            .params
            .entries()
            .ok_or_else(|| argument_error(format!("params of a call of {name} must be a dict")))?;
        let mut params: SmallVec<[(Cow<'_, str>, Cow<'_, str>); 4]> = SmallVec::new();
        for (key, value) in given.iter() {
            let (Some(key), Some(value)) = (text(key), text(value)) else {
                return Err(argument_error(format!("params of a call of {name} must be strings or numbers")));
            };
            params.push((key, value));
        }
        let mut rest: SmallVec<[(&str, &Value); 4]> = SmallVec::new();
        let mut placed = PlacedParams::default();
        for (key, value) in &self.named {
            if batch.is_some_and(|batch| *batch.key == **key || batch.fields.as_deref() == Some(key)) {
                continue;
            }
            if let Some(param) = operation.and_then(|operation| operation.params.as_ref()?.get(&**key)) {
                operation::check(name, key, param, value)?;
                placed.put(param, key, value);
                if param.location != ParamLocation::Query && !template.contains(&format!("{{{key}}}")) {
                    continue;
                }
            }
            if template.contains(&format!("{{{key}}}")) {
                let value = text(value).ok_or_else(|| {
                    argument_error(format!("the parameter {key:?} of {name} must be a string or a number"))
                })?;
                params.push((Cow::Borrowed(key), value));
            } else {
                rest.push((key, value));
            }
        }
        let filled: SmallVec<[(&str, &str); 4]> = params.iter().map(|(key, value)| (&**key, &**value)).collect();
        encode::path(&mut path, &template, &filled, config.escaped_slashes)
            .map_err(|error| refused_path(error, name, config.escaped_slashes))?;
        let mut first = true;
        let query =
            self.query.entries().ok_or_else(|| argument_error(format!("query of a call of {name} must be a dict")))?;
        for (key, value) in query.iter() {
            let Some(key) = text(key) else {
                return Err(argument_error(format!("query of a call of {name} has a key that is not a string")));
            };
            pair(&mut path, &mut first, &key, value, config.query_lists, name)?;
        }
        for (key, value) in rest {
            let param = operation.and_then(|operation| operation.params.as_ref()?.get(key));
            let key = param.map_or(key, |param| param.wire_name(key));
            pair(&mut path, &mut first, key, value, config.query_lists, name)?;
        }
        let mut headers = forwarded(&object.upstream, client);
        self.own_headers(name, &mut headers)?;
        for (key, value) in &placed.headers {
            let (key, value) =
                header(&Value::str(key), value).map_err(|what| argument_error(format!("a call of {name}: {what}")))?;
            if let (Some(key), Some(value)) = (key, value) {
                headers.insert(key, value);
            }
        }
        if let Some(form) = &self.form {
            let (fields, is_multipart) = &**form;
            let encoded = if *is_multipart { form::encode_multipart(fields) } else { form::encode(fields) };
            let (body, kind) = encoded.map_err(|what| argument_error(format!("a call of {name}: {what}")))?;
            // Its boundary is of this body.
            headers.insert(CONTENT_TYPE, kind);
            return Ok(Request { method: method.clone(), path_and_query: path, headers, body });
        }
        let body = match (&self.json, &self.text) {
            (None, None) if !placed.json.is_empty() => {
                headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static("application/json"));
                placed.body().map_err(|what| argument_error(format!("a call of {name}: {what}")))?
            }
            (Some(value), _) => {
                headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static("application/json"));
                json::to_bytes(value, usize::MAX)
                    .map_err(|what| argument_error(format!("json of a call of {name}: {what}")))?
            }
            (None, Some(value)) => {
                headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static("text/plain; charset=utf-8"));
                let text =
                    text(value).ok_or_else(|| argument_error(format!("text of a call of {name} must be a string")))?;
                Bytes::copy_from_slice(text.as_bytes())
            }
            (None, None) => Bytes::new(),
        };
        Ok(Request { method: method.clone(), path_and_query: path, headers, body })
    }

    fn own_headers(&self, upstream: &str, headers: &mut HeaderMap) -> Result<(), Failure> {
        let own = self
            .headers
            .entries()
            .ok_or_else(|| argument_error(format!("headers of a call of {upstream} must be a dict")))?;
        for (key, value) in own.iter() {
            let (key, value) =
                header(key, value).map_err(|what| argument_error(format!("a call of {upstream}: {what}")))?;
            if let (Some(key), Some(value)) = (key, value) {
                headers.insert(key, value);
            }
        }
        Ok(())
    }

    fn plain_request(
        &self,
        object: &UpstreamObject,
        method: &Method,
        client: &ClientHeaders,
    ) -> Result<Request, Failure> {
        let name = object.upstream.name();
        // `plain()` sets both.
        let path_and_query = text(&self.path).unwrap_or_default().into_owned();
        let params = self.json.as_ref().unwrap_or(&Value::None);
        let body = json::to_bytes(params, usize::MAX)
            .map_err(|what| argument_error(format!("the parameters of a call of {name}: {what}")))?;
        let mut headers = HeaderMap::new();
        if matches!(*object.backend, Backend::Grpc(_)) {
            headers = forwarded(&object.upstream, client);
            self.own_headers(name, &mut headers)?;
        }
        Ok(Request { method: method.clone(), path_and_query, headers, body })
    }
}

/// The failure of a call whose path cannot be sent.
#[cold]
fn refused_path(error: encode::PathError, upstream: &str, slashes: EscapedSlashes) -> Failure {
    let failure = argument_error(format!("a call of {upstream}: {error}"));
    let (text, problem) = match error {
        encode::PathError::Value { value, problem, .. } => (value, Some(problem)),
        encode::PathError::Segment { path, problem } => (path, Some(problem)),
        encode::PathError::Character { path, .. } => (path, None),
        _ => return failure,
    };
    let failure = failure.with_payload(Arc::new(RefusedPath { text, slashes }));
    let Some(problem) = problem else { return failure };
    let hint = match problem {
        UnsafeSegment::Slash => {
            format!(
                "if its backend keeps \"%2F\" within a segment, set escaped_slashes = \"encode\" in [upstreams.{upstream}]"
            )
        }
        UnsafeSegment::Escape => "write it into params, where it is encoded".to_owned(),
        UnsafeSegment::Dots | UnsafeSegment::Control => {
            "check the value before the call, or write it into query, where it is only data".to_owned()
        }
    };
    failure.with_hint(hint)
}

/// The client's headers that are forwarded to an upstream.
fn forwarded(upstream: &fanin_upstream::Upstream, client: &ClientHeaders) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let names = &upstream.config().forward_headers;
    // Comparing is faster than hashing for the few headers of a request.
    for (name, value) in client.iter() {
        if names.contains(name) {
            headers.append(name.clone(), value.clone());
        }
    }
    headers
}
