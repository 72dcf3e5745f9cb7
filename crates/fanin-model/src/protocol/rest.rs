//! The protocol over HTTP: paths, methods, statuses.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ::http::header::{ALLOW, CONTENT_TYPE, HeaderValue, ORIGIN};
use ::http::{HeaderMap, Method, Request, Response, StatusCode};
use bytes::Bytes;
use fanin_json::{Doc, Node};
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::in_flight::InFlightPermit;
use super::json_body::{JsonRequest, LENGTH};
use super::json_messages;
use super::large::off_worker;
use super::methods::{self, Change, EXTENSIONS};
use super::read_body::{BodyError, MAX_READ_TIME, read_body};
use super::reply::Reply;
use super::service::Service;
use super::status::{self, Code, Status};
use crate::{Infer, json as tensors};

pub(super) async fn handle(service: &Arc<Service>, peer: SocketAddr, request: Request<Incoming>) -> Response<Reply> {
    match answer(service, peer, request).await {
        Ok(response) => response,
        Err(status) => failed(&status),
    }
}

fn status_of(code: Code) -> StatusCode {
    match code {
        Code::InvalidArgument => StatusCode::BAD_REQUEST,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        Code::Unimplemented => StatusCode::METHOD_NOT_ALLOWED,
        Code::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        Code::ResourceExhausted | Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
    }
}

#[cold]
fn failed(status: &Status) -> Response<Reply> {
    let mut response = sent(status_of(status.code), &json!({"error": status.message}));
    match status.code {
        Code::ResourceExhausted | Code::Unavailable => {
            response.headers_mut().insert("retry-after", HeaderValue::from_static("1"));
        }
        Code::Unimplemented => {
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, POST"));
        }
        _ => {}
    }
    response
}

fn sent(status: StatusCode, value: &Value) -> Response<Reply> {
    body(status, "application/json", value.to_string().into())
}

fn body(status: StatusCode, kind: &'static str, data: Bytes) -> Response<Reply> {
    let mut response = Response::new(Reply::new(data, None, None));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

async fn answer(
    service: &Arc<Service>,
    peer: SocketAddr,
    request: Request<Incoming>,
) -> Result<Response<Reply>, Status> {
    let (head, incoming) = request.into_parts();
    let models = service.models();
    let path = head.uri.path();
    let parts: Vec<String> = path
        .trim_matches('/')
        .split('/')
        .map(|part| percent_encoding::percent_decode_str(part).decode_utf8_lossy().into_owned())
        .collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let get = head.method == Method::GET || head.method == Method::HEAD;
    let post = head.method == Method::POST;
    let ready = |ready: bool| {
        let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        Ok(sent(status, &json!({ "ready": ready })))
    };
    match &parts[..] {
        ["v2"] if get => Ok(sent(
            StatusCode::OK,
            &json!({"name": "fanin", "version": env!("CARGO_PKG_VERSION"), "extensions": EXTENSIONS}),
        )),
        ["v2", "health", "live"] if get => Ok(sent(StatusCode::OK, &json!({"live": true}))),
        ["v2", "health", "ready"] if get => ready(models.is_ready()),
        ["v2", "models", "stats"] if get => {
            Ok(sent(StatusCode::OK, &json_messages::statistics(&methods::statistics(models, "", "")?)))
        }
        ["v2", "models", name, rest @ ..] => {
            let (version, rest) = match rest {
                ["versions", version, rest @ ..] => (*version, rest),
                rest => ("", rest),
            };
            match rest {
                [] if get => {
                    Ok(sent(StatusCode::OK, &json_messages::metadata(&methods::metadata(models, name, version)?)))
                }
                ["ready"] if get => ready(models.find(name, version).is_ok()),
                ["config"] if get => {
                    Ok(sent(StatusCode::OK, &json_messages::config(&methods::config(models, name, version)?)))
                }
                ["stats"] if get => {
                    Ok(sent(StatusCode::OK, &json_messages::statistics(&methods::statistics(models, name, version)?)))
                }
                ["infer"] if post => infer(service, name, version, &head.headers, incoming).await,
                [] | ["ready" | "config" | "stats" | "infer"] => Err(wrong_method(&head.method)),
                _ => Err(Status::new(Code::NotFound, format!("there is nothing at {path}"))),
            }
        }
        ["v2", "repository", "index"] if post => {
            let mut permit = InFlightPermit::acquire(service, &models.bounds())?;
            let doc = document(service, incoming, &mut permit).await?;
            let only = doc.root().get("ready").and_then(Node::as_bool).unwrap_or(false);
            Ok(sent(StatusCode::OK, &json_messages::index(&methods::index(models, only))))
        }
        ["v2", "repository", "models", name, action @ ("load" | "unload")] if post => {
            if head.headers.contains_key(ORIGIN) {
                // Only a browser names an origin, and no page of this server makes such requests.
                return Err(Status::new(Code::PermissionDenied, "a web page cannot load and unload models"));
            }
            let _permit = InFlightPermit::acquire(service, &models.bounds())?;
            let change = if *action == "load" { Change::Load } else { Change::Unload };
            methods::change(models, peer, change, name).await?;
            Ok(sent(StatusCode::OK, &json!({})))
        }
        ["v2", "repository", ..] => Err(wrong_method(&head.method)),
        _ => Err(Status::new(Code::NotFound, format!("there is nothing at {path}; the protocol is below /v2"))),
    }
}

fn wrong_method(method: &Method) -> Status {
    Status::new(Code::Unimplemented, format!("{method} is not the method for this"))
}

/// Reads a body of JSON. An empty one is an empty object.
async fn document(service: &Arc<Service>, incoming: Incoming, permit: &mut InFlightPermit) -> Result<Doc, Status> {
    let bounds = service.models().bounds();
    let deadline = Instant::now() + bounds.timeout;
    let bytes = whole(incoming, bounds.max_message, bounds.timeout, permit).await?;
    let bytes = if bytes.is_empty() { Bytes::from_static(b"{}") } else { bytes };
    let parse = |bytes| Doc::parse_for_reading(bytes, tensors::MAX_DEPTH, std::thread::yield_now);
    let doc = off_worker(bytes.len(), deadline, move || parse(bytes)).await?;
    doc.map_err(|error| invalid(format!("the body is not JSON: {error}")))
}

async fn whole(
    incoming: Incoming,
    max: usize,
    timeout: Duration,
    permit: &mut InFlightPermit,
) -> Result<Bytes, Status> {
    let until = Instant::now() + timeout.min(MAX_READ_TIME);
    read_body(incoming, max, until, permit).await.map_err(|error| match error {
        BodyError::TooLarge => {
            let max = fanin_config::format_size(max as u64);
            invalid(format!("the request is larger than {max} (models.max_message)"))
        }
        BodyError::Broken => invalid("the client aborted the request".to_owned()),
        BodyError::Full(error) => error.into(),
        BodyError::Late => status::late(MAX_READ_TIME < timeout),
    })
}

fn invalid(problem: String) -> Status {
    Status::new(Code::InvalidArgument, problem)
}

async fn infer(
    service: &Arc<Service>,
    name: &str,
    version: &str,
    headers: &HeaderMap,
    incoming: Incoming,
) -> Result<Response<Reply>, Status> {
    let bounds = service.models().bounds();
    let mut permit = InFlightPermit::acquire(service, &bounds)?;
    service.check_memory_for_model(name)?;
    if headers.get("content-encoding").is_some_and(|encoding| encoding != "identity") {
        return Err(invalid("the body is compressed; send it uncompressed".to_owned()));
    }
    let deadline = Instant::now() + bounds.timeout;
    let bytes = whole(incoming, bounds.max_message, bounds.timeout, &mut permit).await?;
    let length = match headers.get(LENGTH) {
        None => bytes.len(),
        Some(length) => {
            let length = length.to_str().ok().and_then(|length| length.parse::<usize>().ok());
            length.ok_or_else(|| invalid(format!("the header {LENGTH} is not a number")))?
        }
    };
    // Data beside the JSON is not looked at.
    let cost = length.min(bytes.len());
    let read = move || JsonRequest::read(bytes, length).map_err(invalid);
    let mut json = off_worker(cost, deadline, read).await??;
    let inputs = std::mem::take(&mut json.inputs);
    let outputs: Vec<&str> = json.outputs.iter().map(|name| &**name).collect();
    let answer = service.models().infer(Infer { model: name, version, inputs, outputs: &outputs, deadline }).await?;
    let cost = answer.bytes();
    let encode = move || json.encode_answer(&answer).map_err(|problem| Status::new(Code::Internal, problem));
    let (text, binary) = off_worker(cost, deadline, encode).await??;
    permit.replace_by_answer(text.len())?;
    let kind = if binary.is_some() { "application/octet-stream" } else { "application/json" };
    let mut response = Response::new(Reply::new(text, None, Some(permit)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    if let Some(length) = binary {
        response.headers_mut().insert(LENGTH, HeaderValue::from(length));
    }
    Ok(response)
}
