//! Routes that serve gRPC methods: the request's message becomes JSON for the flow, and what the flow returns becomes messages.

use std::collections::VecDeque;
use std::io::Read;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use fanin_config::{Config, Diagnostic};
use fanin_server::{Aborted, Body, BodyStream, Problem, Request, Response};
use fanin_upstream::grpc::{Method, Served};
use flate2::read::GzDecoder;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::{StatusCode, Version};
use http_body::Frame;

const ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
const ACCEPTED: HeaderName = HeaderName::from_static("grpc-accept-encoding");
const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// Bytes before each message: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// A route's method.
pub(super) struct RouteMethod {
    served: Arc<Served>,
    method: Method,
    max_message: usize,
}

/// The methods of the routes, by their indexes.
///
/// # Errors
/// All that is wrong with `[grpc]` and with the names of methods.
pub(super) fn load(config: &Config, file: &str) -> Result<Vec<Option<Arc<RouteMethod>>>, Vec<Diagnostic>> {
    let is_used = config.routes.iter().any(|route| route.grpc.is_some());
    let served = match &config.grpc {
        Some(grpc) => match Served::load(grpc) {
            Ok(served) => Arc::new(served),
            Err((key, what)) => return Err(vec![Diagnostic::file(file, format!("grpc.{key}: {what}"))]),
        },
        None if is_used => {
            let message = "a route has `grpc`, and nothing describes its method";
            let hint = "add a section [grpc] with proto = \"service.proto\"";
            return Err(vec![Diagnostic::file(file, message).hint(hint)]);
        }
        None => return Ok(config.routes.iter().map(|_| None).collect()),
    };
    let mut wrong = Vec::new();
    let methods = config.routes.iter().map(|route| {
        match served.find(route.grpc.as_deref()?) {
            Ok(method) => {
                let (served, method) = (served.clone(), method.clone());
                return Some(Arc::new(RouteMethod { served, method, max_message: route.max_body }));
            }
            Err(what) => {
                let message = format!("line {}, the route of {}: {what}", route.flow.at.line, route.flow);
                wrong.push(Diagnostic::file(file, message));
            }
        }
        None
    });
    let methods = methods.collect();
    if wrong.is_empty() { Ok(methods) } else { Err(wrong) }
}

/// A problem with the request. The server sends it as a gRPC status.
fn refusal(status: StatusCode, detail: impl Into<String>) -> Box<Problem> {
    Box::new(Problem::new(status, "bad-request", "The request is not valid").detail(detail.into()))
}

impl RouteMethod {
    /// Puts JSON in place of the request's message, and shortens the deadline to that of the client.
    ///
    /// # Errors
    /// Why the request is not a call of the method.
    pub(super) fn receive(&self, request: &mut Request) -> Result<(), Box<Problem>> {
        let kind = request.headers.get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
        let kind = kind.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        if kind != b"application/grpc" && kind != b"application/grpc+proto" {
            let problem = Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not-grpc", "This is a gRPC method");
            return Err(Box::new(problem.detail("send content-type: application/grpc, with messages as protobuf")));
        }
        if request.version != Version::HTTP_2 {
            return Err(refusal(StatusCode::BAD_REQUEST, "gRPC needs HTTP/2"));
        }
        if let Some(timeout) = request.headers.get(TIMEOUT) {
            let left = timeout.to_str().ok().and_then(timeout_of);
            let left = left.ok_or_else(|| refusal(StatusCode::BAD_REQUEST, "grpc-timeout is no duration"))?;
            request.deadline = request.deadline.min(request.start + left);
        }
        let message = self.message(&request.body, &request.headers)?;
        let json = self.served.request(&self.method, message);
        request.body = json.map_err(|what| refusal(StatusCode::BAD_REQUEST, what))?;
        Ok(())
    }

    fn message(&self, body: &Bytes, headers: &HeaderMap) -> Result<Bytes, Box<Problem>> {
        only_message(body, headers, self.max_message)
    }

    /// The flow's response as messages and a status.
    pub(super) fn send(&self, response: Response, line: &str) -> Response {
        if response.headers.get(CONTENT_TYPE).is_some_and(|kind| kind == "application/problem+json") {
            return response;
        }
        if !response.status.is_success() {
            let title = response.status.canonical_reason().unwrap_or("Error");
            let detail = String::from_utf8_lossy(&response.body.to_bytes()).into_owned();
            let problem = Problem::new(response.status, "response", title).detail(detail);
            return Response { report: response.report, ..problem.into() };
        }
        let messages = match response.headers.get(CONTENT_TYPE).is_some_and(|kind| kind == "application/json") {
            true => self.served.response(&self.method, &response.body.to_bytes()),
            false => Err("the flow must return a message: a dict, or a list of dicts for a stream".to_owned()),
        };
        let messages = match messages {
            Ok(messages) => VecDeque::from(messages),
            Err(what) => {
                tracing::error!("{line} serves {}: {what}", self.method.full_name());
                let problem = Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "flow", "The flow failed");
                return Response { report: response.report, ..problem.detail("see the log of the server").into() };
            }
        };
        let mut headers = response.headers;
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert(ACCEPTED, HeaderValue::from_static("identity, gzip"));
        Response {
            status: StatusCode::OK,
            headers,
            body: Body::stream(Messages { messages, ended: false }),
            report: response.report,
        }
    }
}

/// The only message of a body.
fn only_message(body: &Bytes, headers: &HeaderMap, max: usize) -> Result<Bytes, Box<Problem>> {
    let bad = |what: &str| refusal(StatusCode::BAD_REQUEST, what);
    let Some((prefix, rest)) = body.split_first_chunk::<PREFIX>() else {
        return Err(bad(if body.is_empty() { "the call has no message" } else { "the message is cut off" }));
    };
    let length = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]) as usize;
    match rest.len() {
        have if have < length => return Err(bad("the message is cut off")),
        have if have > length => return Err(bad("the call has more than one message")),
        _ => {}
    }
    let message = body.slice(PREFIX..);
    let encoding = headers.get(ENCODING).map_or(&b"identity"[..], HeaderValue::as_bytes);
    match (prefix[0], encoding) {
        (0, _) => Ok(message),
        (1, b"gzip") => {
            let mut plain = Vec::new();
            let most = max as u64 + 1;
            GzDecoder::new(&message[..])
                .take(most)
                .read_to_end(&mut plain)
                .map_err(|_| bad("the message is no gzip"))?;
            if plain.len() > max {
                let what = format!("the message has more than {} bytes (max_body)", max);
                return Err(refusal(StatusCode::PAYLOAD_TOO_LARGE, what));
            }
            Ok(plain.into())
        }
        (1, b"identity") => Err(bad("the message is compressed, and grpc-encoding is missing")),
        (1, _) => Err(refusal(StatusCode::NOT_IMPLEMENTED, "the only compression that is understood is gzip")),
        _ => Err(bad("the flag for compression is neither 0 nor 1")),
    }
}

/// Messages, then the trailers with the status OK.
struct Messages {
    messages: VecDeque<Bytes>,
    ended: bool,
}

impl BodyStream for Messages {
    fn poll_frame(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Aborted>>> {
        if let Some(message) = self.messages.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(message))));
        }
        if std::mem::replace(&mut self.ended, true) {
            return Poll::Ready(None);
        }
        let mut trailers = HeaderMap::with_capacity(1);
        trailers.insert(STATUS, HeaderValue::from_static("0"));
        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
    }
}

/// `grpc-timeout`: at most eight digits and a unit.
fn timeout_of(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if number.is_empty() || number.len() > 8 || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u64 = number.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(number * 3600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_exactly_one_message() {
        let read = |bytes: &[u8], encoding: Option<&'static str>| {
            let mut headers = HeaderMap::new();
            if let Some(encoding) = encoding {
                headers.insert(ENCODING, HeaderValue::from_static(encoding));
            }
            let read = only_message(&Bytes::copy_from_slice(bytes), &headers, 100);
            read.map_err(|problem| String::from_utf8(problem.to_json()).expect("JSON"))
        };
        assert_eq!(read(b"\0\0\0\0\x02ab", None).unwrap(), "ab");
        assert_eq!(read(b"\0\0\0\0\0", Some("gzip")).unwrap(), "");
        for (bytes, encoding, expected) in [
            (&b""[..], None, "no message"),
            (b"\0\0\0", None, "cut off"),
            (b"\0\0\0\0\x03ab", None, "cut off"),
            (b"\0\xff\xff\xff\xffab", None, "cut off"),
            (b"\0\0\0\0\x01ab", None, "more than one message"),
            (b"\x02\0\0\0\x02ab", None, "neither 0 nor 1"),
            (b"\x01\0\0\0\x02ab", None, "grpc-encoding is missing"),
            (b"\x01\0\0\0\x02ab", Some("br"), "gzip"),
            (b"\x01\0\0\0\x02ab", Some("gzip"), "no gzip"),
        ] {
            let problem = read(bytes, encoding).unwrap_err();
            assert!(problem.contains(expected), "{expected}: {problem}");
        }
    }

    #[test]
    fn timeouts_are_read() {
        for (text, expected) in [
            ("1S", Some(Duration::from_secs(1))),
            ("99999999n", Some(Duration::from_nanos(99_999_999))),
            ("2H", Some(Duration::from_secs(7200))),
            ("123456789S", None),
            ("S", None),
            ("", None),
            ("1", None),
            ("-1S", None),
            ("1s", None),
            ("1ü", None),
        ] {
            assert_eq!(timeout_of(text), expected, "{text}");
        }
    }
}
