//! The protocol over HTTP: JSON, with tensors' data beside it where the client wants that (the binary tensor data
//! extension).

use std::sync::Arc;
use std::time::Duration;

use ::http::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use ::http::{HeaderMap, Method, Request, Response, StatusCode};
use bytes::Bytes;
use fanin_json::{Doc, Kind, Node, Writer};
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::connection::{BodyError, WHOLE, read};
use super::grpc::{self, Code, Status};
use super::methods::{self, EXTENSIONS};
use super::place::Place;
use super::reply::Reply;
use super::{Service, convert, http};
use crate::{Answer, Infer, json as tensors};

const LENGTH: &str = "inference-header-content-length";

pub(super) async fn handle(service: &Arc<Service>, request: Request<Incoming>) -> Response<Reply> {
    match answer(service, request).await {
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

async fn answer(service: &Arc<Service>, request: Request<Incoming>) -> Result<Response<Reply>, Status> {
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
            Ok(sent(StatusCode::OK, &http::statistics(&methods::statistics(models, "", "")?)))
        }
        ["v2", "models", name, rest @ ..] => {
            let (version, rest) = match rest {
                ["versions", version, rest @ ..] => (*version, rest),
                rest => ("", rest),
            };
            match rest {
                [] if get => Ok(sent(StatusCode::OK, &http::metadata(&methods::metadata(models, name, version)?))),
                ["ready"] if get => ready(models.find(name, version).is_ok()),
                ["config"] if get => Ok(sent(StatusCode::OK, &http::config(&methods::config(models, name, version)?))),
                ["stats"] if get => {
                    Ok(sent(StatusCode::OK, &http::statistics(&methods::statistics(models, name, version)?)))
                }
                ["infer"] if post => infer(service, name, version, &head.headers, incoming).await,
                [] | ["ready" | "config" | "stats" | "infer"] => Err(wrong_method(&head.method)),
                _ => Err(Status::new(Code::NotFound, format!("there is nothing at {path}"))),
            }
        }
        ["v2", "repository", "index"] if post => {
            let mut place = Place::take(service, &models.bounds())?;
            let doc = document(service, incoming, &mut place).await?;
            let only = doc.root().get("ready").and_then(Node::as_bool).unwrap_or(false);
            Ok(sent(StatusCode::OK, &http::index(&methods::index(models, only))))
        }
        ["v2", "repository", "models", name, action @ ("load" | "unload")] if post => {
            methods::allowed(models)?;
            if *action == "load" {
                models.load(name).await?
            } else {
                models.unload(name).await?
            }
            Ok(sent(StatusCode::OK, &json!({})))
        }
        ["v2", "repository", ..] => Err(wrong_method(&head.method)),
        _ => Err(Status::new(Code::NotFound, format!("there is nothing at {path}; the protocol is below /v2"))),
    }
}

fn wrong_method(method: &Method) -> Status {
    Status::new(Code::Unimplemented, format!("{method} is not the method for this"))
}

/// A body of JSON, or nothing.
async fn document(service: &Arc<Service>, incoming: Incoming, place: &mut Place) -> Result<Doc, Status> {
    let bounds = service.models().bounds();
    let bytes = whole(incoming, bounds.max_message, bounds.timeout, place).await?;
    let bytes = if bytes.is_empty() { Bytes::from_static(b"{}") } else { bytes };
    Doc::parse(bytes, tensors::MAX_DEPTH).map_err(|error| invalid(format!("the body is not JSON: {error}")))
}

async fn whole(incoming: Incoming, most: usize, timeout: Duration, place: &mut Place) -> Result<Bytes, Status> {
    let until = Instant::now() + timeout.min(WHOLE);
    read(incoming, most, until, place).await.map_err(|error| match error {
        BodyError::TooLarge => {
            let most = fanin_config::format_size(most as u64);
            invalid(format!("the request is larger than {most} (models.max_message)"))
        }
        BodyError::Broken => invalid("the request broke off".to_owned()),
        BodyError::Full(error) => error.into(),
        BodyError::Late => grpc::late(WHOLE < timeout),
    })
}

fn invalid(problem: String) -> Status {
    Status::new(Code::InvalidArgument, problem)
}

/// A flag of a `parameters` object.
fn flag(node: Node<'_>, name: &str) -> Option<bool> {
    node.get("parameters")?.get(name)?.as_bool()
}

async fn infer(
    service: &Arc<Service>,
    name: &str,
    version: &str,
    headers: &HeaderMap,
    incoming: Incoming,
) -> Result<Response<Reply>, Status> {
    let bounds = service.models().bounds();
    let mut place = Place::take(service, &bounds)?;
    service.has_memory_for_model(name)?;
    if headers.get("content-encoding").is_some_and(|encoding| encoding != "identity") {
        return Err(invalid("the body is compressed; send it as it is".to_owned()));
    }
    let deadline = Instant::now() + bounds.timeout;
    let mut bytes = whole(incoming, bounds.max_message, bounds.timeout, &mut place).await?;
    let mut rest = match headers.get(LENGTH) {
        None => Bytes::new(),
        Some(length) => {
            let length = length.to_str().ok().and_then(|length| length.parse::<usize>().ok());
            let length = length.ok_or_else(|| invalid(format!("the header {LENGTH} is no number")))?;
            if length > bytes.len() {
                return Err(invalid(format!("{LENGTH} is {length}, the body has {} bytes", bytes.len())));
            }
            bytes.split_off(length)
        }
    };
    let doc =
        Doc::parse(bytes, tensors::MAX_DEPTH).map_err(|error| invalid(format!("the body is not JSON: {error}")))?;
    let root = doc.root();
    let list = root.get("inputs").filter(|list| list.kind() == Kind::Array);
    let list = list.ok_or_else(|| invalid("the body has no list `inputs`".to_owned()))?;
    let mut inputs = Vec::new();
    for node in list.elements() {
        let size = node.get("parameters").and_then(|parameters| parameters.get("binary_data_size"));
        let binary = match size {
            None => None,
            Some(size) => {
                let size = size.as_i64().and_then(|size| usize::try_from(size).ok());
                let size = size.ok_or_else(|| invalid("a binary_data_size is no count".to_owned()))?;
                let left = rest.len();
                let told = || invalid(format!("a tensor's binary_data_size is {size}, {left} bytes are left"));
                Some(convert::take(&mut rest, size).ok_or_else(told)?)
            }
        };
        inputs.push(tensors::tensor(node, binary).map_err(invalid)?);
    }
    if !rest.is_empty() {
        return Err(invalid(format!("{} bytes of binary data belong to no tensor", rest.len())));
    }
    let outputs: Vec<Node<'_>> = root.get("outputs").into_iter().flat_map(Node::elements).collect();
    let names: Option<Vec<_>> =
        outputs.iter().map(|output| output.get("name").and_then(|name| name.as_str())).collect();
    let names = names.ok_or_else(|| invalid("an output has no `name`".to_owned()))?;
    let names: Vec<&str> = names.iter().map(|name| &**name).collect();
    let asked = Infer { model: name, version, inputs, outputs: &names, deadline };
    let answer = service.models().infer(asked).await?;
    let all_binary = flag(root, "binary_data_output").unwrap_or(false);
    let is_binary = |name: &str| {
        let asked =
            outputs.iter().find(|output| output.get("name").and_then(|name| name.as_str()).as_deref() == Some(name));
        asked.and_then(|output| flag(*output, "binary_data")).unwrap_or(all_binary)
    };
    let id = root.get("id").and_then(|id| id.as_str());
    let written = written(&answer, id.as_deref(), is_binary);
    let (text, binary) = written.map_err(|problem| Status::new(Code::Internal, problem))?;
    place.answers(text.len())?;
    let kind = if binary.is_some() { "application/octet-stream" } else { "application/json" };
    let mut response = Response::new(Reply::new(text, None, Some(place)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    if let Some(length) = binary {
        response.headers_mut().insert(LENGTH, HeaderValue::from(length));
    }
    Ok(response)
}

/// The response: JSON, and after it the data of the outputs that are wanted as bytes; then it says how long the JSON is.
fn written(
    answer: &Answer,
    id: Option<&str>,
    is_binary: impl Fn(&str) -> bool,
) -> Result<(Bytes, Option<usize>), String> {
    let mut text = Vec::with_capacity(512);
    let mut writer = Writer::new(&mut text);
    let mut binary: Vec<Bytes> = Vec::new();
    writer.begin_object();
    writer.key("model_name");
    writer.str(answer.version.model());
    writer.key("model_version");
    writer.str(answer.version.text());
    if let Some(id) = id {
        writer.key("id");
        writer.str(id);
    }
    writer.key("outputs");
    writer.begin_array();
    for output in &answer.outputs {
        writer.begin_object();
        writer.key("name");
        writer.str(&output.name);
        writer.key("datatype");
        writer.str(output.datatype.as_str());
        writer.key("shape");
        writer.begin_array();
        output.shape.iter().for_each(|size| writer.int(*size));
        writer.end_array();
        if is_binary(&output.name) {
            let raw = output.to_raw();
            writer.key("parameters");
            writer.begin_object();
            writer.key("binary_data_size");
            writer.int(raw.len() as i64);
            writer.end_object();
            binary.push(raw);
        } else {
            writer.key("data");
            tensors::write_data(&mut writer, output)?;
        }
        writer.end_object();
    }
    writer.end_array();
    writer.end_object();
    let length = (!binary.is_empty()).then_some(text.len());
    binary.iter().for_each(|raw| text.extend_from_slice(raw));
    Ok((text.into(), length))
}
