//! gRPC over the connections of HTTP/2.
//!
//! A request arrives as JSON, with the method in its path, and is sent as messages. The answer's messages become JSON
//! once the server has ended the stream with success. An error of the server is an answer with the HTTP status that
//! gateways give it, so that policies and flows treat it as any other answer.

use std::rc::Rc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, TE};
use http::uri::PathAndQuery;
use http::{Method as Verb, StatusCode};
use tokio::time::Instant;

use super::attempt::{Attempt, Received};
use super::body;
use super::http2::{self, Http2, Lease};
use super::pool::Pool;
use crate::error::{ErrorKind, Failure};
use crate::grpc::{self, Code, Frames, Method, Methods, Reflection, RoundAnswer, Services, Status};
use crate::headers::strip_hop_by_hop;

const TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");
/// Fanin accepts no compression: decompressing costs a worker more than the bytes saved.
const ACCEPT: HeaderName = HeaderName::from_static("grpc-accept-encoding");
const ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
const GRPC: &str = "application/grpc";
/// Messages up to this size are always converted at once.
const SMALL: usize = 16 << 10;

/// Sends a call and reads its whole answer.
pub(crate) async fn send(pool: &Rc<Pool<Http2>>, attempt: &Attempt<'_>) -> Result<Received, Failure> {
    let Some(services) = attempt.services else { return Err(Failure::ours("its services are not described")) };
    let full = attempt.request.path.path().trim_start_matches('/');
    match &services.reflection {
        None => {
            let (method, body) = prepare(&services.known, full, &attempt.request.body).await?.map_err(Failure::ours)?;
            call(pool, attempt, services, method, body).await
        }
        Some(reflection) => Box::pin(by_reflection(pool, attempt, services, reflection, full)).await,
    }
}

/// The method, and the encoded body of its request. The inner error says why there is none.
async fn prepare<'m>(
    methods: &'m Methods,
    full: &str,
    json: &Bytes,
) -> Result<Result<(&'m Method, Bytes), String>, Failure> {
    let Some(method) = methods.get(full) else {
        return Ok(Err(match methods.unknown_method(full) {
            (message, Some(hint)) => format!("{message} ({hint})"),
            (message, None) => message,
        }));
    };
    let body = match json.len() {
        // Small messages are converted here, so that the method need not be cloned.
        0..=SMALL => grpc::encode(method, json),
        size => {
            let (method, json) = (method.clone(), json.clone());
            grpc::convert(size, move || grpc::encode(&method, &json)).await?
        }
    };
    Ok(body.map(|body| (method, body)).map_err(|what| format!("{full}: {what}")))
}

async fn by_reflection(
    pool: &Rc<Pool<Http2>>,
    attempt: &Attempt<'_>,
    services: &Services,
    reflection: &Reflection,
    full: &str,
) -> Result<Received, Failure> {
    let service = full.split_once('/').map_or(full, |(service, _)| service);
    let ask = async |path: PathAndQuery, body: Bytes| {
        http2::transact(pool, attempt, async |lease: &Lease| {
            let CallEnd { status, messages, .. } =
                exchange(lease, attempt, &path, body.clone(), grpc::MAX_FILES).await?;
            Ok(RoundAnswer { status, messages })
        })
        .await
    };
    // Descriptors may be outdated: before a call is refused for them, they are fetched again.
    let methods = reflection.methods(service, grpc::MAX_AGE, services.safe(), &ask).await?;
    if let Ok((method, body)) = prepare(&methods, full, &attempt.request.body).await? {
        return call(pool, attempt, services, method, body).await;
    }
    let methods = reflection.methods(service, grpc::MAX_AGE_ON_MISMATCH, services.safe(), &ask).await?;
    let (method, body) = prepare(&methods, full, &attempt.request.body).await?.map_err(Failure::ours)?;
    call(pool, attempt, services, method, body).await
}

async fn call(
    pool: &Rc<Pool<Http2>>,
    attempt: &Attempt<'_>,
    services: &Services,
    method: &Method,
    body: Bytes,
) -> Result<Received, Failure> {
    let end = http2::transact(pool, attempt, async |lease: &Lease| {
        exchange(lease, attempt, method.path(), body.clone(), attempt.config.max_messages).await
    });
    let CallEnd { status, mut headers, messages } = end.await?;
    let at = Instant::now();
    if status.code != Code::OK {
        let body = status.refusal(&mut headers).into();
        return Ok(Received { status: status.code.http(), headers: headers.into(), body, at });
    }
    let max = attempt.max_answer;
    let body = match messages.iter().map(Bytes::len).sum() {
        0..=SMALL => grpc::decode(method, messages, &services.shown, max)?,
        size => {
            let (method, shown) = (method.clone(), services.shown.clone());
            grpc::convert(size, move || grpc::decode(&method, messages, &shown, max)).await??
        }
    };
    Ok(Received { status: StatusCode::OK, headers: headers.into(), body, at })
}

/// The end of a call.
struct CallEnd {
    status: Status,
    /// Headers and trailers, without those of the protocol.
    headers: HeaderMap,
    messages: Vec<Bytes>,
}

fn request(attempt: &Attempt<'_>, path: &PathAndQuery) -> Result<http::Request<()>, Failure> {
    let mut request = attempt.http2_request_of(Verb::POST, path.clone())?;
    let headers = request.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(GRPC));
    headers.insert(TE, HeaderValue::from_static("trailers"));
    headers.insert(ACCEPT, HeaderValue::from_static("identity"));
    headers.insert(TIMEOUT, grpc::timeout(attempt.deadline.saturating_duration_since(Instant::now())));
    Ok(request)
}

/// One call on a connection.
async fn exchange(
    lease: &Lease,
    attempt: &Attempt<'_>,
    path: &PathAndQuery,
    body: Bytes,
    max_messages: usize,
) -> Result<CallEnd, Failure> {
    let request = request(attempt, path)?;
    let (head, mut stream) = http2::send_request(lease, attempt, request, body).await?;
    let mut headers = head.headers;
    let status_in_head = Status::take(&mut headers);
    let kind = headers.remove(CONTENT_TYPE);
    let is_grpc = kind.as_ref().is_some_and(|kind| kind.as_bytes().starts_with(GRPC.as_bytes()));
    // An answer without messages may be a single head with the status.
    if let Some(status) = status_in_head {
        return Ok(call_end(status, headers, HeaderMap::new(), Vec::new()));
    }
    if head.status != StatusCode::OK || !is_grpc {
        let code = Code::of_http(head.status);
        let kind = kind.as_ref().map_or("nothing".into(), |kind| String::from_utf8_lossy(kind.as_bytes()));
        let message = format!("HTTP status {} with {kind} instead of gRPC", head.status.as_u16());
        return Ok(call_end(Status::new(code, message), headers, HeaderMap::new(), Vec::new()));
    }
    let mut frames = Frames::default();
    let (mut messages, mut total) = (Vec::new(), 0_usize);
    while let Some(part) = body::within(attempt.chunk_timeout, http2::next_part(lease, attempt, &mut stream)).await? {
        let part = part.map_err(|failure| interrupted(failure, messages.len()))?;
        total += part.len();
        if total > attempt.max_answer.saturating_add(max_messages.saturating_mul(grpc::PREFIX)) {
            return Err(body::too_large(total, attempt.max_answer));
        }
        frames.push(&part);
        while let Some(message) = frames.next(attempt.max_answer)? {
            if messages.len() == max_messages {
                let detail = format!("the stream has more than {} messages (max_messages)", messages.len());
                return Err(Failure::new(ErrorKind::TooLarge, detail));
            }
            messages.push(message);
        }
    }
    let trailers = body::within(attempt.chunk_timeout, stream.trailers()).await?;
    let trailers =
        trailers.map_err(|error| interrupted(http2::failure(lease, attempt.endpoint, &error), messages.len()))?;
    let mut trailers = trailers.unwrap_or_default();
    let Some(status) = Status::take(&mut trailers) else {
        let detail = format!("the server closed the stream after {} messages without a status", messages.len());
        return Err(Failure::new(ErrorKind::Protocol, detail));
    };
    if status.code == Code::OK && frames.left() > 0 {
        let detail = format!("the answer ends in the middle of message {}", messages.len());
        return Err(Failure::new(ErrorKind::Protocol, detail));
    }
    Ok(call_end(status, headers, trailers, messages))
}

fn call_end(status: Status, mut headers: HeaderMap, trailers: HeaderMap, messages: Vec<Bytes>) -> CallEnd {
    for name in trailers.keys() {
        for value in trailers.get_all(name) {
            headers.append(name.clone(), value.clone());
        }
    }
    strip_hop_by_hop(&mut headers);
    for name in [CONTENT_TYPE, ACCEPT, ENCODING] {
        headers.remove(name);
    }
    CallEnd { status, headers, messages }
}

#[cold]
fn interrupted(mut failure: Failure, messages: usize) -> Failure {
    failure.detail = format!("the answer broke off after {messages} messages: {}", failure.detail).into();
    failure.unsent = false;
    failure
}
