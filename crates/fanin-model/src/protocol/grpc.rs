//! gRPC requests: a message in, a message and trailers out.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ::http::header::{CONTENT_TYPE, HeaderValue};
use ::http::{HeaderMap, Request, Response};
use bytes::Bytes;
use fanin_config::Priority;
use hyper::body::Incoming;
use tokio::time::Instant;

use super::framing::{parse_timeout, percent_encoded, too_large, unframed};
use super::in_flight::InFlightPermit;
use super::methods;
use super::read_body::{BodyError, MAX_READ_TIME, read_body};
use super::reply::Reply;
use super::service::Service;
use super::serving::Serving;
use super::status::{Code, Status, late};

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");

pub(super) async fn handle(
    service: &Arc<Service>,
    serving: &Serving,
    peer: SocketAddr,
    request: Request<Incoming>,
) -> Response<Reply> {
    match answer(service, peer, request).await {
        Ok((data, permit)) => {
            let mut trailers = HeaderMap::with_capacity(1);
            trailers.insert("grpc-status", HeaderValue::from_static("0"));
            let mut response = Response::new(Reply::new(data, Some(trailers), Some(permit)));
            response.headers_mut().insert(CONTENT_TYPE, GRPC);
            response
        }
        Err(status) => {
            if status.code == Code::ResourceExhausted {
                serving.refused.notify_one();
            }
            failed(&status)
        }
    }
}

/// A response without a message: head and trailers in one ("trailers-only").
#[cold]
fn failed(status: &Status) -> Response<Reply> {
    let mut response = Response::new(Reply::default());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, GRPC);
    headers.insert("grpc-status", HeaderValue::from(status.code as u16));
    if status.code == Code::Unimplemented {
        headers.insert("grpc-accept-encoding", HeaderValue::from_static("identity"));
    }
    // Percent-encoded text is always a valid header value.
    if let Ok(mut message) = HeaderValue::from_str(&percent_encoded(&status.message)) {
        // Sensitive headers stay out of HPACK's table: a message hardly ever repeats and would only evict others.
        message.set_sensitive(true);
        headers.insert("grpc-message", message);
    }
    response
}

async fn answer(
    service: &Arc<Service>,
    peer: SocketAddr,
    request: Request<Incoming>,
) -> Result<(Bytes, InFlightPermit), Status> {
    let bounds = service.models.bounds();
    let (head, body) = request.into_parts();
    let path = head.uri.path();
    let Some(method) = path.strip_prefix("/inference.GRPCInferenceService/").and_then(methods::Method::parse) else {
        return Err(Status::new(Code::Unimplemented, format!("there is no method {path}")));
    };
    let timeout = match head.headers.get("grpc-timeout") {
        Some(timeout) => timeout
            .to_str()
            .ok()
            .and_then(parse_timeout)
            .ok_or_else(|| Status::new(Code::InvalidArgument, "the header grpc-timeout is not a duration"))?,
        None => bounds.timeout,
    };
    let now = Instant::now();
    let deadline = now.checked_add(timeout).unwrap_or(now + Duration::from_secs(86_400));
    let mut permit = InFlightPermit::acquire(service, &bounds)?;
    if method == methods::Method::Infer {
        service.check_memory(Priority::Critical)?;
    }
    let max = bounds.max_message;
    let until = deadline.min(now + MAX_READ_TIME);
    let body = read_body(body, max.saturating_add(5), until, &mut permit).await.map_err(|error| match error {
        BodyError::TooLarge => too_large(max),
        BodyError::Full(error) => error.into(),
        BodyError::Broken => Status::new(Code::Internal, "the client aborted the request"),
        BodyError::Late => late(until < deadline),
    })?;
    let message = unframed(&body, max)?;
    // The message shares its memory.
    drop(body);
    let answer = methods::call(service, peer, method, message, deadline).await?;
    permit.replace_by_answer(answer.len())?;
    Ok((answer, permit))
}
