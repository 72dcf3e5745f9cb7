//! gRPC requests: a message in, a message and trailers out.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ::http::header::{CONTENT_TYPE, HeaderValue};
use ::http::{Request, Response};
use fanin_config::Priority;
use hyper::body::Incoming;
use tokio::time::Instant;

use super::framing::{parse_timeout, too_large, unframed};
use super::in_flight::InFlightPermit;
use super::read_body::{BodyError, MAX_READ_TIME, read_body};
use super::reply::Reply;
use super::service::Service;
use super::serving::Serving;
use super::status::{Code, Status, late};
use super::{methods, standard};

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");

pub(super) async fn handle(
    service: &Arc<Service>,
    serving: &Rc<Serving>,
    peer: SocketAddr,
    request: Request<Incoming>,
) -> Response<Reply> {
    match answer(service, serving, peer, request).await {
        Ok(reply) => {
            let mut response = Response::new(reply);
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
    *headers = status.headers();
    headers.insert(CONTENT_TYPE, GRPC);
    if status.code == Code::Unimplemented {
        headers.insert("grpc-accept-encoding", HeaderValue::from_static("identity"));
    }
    response
}

/// What a path names.
#[derive(Clone, Copy, PartialEq)]
enum Named {
    Protocol(methods::Method),
    Standard(standard::Method),
}

impl Named {
    fn parse(path: &str) -> Option<Named> {
        match path.strip_prefix("/inference.GRPCInferenceService/") {
            Some(name) => methods::Method::parse(name).map(Named::Protocol),
            None => standard::Method::parse(path).map(Named::Standard),
        }
    }
}

async fn answer(
    service: &Arc<Service>,
    serving: &Rc<Serving>,
    peer: SocketAddr,
    request: Request<Incoming>,
) -> Result<Reply, Status> {
    let bounds = service.models.bounds();
    let (head, body) = request.into_parts();
    let path = head.uri.path();
    let is_shown =
        |named: &Named| *named != Named::Standard(standard::Method::Reflection) || service.models.config().reflection;
    let Some(named) = Named::parse(path).filter(is_shown) else {
        return Err(Status::new(Code::Unimplemented, format!("there is no method {path}")));
    };
    let asked = head.headers.get("grpc-timeout").map(|timeout| {
        let timeout = timeout.to_str().ok().and_then(parse_timeout);
        timeout.ok_or_else(|| Status::new(Code::InvalidArgument, "the header grpc-timeout is not a duration"))
    });
    let asked = asked.transpose()?;
    let now = Instant::now();
    let deadline = now.checked_add(asked.unwrap_or(bounds.timeout)).unwrap_or(now + Duration::from_secs(86_400));
    let mut permit = InFlightPermit::acquire(service, &bounds)?;
    if named == Named::Protocol(methods::Method::Infer) {
        service.check_memory(Priority::Critical)?;
    }
    if named == Named::Standard(standard::Method::Reflection) {
        let until = asked.map_or(now + MAX_READ_TIME, |_| deadline.min(now + MAX_READ_TIME));
        return Ok(Reply::stream(Box::new(standard::Reflection::new(body, until)), Some(permit)));
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
    let answer = match named {
        Named::Protocol(method) => methods::call(service, peer, method, message, deadline).await?,
        Named::Standard(standard::Method::Watch) => {
            let watch = standard::Watch::new(service, serving, message, asked.map(|_| deadline))?;
            return Ok(Reply::stream(Box::new(watch), None));
        }
        Named::Standard(method) => standard::call(service, serving, method, message)?,
    };
    permit.replace_by_answer(answer.len())?;
    Ok(Reply::new(answer, Some(Status::ok()), Some(permit)))
}
