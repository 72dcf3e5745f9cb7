//! A method: its requests as JSON, and responses as messages.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fanin_flow::{MessageStream, RpcStatus};
use fanin_model::protocol::parse_timeout;
use fanin_server::rpc::{Call, Codec, Detail, End, Protocol, Status, Writer};
use fanin_server::{Body, Problem, Report, Request, RequestId, Response};
use fanin_upstream::grpc::{Form, Method, Served, off_worker};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::{StatusCode, Version};
use tokio::time::Instant;

use super::lines::{Lines, Make, Source, Stream};
use super::{no_call, ours};

const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");
const CONNECT_TIMEOUT: HeaderName = HeaderName::from_static("connect-timeout-ms");

const INVALID_ARGUMENT: u8 = 3;

/// To compress takes about so many times as long as to convert.
const COMPRESSION_COST: usize = 4;

const NO_THREAD: &str = "the thread for large messages has ended";

/// A method that is served.
pub(in crate::app) struct RouteMethod {
    served: Arc<Served>,
    method: Method,
    max_message: usize,
    compress_from: Option<usize>,
}

/// A call whose request has been read.
pub(super) struct Received {
    call: Call,
    accepts_gzip: bool,
    /// The client's deadline, if it has one.
    until: Option<Instant>,
}

/// Why a request was not taken.
pub(super) enum Refused {
    /// It is no call.
    NoCall(Box<Problem>),
    /// It is one that fails.
    Failed(Call, Box<Status>),
}

impl Refused {
    pub(super) fn response(self, id: RequestId) -> Response {
        match self {
            Refused::NoCall(problem) => problem.request(id).into(),
            Refused::Failed(call, status) => call.failed(&status, HeaderMap::new(), status.http()),
        }
    }
}

impl RouteMethod {
    pub(super) fn new(served: Arc<Served>, method: Method, max_message: usize, compress_from: Option<usize>) -> Self {
        RouteMethod { served, method, max_message, compress_from }
    }

    /// Its name without that of its service.
    pub(super) fn name(&self) -> &str {
        self.method.full_name().rsplit('/').next().unwrap_or_default()
    }

    /// Whether its responses are streams.
    fn is_stream(&self) -> bool {
        self.method.is_server_streaming()
    }

    /// Whether it can be called by GET: it changes nothing, and takes and returns one message.
    pub(super) fn allows_get(&self) -> bool {
        self.method.is_safe() && !self.method.is_client_streaming() && !self.method.is_server_streaming()
    }

    /// Puts JSON in place of the request's message, and shortens the deadline to that of the client.
    ///
    /// # Errors
    /// Why the request is not a call of the method.
    pub(super) async fn receive(self: &Arc<Self>, request: &mut Request) -> Result<Received, Refused> {
        let Some(call) = Call::of(&request.method, &request.headers) else {
            return Err(Refused::NoCall(Box::new(no_call())));
        };
        if call.protocol == Protocol::Grpc && request.version != Version::HTTP_2 {
            let problem = Problem::new(StatusCode::BAD_REQUEST, "bad-request", "The request is not valid");
            return Err(Refused::NoCall(Box::new(problem.detail("gRPC needs HTTP/2"))));
        }
        let is_unary = !self.method.is_client_streaming() && !self.method.is_server_streaming();
        if matches!(call.protocol, Protocol::Connect | Protocol::ConnectStream)
            && is_unary != (call.protocol == Protocol::Connect)
        {
            let kinds =
                if is_unary { "application/json or application/proto" } else { "application/connect+json or +proto" };
            let problem = no_call().detail(format!("Connect calls this method with content-type: {kinds}"));
            return Err(Refused::NoCall(Box::new(problem)));
        }
        let failed = |status| Refused::Failed(call, Box::new(status));
        let left = timeout(call, &request.headers).map_err(failed)?;
        let until = left.and_then(|left| request.start.checked_add(left));
        if let Some(until) = until {
            request.deadline = request.deadline.min(until);
        }
        let reader = call.reader(&request.method, &request.uri, &request.headers).map_err(failed)?;
        // A GET says its codec in the query.
        let call = reader.call();
        let body = std::mem::take(&mut request.body);
        let (method, bytes) = (self.clone(), reader.bound(&body, self.max_message));
        let read = move || {
            let takes_stream = method.method.is_client_streaming();
            let messages = reader.read(body, method.max_message, takes_stream)?;
            let json = method.served.request(&method.method, &messages, form(call.codec));
            json.map_err(|what| Status::new(INVALID_ARGUMENT, what))
        };
        let read = off_worker(bytes, read).await.unwrap_or_else(|| Err(ours()));
        request.body = read.map_err(|status| Refused::Failed(call, Box::new(status)))?;
        Ok(Received { call, accepts_gzip: call.accepts_gzip(&request.headers), until })
    }

    /// The flow's response as messages and a status. `messages` are its body, if they are those of a stream. `line` names the flow in the log.
    pub(super) async fn send(
        self: &Arc<Self>,
        received: Received,
        response: Response,
        messages: Option<Box<dyn MessageStream>>,
        rpc: Option<Box<RpcStatus>>,
        line: &str,
    ) -> Response {
        let Received { call, accepts_gzip, until } = received;
        let Response { status: http, mut headers, mut body, report } = response;
        let kind = headers.remove(CONTENT_TYPE);
        let kind = kind.as_ref().map(HeaderValue::as_bytes).unwrap_or_default();
        let status = match self.status(rpc) {
            Ok(status) => status,
            Err(what) => return self.mistake(call, &what, line, report),
        };
        if kind == b"application/problem+json" && status.code == 0 {
            // The server sends it in the form of the protocol.
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
            return Response { status: http, headers, body, report };
        }
        headers.remove(CONTENT_LENGTH);
        if status.code == 0 && !http.is_success() {
            let detail = String::from_utf8_lossy(&body.to_bytes()).into_owned();
            let problem = Problem::new(http, "response", http.canonical_reason().unwrap_or("Error")).detail(detail);
            let mut response = Response { report, ..problem.into() };
            response.headers.extend(headers);
            return response;
        }
        let is_error = status.code != 0;
        let is_json = kind == b"application/json";
        if is_error && (!self.is_stream() || !is_json || body.to_bytes() == "null") {
            return Response { report, ..call.failed(&status, headers, http) };
        }
        let writer = Writer::new(call, self.compress_from.filter(|_| accepts_gzip));
        let source = match messages {
            Some(messages) => Some(Source::Messages(messages)),
            None if body.is_stream() && matches!(kind, b"application/jsonl" | b"application/x-ndjson") => {
                Some(Source::Lines(Lines::new(std::mem::take(&mut body))))
            }
            None => None,
        };
        if let Some(source) = source {
            if !self.is_stream() {
                return self.mistake(call, "the method returns one message, not a stream", line, report);
            }
            let method = self.clone();
            let make: Make = Box::new(move |json| Box::pin(method.clone().message(json, writer)));
            let name = format!("{line} serves {}", self.method.full_name());
            let stream = Stream::new(source, make, writer, status, until, name);
            writer.add_headers(writer.compresses(usize::MAX), &mut headers);
            headers.insert(CONTENT_TYPE, call.content_type());
            return Response { status: http, headers, body: Body::stream(stream), report };
        }
        let messages = match is_json && !body.is_stream() {
            true => self.messages(body.to_bytes(), writer).await,
            false => Err("the flow must return a message: a dict, or a list of dicts for a stream".to_owned()),
        };
        let messages = match messages {
            Ok(messages) => messages,
            Err(what) => return self.mistake(call, &what, line, report),
        };
        headers.insert(CONTENT_TYPE, call.content_type());
        let compressed = messages.iter().any(|message| message.is_compressed);
        writer.add_headers(compressed, &mut headers);
        let mut frames: Vec<Bytes> = messages.into_iter().map(|message| message.bytes).collect();
        if call.protocol == Protocol::Connect {
            call.add_trailers(&status, &mut headers);
            return Response { status: http, headers, body: frames.into(), report };
        }
        let body = match call.end(&status) {
            End::Trailers(trailers) => Body::from(frames).with_trailers(trailers),
            End::Frame(frame) => {
                frames.push(frame.into());
                match call.protocol {
                    Protocol::GrpcWebText => writer.sent(frames.concat().into()).into(),
                    _ => frames.into(),
                }
            }
        };
        Response { status: http, headers, body, report }
    }

    /// A call that failed before its flow.
    pub(super) fn fail(&self, received: Received, status: Status) -> Response {
        received.call.failed(&status, HeaderMap::new(), status.http())
    }

    /// The status that a flow has chosen, with its details as protobuf.
    fn status(&self, rpc: Option<Box<RpcStatus>>) -> Result<Status, String> {
        let Some(rpc) = rpc else { return Ok(Status::default()) };
        let RpcStatus { code, message, details, trailers } = *rpc;
        let details = details.into_iter().enumerate().map(|(at, json)| {
            let (kind, value) = self.served.detail(&json).map_err(|what| format!("detail {at}: {what}"))?;
            Ok(Detail { kind, value, json: Some(json) })
        });
        let trailers = (!trailers.is_empty()).then(|| Box::new(trailers));
        Ok(Status { code, message, details: details.collect::<Result<_, String>>()?, trailers })
    }

    /// All messages of a response, as they are sent.
    async fn messages(self: &Arc<Self>, json: Bytes, writer: Writer) -> Result<Vec<Message>, String> {
        let cost = cost(&json, writer);
        let method = self.clone();
        let write = move || {
            let messages = method.served.response(&method.method, &json, form(writer.call().codec))?;
            messages.into_iter().map(|message| Message::new(message, writer)).collect()
        };
        off_worker(cost, write).await.unwrap_or_else(|| Err(NO_THREAD.to_owned()))
    }

    /// One message of a stream, from its JSON to the bytes that are sent.
    ///
    /// # Errors
    /// Which field does not fit.
    pub(super) async fn message(self: Arc<Self>, json: Bytes, writer: Writer) -> Result<Bytes, String> {
        let cost = cost(&json, writer);
        let write = move || {
            let message = self.served.message(&self.method, json, form(writer.call().codec))?;
            Message::new(message, writer).map(|message| writer.sent(message.bytes))
        };
        off_worker(cost, write).await.unwrap_or_else(|| Err(NO_THREAD.to_owned()))
    }

    /// What the flow returned is no message, which the log says.
    #[cold]
    fn mistake(&self, call: Call, what: &str, line: &str, report: Report) -> Response {
        tracing::error!("{line} serves {}: {what}", self.method.full_name());
        let status = ours();
        Response { report, ..call.failed(&status, HeaderMap::new(), status.http()) }
    }
}

/// A message as it is sent.
struct Message {
    bytes: Bytes,
    is_compressed: bool,
}

impl Message {
    fn new(message: Bytes, writer: Writer) -> Result<Message, String> {
        if writer.call().protocol == Protocol::Connect {
            let (bytes, is_compressed) = writer.body(message);
            return Ok(Message { bytes, is_compressed });
        }
        let bytes = writer.frame(&message)?;
        let is_compressed = bytes.first() == Some(&1);
        Ok(Message { bytes, is_compressed })
    }
}

/// What it costs to make messages of JSON, in bytes that are only converted.
fn cost(json: &Bytes, writer: Writer) -> usize {
    if writer.compresses(json.len()) { json.len().saturating_mul(COMPRESSION_COST) } else { json.len() }
}

fn form(codec: Codec) -> Form {
    if codec == Codec::Json { Form::Json } else { Form::Binary }
}

/// How long the client waits, if a header has it.
fn timeout(call: Call, headers: &HeaderMap) -> Result<Option<Duration>, Status> {
    let name = match call.protocol {
        Protocol::Connect | Protocol::ConnectStream => CONNECT_TIMEOUT,
        _ => GRPC_TIMEOUT,
    };
    let Some(value) = headers.get(&name) else { return Ok(None) };
    let text = value.to_str().unwrap_or_default();
    let read = match name == CONNECT_TIMEOUT {
        true => parse_millis(text),
        false => parse_timeout(text),
    };
    read.map(Some).ok_or_else(|| Status::new(INVALID_ARGUMENT, format!("{name} is no duration")))
}

/// At most ten digits.
fn parse_millis(text: &str) -> Option<Duration> {
    let is_number = (1..=10).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number).map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_of_connect_are_milliseconds() {
        assert_eq!(parse_millis("250"), Some(Duration::from_millis(250)));
        assert_eq!(parse_millis("9999999999"), Some(Duration::from_millis(9_999_999_999)));
        for wrong in ["", "+1", "-1", "1.5", "1s", "99999999999"] {
            assert_eq!(parse_millis(wrong), None, "{wrong}");
        }
    }
}
