//! Builds the response from what a flow returned: status, headers and body.

use fanin_lang::value::view;
use fanin_lang::{Failure, Kind, PendingValue, Readiness, Value, readiness};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use http::{HeaderMap, StatusCode};
use smallvec::smallvec;

use crate::answer::{BodyRule, Content, content};
use crate::builtins;
use crate::call::{header, text};
use crate::cookies;
use crate::flow_host::{FlowHost, StreamedAnswer};
use crate::json::{self, Pieces};
use crate::messages::Messages;
use crate::partial;
use crate::progressive::{self, Framing, Progress};
use crate::push;
use crate::reply::{ReplyBody, Success};
use crate::response_object::{ResponseObject, RpcParts};
use crate::rpc_status::RpcStatus;
use crate::streamed::{self, StreamReply};

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");
const PARTIAL: HeaderName = HeaderName::from_static("fanin-partial");

/// Headers that only the server sets.
const RESERVED: [&str; 6] = ["connection", "content-length", "keep-alive", "te", "transfer-encoding", "upgrade"];

/// Calls `found` with every pending value in a value. The language bounds the nesting of containers.
pub(crate) fn pending_values(value: &Value, found: &mut dyn FnMut(&PendingValue)) {
    match value {
        Value::Pending(slot) => match slot.outcome() {
            // The settled result of a fiber, which may hold further calls.
            Some(Ok(inner)) if slot.source().is_none() => pending_values(&inner, found),
            _ => found(slot),
        },
        Value::List(list) => list.items().iter().for_each(|value| pending_values(value, found)),
        Value::Tuple(tuple) => tuple.iter().for_each(|value| pending_values(value, found)),
        Value::Dict(dict) => dict.map().iter().for_each(|(_, value)| pending_values(value, found)),
        Value::Struct(fields) => fields.fields().iter().for_each(|(_, value)| pending_values(value, found)),
        Value::Object(object) => object.visit(&mut |value| pending_values(value, found)),
        _ => {}
    }
}

/// The response for a returned value without pending parts.
///
/// # Errors
/// A value that cannot be JSON, an invalid header, or a body over the limit.
pub(crate) fn success(host: &FlowHost, value: &Value) -> Result<Success, Failure> {
    let route = &host.route;
    let limit = route.limits.max_response;
    if let Some(success) = events(host, value).transpose()? {
        return Ok(success);
    }
    let mut headers = HeaderMap::new();
    if route.streams
        && let Some(success) = streamed(host, value)?
    {
        return Ok(success);
    }
    let (status, mut body, kind, rpc) = match response(value) {
        None => {
            let (body, kind) = body(host, value, limit)?;
            pass_headers(host, value, &mut headers);
            (StatusCode::OK, body, Some(kind), None)
        }
        Some(parts) => {
            response_headers(&parts, &mut headers)?;
            let (body, kind) = match &parts.text {
                None if parts.is_empty => (Pieces::new(), None),
                Some(value) => {
                    let decided = value.decide().map_err(|_| value_error("response(): text is pending"))?;
                    let text = text(&decided).ok_or_else(|| value_error("response(): text must be a string"))?;
                    (smallvec![bytes::Bytes::copy_from_slice(text.as_bytes())], Some(TEXT))
                }
                None => {
                    pass_headers(host, &parts.body, &mut headers);
                    let (body, kind) = body(host, &parts.body, limit)?;
                    (body, Some(kind))
                }
            };
            let rpc = parts.rpc.as_deref().map(|parts| rpc(host, parts)).transpose()?.map(Box::new);
            (parts.status(), body, kind, rpc)
        }
    };
    let is_json = kind.as_ref() == Some(&JSON);
    if let Some(kind) = kind {
        headers.entry(CONTENT_TYPE).or_insert(kind);
    }
    if route.progressive {
        progressive::vary(&mut headers);
    }
    mark_partial(host, &mut headers);
    if route.errors && is_json && host.any_missing() && !has_member(value, "errors") {
        json::add_member(&mut body, "errors", &partial::errors(host.missing()));
    }
    if body.iter().map(bytes::Bytes::len).sum::<usize>() > limit {
        return Err(json::too_large(limit));
    }
    Ok(Success { status, headers, body: ReplyBody::Pieces(body), rpc })
}

/// Whether a returned value can be answered in parts: its body is an object or a list.
pub(crate) fn is_splittable(value: &Value) -> bool {
    match response(value) {
        None => progressive::is_splittable(value),
        Some(parts) => parts.text.is_none() && progressive::is_splittable(&parts.body),
    }
}

/// The head and the first part of an answer in parts. `None` while something is pending that no later part may bring: a header, or a
/// required call.
///
/// # Errors
/// As [`success`].
pub(crate) fn first_part(
    host: &FlowHost,
    value: &Value,
    framing: Framing,
) -> Result<Option<(Success, Progress)>, Failure> {
    let parts = response(value);
    let body = parts.as_ref().map_or(value, |parts| &parts.body);
    if parts.as_ref().is_some_and(|parts| {
        [&parts.headers, &parts.cookies].into_iter().any(|value| matches!(readiness(value), Readiness::Pending(_)))
    }) {
        return Ok(None);
    }
    let mut waits = false;
    pending_values(body, &mut |slot| waits |= !slot.is_settled() && slot.root().is_call() && !host.is_optional(slot));
    // If none is on its way, they await what optional calls answer.
    if waits && host.awaits_required() {
        return Ok(None);
    }
    let mut headers = HeaderMap::new();
    if let Some(parts) = &parts {
        response_headers(parts, &mut headers)?;
    }
    progressive::headers(framing, &mut headers);
    let errors = host.route.errors && matches!(body, Value::Dict(_) | Value::Struct(_)) && !has_member(value, "errors");
    let (pieces, progress) =
        Progress::start(host.route.limits.max_response, framing, body, errors).map_err(|error| error.failure())?;
    let status = parts.map_or(StatusCode::OK, |parts| parts.status());
    Ok(Some((Success { status, headers, body: ReplyBody::Pieces(pieces), rpc: None }, progress)))
}

/// The response whose body is a streamed answer.
fn streamed(host: &FlowHost, value: &Value) -> Result<Option<Success>, Failure> {
    let parts = response(value);
    let body = parts.as_ref().map_or(value, |parts| &parts.body);
    let Some(StreamedAnswer { upstream, answer, body, rules, messages }) = host.streamed(body) else { return Ok(None) };
    let body = body.ok_or_else(|| value_error("a streamed answer can be returned once"))?;
    let mut headers = HeaderMap::new();
    if let Some(parts) = &parts {
        response_headers(parts, &mut headers)?;
    }
    let rpc = parts.as_ref().and_then(|parts| parts.rpc.as_deref());
    let rpc = rpc.map(|parts| self::rpc(host, parts)).transpose()?.map(Box::new);
    let status = parts.and_then(|parts| parts.status).unwrap_or(answer.status);
    if let Some(framing) = messages {
        progressive::headers(framing, &mut headers);
        mark_partial(host, &mut headers);
        let body = ReplyBody::Messages(Box::new(Messages::new(body, upstream, framing)));
        return Ok(Some(Success { status, headers, body, rpc }));
    }
    streamed::pass_headers(&answer.headers, rules, &mut headers);
    mark_partial(host, &mut headers);
    let body = StreamReply::new(body, answer, host.req.is_head());
    Ok(Some(Success { status, headers, body: ReplyBody::Stream(Box::new(body)), rpc }))
}

fn mark_partial(host: &FlowHost, headers: &mut HeaderMap) {
    if host.any_missing() {
        // Names of upstreams are valid in a header; an invalid one would only omit it.
        if let Ok(names) = HeaderValue::from_str(&partial::failed_names(host.missing())) {
            headers.insert(PARTIAL, names);
        }
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
}

/// The response for a subscription, or for a `response(...)` whose body is one.
fn events(host: &FlowHost, value: &Value) -> Option<Result<Success, Failure>> {
    let Value::Object(object) = value else { return None };
    let parts = object.downcast::<ResponseObject>();
    let subscription = push::subscription(parts.map_or(value, |parts| &parts.body))?;
    let success = || {
        // hyper keeps the map as long as the connection.
        let mut headers = HeaderMap::with_capacity(2);
        if let Some(parts) = parts {
            if parts.status.is_some_and(|status| status != StatusCode::OK) {
                return Err(value_error("response(): a subscription is sent with status 200"));
            }
            response_headers(parts, &mut headers)?;
        }
        headers.insert(CONTENT_TYPE, EVENTS);
        headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
        let body = ReplyBody::Events(push::events(&host.worker, &host.req, subscription)?);
        Ok(Success { status: StatusCode::OK, headers, body, rpc: None })
    };
    Some(success())
}

#[cold]
fn value_error(message: impl Into<String>) -> Failure {
    Failure::new(Kind::Value, message)
}

fn has_member(value: &Value, name: &str) -> bool {
    let body = response(value).map_or_else(|| value.clone(), |parts| parts.body);
    let Ok(body) = body.decide() else { return false };
    matches!(view::get(&body, &Value::str(name)), Ok(Some(_)))
}

fn body(host: &FlowHost, value: &Value, limit: usize) -> Result<(Pieces, HeaderValue), Failure> {
    if let Value::Pending(slot) = value
        && let Some(answer) = host.answer_of(slot)
        && matches!(slot.outcome(), Some(Ok(value)) if !matches!(value, Value::Absent(_)))
    {
        // Only the answer to a HEAD counts as JSON without a body.
        match content(answer, BodyRule::Optional) {
            _ if answer.body.is_empty() => {}
            // An answer returned by itself is passed on unchanged.
            Content::Json => return Ok((smallvec![answer.body.clone()], JSON)),
            Content::Text => {
                let kind = answer.headers.get(CONTENT_TYPE).cloned().unwrap_or(TEXT);
                return Ok((smallvec![answer.body.clone()], kind));
            }
            Content::Empty | Content::Missing => {}
        }
    }
    json::to_pieces(value, limit).map(|pieces| (pieces, JSON)).map_err(|error| error.failure())
}

/// The headers of an answer that is returned by itself, as the rules of its upstream say.
fn pass_headers(host: &FlowHost, value: &Value, headers: &mut HeaderMap) {
    if let Value::Pending(slot) = value
        && let Some(rules) = host.answer_rules(slot)
        && let Some(answer) = host.answer_of(slot)
    {
        streamed::apply_rules(&answer.headers, rules, headers);
    }
}

/// The headers that a `response(...)` sets, cookies among them.
fn response_headers(parts: &ResponseObject, headers: &mut HeaderMap) -> Result<(), Failure> {
    own_headers("headers", &parts.headers, headers)?;
    cookies::set(&parts.cookies, headers)
}

/// The dict `what`, of names and values.
fn own_headers(what: &str, value: &Value, headers: &mut HeaderMap) -> Result<(), Failure> {
    let value = value.decide().map_err(|_| value_error(format!("response(): {what} are pending")))?;
    if matches!(value, Value::None) {
        return Ok(());
    }
    let entries = view::entries(&value).ok_or_else(|| value_error(format!("response(): {what} must be a dict")))?;
    for (key, value) in entries {
        // A list sets the header several times, as set-cookie needs.
        let values = match value.decide() {
            Ok(list @ (Value::List(_) | Value::Tuple(_))) => {
                view::elements(&list).map_err(|_| value_error("response(): the list of a header is pending"))?
            }
            _ => vec![value],
        };
        for value in values {
            let (key, value) = header(&key, &value).map_err(|what| value_error(format!("response(): {what}")))?;
            if let (Some(key), Some(value)) = (key, value) {
                if RESERVED.contains(&key.as_str()) {
                    return Err(value_error(format!(
                        "response(): a flow cannot set the header {key}; the server sets it"
                    )));
                }
                headers.append(key, value);
            }
        }
    }
    Ok(())
}

/// What a `response(...)` says to clients that call a method.
#[cold]
fn rpc(host: &FlowHost, parts: &RpcParts) -> Result<RpcStatus, Failure> {
    if !host.route.grpc && (parts.message.is_some() || parts.details.is_some() || parts.trailers.is_some()) {
        return Err(value_error("response(): message, details and trailers are for routes with `grpc`"));
    }
    let mut trailers = HeaderMap::new();
    if let Some(value) = &parts.trailers {
        own_headers("trailers", value, &mut trailers)?;
    }
    if let Some(name) = trailers.keys().find(|name| name.as_str().starts_with("grpc-")) {
        return Err(value_error(format!("response(): a flow cannot set the trailer {name}; the server sets it")));
    }
    let message = match parts.message.as_ref().map(Value::decide) {
        None | Some(Ok(Value::None)) => String::new(),
        Some(Ok(Value::Str(text))) => text.to_string(),
        Some(_) => return Err(value_error("response(): message must be a string")),
    };
    Ok(RpcStatus {
        code: parts.code.unwrap_or_default(),
        message,
        details: builtins::details("response", parts.details.as_ref())?,
        trailers,
    })
}

/// The parts of a `response(...)`; `None` for any other value.
fn response(value: &Value) -> Option<ResponseObject> {
    match value {
        Value::Object(object) => object.downcast::<ResponseObject>().cloned(),
        _ => None,
    }
}
