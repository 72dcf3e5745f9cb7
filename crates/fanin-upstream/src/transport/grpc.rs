//! gRPC over the connections of HTTP/2.
//!
//! A request arrives as JSON, with the method in its path, and is sent as messages. The answer's messages become JSON
//! once the server has ended the stream with success. An error of the server is an answer with the HTTP status that
//! gateways give it, so that policies and flows treat it as any other answer.
//!
//! - `answer`: reads the messages and the status of an answer. `streamed`: passes them on one by one.

mod answer;
mod streamed;

use std::future::poll_fn;
use std::rc::Rc;

use bytes::Bytes;
use fanin_config::GrpcCompression;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, TE};
use http::uri::PathAndQuery;
use http::{Method as Verb, StatusCode};
use tokio::time::Instant;

use super::attempt::{Attempt, Received};
use super::body;
use super::http2::{self, Http2, Lease};
use super::pool::Pool;
use crate::error::{ErrorKind, Failure};
use crate::grpc::{self, Code, Method, Methods, Reflection, RoundAnswer, Services, Status};
use answer::{Answer, GRPC, Opened};

const TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");
/// Messages up to this size are always converted at once.
const SMALL: usize = 16 << 10;

/// Sends a call and reads its whole answer.
pub(crate) async fn send(pool: &Rc<Pool<Http2>>, attempt: &Attempt<'_>) -> Result<Received, Failure> {
    let Some(services) = attempt.services else { return Err(Failure::ours("its services are not described")) };
    let full = attempt.request.path.path().trim_start_matches('/');
    let sent = match &services.reflection {
        None => {
            let (method, body) = prepare(&services.known, full, attempt).await?.map_err(Failure::ours)?;
            call(pool, attempt, services, method, body).await
        }
        Some(reflection) => Box::pin(by_reflection(pool, attempt, services, reflection, full)).await,
    };
    sent.map_err(|failure| match failure.kind {
        ErrorKind::Protocol if attempt.deadline <= Instant::now() => overdue(failure),
        _ => failure,
    })
}

/// A server that knows the deadline may break off at it, before this side's timer has noticed.
#[cold]
fn overdue(failure: Failure) -> Failure {
    Failure::new(ErrorKind::Timeout, format!("at its deadline: {}", failure.detail))
}

/// Whether the messages of requests are compressed, and those of answers may be.
fn is_compressed(attempt: &Attempt<'_>) -> bool {
    attempt.config.compression == GrpcCompression::Gzip
}

/// The method, and the encoded body of its request. The inner error says why there is none.
async fn prepare<'m>(
    methods: &'m Methods,
    full: &str,
    attempt: &Attempt<'_>,
) -> Result<Result<(&'m Method, Bytes), String>, Failure> {
    let (json, gzip) = (&attempt.request.body, is_compressed(attempt));
    let Some(method) = methods.get(full) else {
        return Ok(Err(match methods.unknown_method(full) {
            (message, Some(hint)) => format!("{message} ({hint})"),
            (message, None) => message,
        }));
    };
    let body = match json.len() {
        // Small messages are converted here, so that the method need not be cloned.
        0..=SMALL => grpc::encode(method, json, gzip),
        size => {
            let (method, json) = (method.clone(), json.clone());
            grpc::convert(size, move || grpc::encode(&method, &json, gzip)).await?
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
    if let Ok((method, body)) = prepare(&methods, full, attempt).await? {
        return call(pool, attempt, services, method, body).await;
    }
    let methods = reflection.methods(service, grpc::MAX_AGE_ON_MISMATCH, services.safe(), &ask).await?;
    let (method, body) = prepare(&methods, full, attempt).await?.map_err(Failure::ours)?;
    call(pool, attempt, services, method, body).await
}

async fn call(
    pool: &Rc<Pool<Http2>>,
    attempt: &Attempt<'_>,
    services: &Services,
    method: &Method,
    body: Bytes,
) -> Result<Received, Failure> {
    if let Some(slot) = attempt.source {
        return streamed::send(pool, attempt, services, method, body, slot).await;
    }
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
    // The protocol's own headers are never a flow's.
    headers.remove(answer::ENCODING);
    headers.remove(TIMEOUT);
    // Unless it is configured, no compression is accepted: it costs a worker more than the bytes saved.
    headers.insert(answer::ACCEPT, HeaderValue::from_static("identity"));
    if is_compressed(attempt) {
        headers.insert(answer::ENCODING, HeaderValue::from_static("gzip"));
        headers.insert(answer::ACCEPT, HeaderValue::from_static("identity,gzip"));
    }
    let left = match attempt.source {
        None => Some(attempt.deadline.saturating_duration_since(Instant::now())),
        // The attempt ends with the first message. The server must not stop then.
        Some(_) => attempt.stream_timeout,
    };
    if let Some(timeout) = left.and_then(grpc::timeout) {
        headers.insert(TIMEOUT, timeout);
    }
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
    let (head, stream) = http2::send_request(lease, attempt, request, body).await?;
    let (max, endpoint) = (attempt.max_answer, attempt.endpoint);
    let mut answer = match Answer::open(head, stream, is_compressed(attempt), max) {
        Opened::Ended { status, headers } => return Ok(CallEnd { status, headers, messages: Vec::new() }),
        Opened::Messages(answer) => answer,
    };
    let (mut messages, mut total) = (Vec::new(), 0_usize);
    while body::within(attempt.chunk_timeout, poll_fn(|cx| answer.poll_part(lease, endpoint, cx))).await?? {
        while let Some(message) = answer.next_message()? {
            if messages.len() == max_messages {
                let detail = format!("the stream has more than {} messages (max_messages)", messages.len());
                return Err(Failure::new(ErrorKind::TooLarge, detail));
            }
            let message = match message.is_compressed {
                false => message.bytes,
                true => answer::decompressed(message.bytes, max).await?,
            };
            total += message.len();
            if total > max {
                return Err(body::too_large(total, max));
            }
            messages.push(message);
        }
    }
    let end = body::within(attempt.chunk_timeout, poll_fn(|cx| answer.poll_end(lease, endpoint, cx))).await??;
    Ok(CallEnd { status: end.status, headers: answer.all_headers(end.trailers), messages })
}
