//! Routes that serve gRPC methods: the request's message becomes JSON for the flow, and what the flow returns becomes messages.

use std::collections::VecDeque;
use std::io::Read;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use fanin_config::{Config, Diagnostic};
use fanin_flow::{MessageStream, WorkerFlows};
use fanin_model::protocol::parse_timeout;
use fanin_server::{Aborted, Body, BodyStream, Problem, Request, Response};
use fanin_upstream::grpc::{Method, Served, off_worker};
use flate2::bufread::GzDecoder;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::{StatusCode, Version};
use http_body::Frame;
use tokio::time::Instant;

use super::rpc_stream::{self, Streamed};
use super::{App, convert};

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

/// Answers one call: its message for the flow, and the flow's reply as messages.
pub(super) async fn serve(
    method: Arc<RouteMethod>,
    app: Arc<App>,
    flows: WorkerFlows,
    mut request: Request,
) -> Response {
    let (id, route, traces) = (request.id, request.route, app.traces.clone());
    let deadline = match method.receive(&mut request).await {
        Ok(deadline) => deadline,
        Err(problem) => return problem.request(id).into(),
    };
    let mut reply = flows.run(route, convert::incoming(&[], request)).await;
    let (messages, line) = (rpc_stream::take(&mut reply), app.flows.describe(route));
    let response = convert::response(reply, id, traces.as_ref());
    match messages {
        Some(messages) if response.status.is_success() => method.send_stream(messages, response, line, deadline),
        _ => method.send(response, line).await,
    }
}

impl RouteMethod {
    /// Puts JSON in place of the request's message, and shortens the deadline to that of the client, which it returns.
    ///
    /// # Errors
    /// Why the request is not a call of the method.
    async fn receive(self: &Arc<Self>, request: &mut Request) -> Result<Option<Instant>, Box<Problem>> {
        let kind = request.headers.get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
        let kind = kind.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        if kind != b"application/grpc" && kind != b"application/grpc+proto" {
            let problem = Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not-grpc", "This is a gRPC method");
            return Err(Box::new(problem.detail("send content-type: application/grpc, with messages as protobuf")));
        }
        if request.version != Version::HTTP_2 {
            return Err(refusal(StatusCode::BAD_REQUEST, "gRPC needs HTTP/2"));
        }
        let mut deadline = None;
        if let Some(timeout) = request.headers.get(TIMEOUT) {
            let left = timeout.to_str().ok().and_then(parse_timeout);
            let left = left.ok_or_else(|| refusal(StatusCode::BAD_REQUEST, "grpc-timeout is no duration"))?;
            let end = request.start + left;
            request.deadline = request.deadline.min(end);
            deadline = Some(end);
        }
        let (body, encoding) = (std::mem::take(&mut request.body), request.headers.get(ENCODING).cloned());
        // A compressed message may become as large as is allowed.
        let bytes = if body.first() == Some(&1) { self.max_message } else { body.len() };
        let method = self.clone();
        let read = move || {
            let message = only_message(&body, encoding.as_ref(), method.max_message)?;
            let json = method.served.request(&method.method, message);
            json.map_err(|what| refusal(StatusCode::BAD_REQUEST, what))
        };
        request.body = off_worker(bytes, read).await.unwrap_or_else(|| Err(Box::new(failed())))?;
        Ok(deadline)
    }

    /// The stream of an upstream, message by message.
    fn send_stream(
        &self,
        messages: Box<dyn MessageStream>,
        mut response: Response,
        line: &str,
        deadline: Option<Instant>,
    ) -> Response {
        if !self.method.is_server_streaming() {
            tracing::error!("{line} serves {}: the method returns one message, not a stream", self.method.full_name());
            return Response { report: response.report, ..failed().into() };
        }
        response.status = StatusCode::OK;
        response.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        response.headers.insert(ACCEPTED, HeaderValue::from_static("identity, gzip"));
        let (served, method) = (self.served.clone(), self.method.clone());
        response.body = Body::stream(Streamed::new(messages, served, method, line, deadline));
        response
    }

    /// The flow's response as messages and a status.
    async fn send(self: &Arc<Self>, response: Response, line: &str) -> Response {
        let kind = response.headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
        if kind == Some(b"application/problem+json") {
            return response;
        }
        let is_json = kind == Some(b"application/json");
        let Response { status, mut headers, body, report } = response;
        headers.remove(CONTENT_TYPE);
        if !status.is_success() {
            let detail = String::from_utf8_lossy(&body.to_bytes()).into_owned();
            let problem = Problem::new(status, "response", status.canonical_reason().unwrap_or("Error")).detail(detail);
            let mut response = Response { report, ..problem.into() };
            response.headers.extend(headers);
            return response;
        }
        let messages = match is_json {
            true => {
                let (method, json) = (self.clone(), body.to_bytes());
                let written = off_worker(json.len(), move || method.served.response(&method.method, &json)).await;
                written.unwrap_or_else(|| Err("the thread for large messages has ended".to_owned()))
            }
            false => Err("the flow must return a message: a dict, or a list of dicts for a stream".to_owned()),
        };
        match messages {
            Ok(messages) => {
                headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
                headers.insert(ACCEPTED, HeaderValue::from_static("identity, gzip"));
                let body = Body::stream(Messages { messages: messages.into(), ended: false });
                Response { status: StatusCode::OK, headers, body, report }
            }
            Err(what) => {
                tracing::error!("{line} serves {}: {what}", self.method.full_name());
                Response { report, ..failed().into() }
            }
        }
    }
}

/// What the client learns of a mistake of ours. The log has the details.
fn failed() -> Problem {
    let problem = Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "flow", "The flow failed");
    problem.detail("see the log of the server")
}

/// The only message of a body.
fn only_message(body: &Bytes, encoding: Option<&HeaderValue>, max: usize) -> Result<Bytes, Box<Problem>> {
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
    let encoding = encoding.map_or(&b"identity"[..], HeaderValue::as_bytes);
    match (prefix[0], encoding) {
        (0, _) => Ok(message),
        (1, b"gzip") => {
            let mut plain = Vec::new();
            let mut decoder = GzDecoder::new(&message[..]);
            let read = decoder.by_ref().take(max.saturating_add(1) as u64).read_to_end(&mut plain);
            read.map_err(|_| bad("the message is no gzip"))?;
            if plain.len() > max {
                let what = format!("the message has more than {max} bytes (max_body)");
                return Err(refusal(StatusCode::PAYLOAD_TOO_LARGE, what));
            }
            if !decoder.into_inner().is_empty() {
                return Err(bad("bytes follow the compressed message"));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_exactly_one_message() {
        let read = |bytes: &[u8], encoding: Option<&'static str>| {
            let encoding = encoding.map(HeaderValue::from_static);
            let read = only_message(&Bytes::copy_from_slice(bytes), encoding.as_ref(), 100);
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
    fn compressed_messages_are_bounded_and_end_with_their_frame() {
        let framed = |parts: &[&[u8]]| {
            let packed: Vec<u8> = parts
                .iter()
                .flat_map(|part| {
                    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
                    std::io::Write::write_all(&mut encoder, part).expect("a vector has room");
                    encoder.finish().expect("a vector has room")
                })
                .collect();
            Bytes::from([&[1][..], &(packed.len() as u32).to_be_bytes(), &packed].concat())
        };
        let gzip = HeaderValue::from_static("gzip");
        let read = |parts: &[&[u8]]| only_message(&framed(parts), Some(&gzip), 100);
        assert_eq!(read(&[&[7; 100]]).expect("it fits"), [7; 100][..]);
        assert_eq!(read(&[&[7; 101]]).expect_err("too large").status(), StatusCode::PAYLOAD_TOO_LARGE);
        assert_eq!(read(&[b"a", b"b"]).expect_err("two members").status(), StatusCode::BAD_REQUEST);
    }
}
