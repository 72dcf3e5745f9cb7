//! Writes the head of a request straight into the write buffer.

use std::time::Duration;

use fanin_tracecontext::{TRACEPARENT, TRACESTATE};
use http::Method;
use http::header::{CONTENT_LENGTH, HeaderMap, HeaderName, TRANSFER_ENCODING};

use crate::headers;
use crate::transport::attempt::Attempt;

/// The lines of headers that every request has, `host` included.
pub(crate) fn header_lines(default_headers: &HeaderMap) -> Vec<u8> {
    let mut out = Vec::new();
    default_headers.iter().for_each(|(name, value)| line(&mut out, name, value.as_bytes()));
    out
}

/// The types of names and values exclude line ends.
fn line(out: &mut Vec<u8>, name: &HeaderName, value: &[u8]) {
    out.extend_from_slice(name.as_str().as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

fn number(out: &mut Vec<u8>, name: &HeaderName, value: u64) {
    line(out, name, itoa::Buffer::new().format(value).as_bytes());
}

/// Appends the head of an attempt's request. `left` is the remaining time, which is sent to the upstream.
pub(super) fn write(out: &mut Vec<u8>, attempt: &Attempt<'_>, left: Duration) {
    let (request, origin) = (attempt.request, &*attempt.endpoint.origin);
    out.extend_from_slice(request.method.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(origin.base_path.as_bytes());
    out.extend_from_slice(request.path.as_str().as_bytes());
    out.extend_from_slice(b" HTTP/1.1\r\n");
    if request.headers.is_empty() && !(attempt.trace.is_some() && has_trace(&origin.default_headers)) {
        out.extend_from_slice(&origin.header_lines);
    } else {
        own_headers(out, attempt);
    }
    if let Some((trace, span)) = attempt.trace {
        line(out, &TRACEPARENT, &trace.traceparent(span));
        if let Some(state) = trace.state() {
            line(out, &TRACESTATE, state.as_bytes());
        }
    }
    if let Some(name) = attempt.timeout_header {
        number(out, name, u64::try_from(left.as_millis()).unwrap_or(u64::MAX).max(1));
    }
    if let Some(upload) = attempt.upload {
        match upload.announced() {
            Some(length) => number(out, &CONTENT_LENGTH, length),
            None => line(out, &TRANSFER_ENCODING, b"chunked"),
        }
        out.extend_from_slice(b"\r\n");
        return;
    }
    // These methods announce an empty body too (RFC 9110, 8.6).
    if !request.body.is_empty() || matches!(request.method, Method::POST | Method::PUT | Method::PATCH) {
        number(out, &CONTENT_LENGTH, request.body.len() as u64);
    }
    out.extend_from_slice(b"\r\n");
}

fn has_trace(headers: &HeaderMap) -> bool {
    headers.contains_key(TRACEPARENT) || headers.contains_key(TRACESTATE)
}

/// The upstream's headers, and the request's own over them.
fn own_headers(out: &mut Vec<u8>, attempt: &Attempt<'_>) {
    let (own, default_headers) = (&attempt.request.headers, &attempt.endpoint.origin.default_headers);
    // Those that are added for the attempt.
    let is_added = |name: &HeaderName| {
        attempt.timeout_header == Some(name) || attempt.trace.is_some() && [TRACEPARENT, TRACESTATE].contains(name)
    };
    let is_sent = |name: &HeaderName| !headers::is_ours(name) && !is_added(name);
    for (name, value) in default_headers {
        if !(is_added(name) || own.contains_key(name) && is_sent(name)) {
            line(out, name, value.as_bytes());
        }
    }
    for (name, value) in own {
        if is_sent(name) {
            line(out, name, value.as_bytes());
        }
    }
}
