//! gRPC's framing: a message after five bytes, a status in trailers.

use std::sync::Arc;
use std::time::Duration;

use ::http::header::{CONTENT_TYPE, HeaderValue};
use ::http::{HeaderMap, Request, Response};
use bytes::{BufMut, Bytes, BytesMut};
use fanin_config::Priority;
use hyper::body::Incoming;
use prost::Message;
use tokio::time::Instant;

use super::client::Client;
use super::connection::{BodyError, WHOLE, read};
use super::place::Place;
use super::reply::Reply;
use super::{Service, methods};
use crate::InferError;

/// A gRPC status code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Code {
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
}

/// A call that failed.
#[derive(Debug)]
pub(super) struct Status {
    pub code: Code,
    pub message: String,
}

impl Status {
    pub fn new(code: Code, message: impl Into<String>) -> Status {
        Status { code, message: message.into() }
    }
}

impl From<InferError> for Status {
    fn from(error: InferError) -> Status {
        let code = match &error {
            InferError::Invalid(_) => Code::InvalidArgument,
            InferError::NotFound(_) => Code::NotFound,
            InferError::Unavailable(_) => Code::Unavailable,
            InferError::Overloaded(_) => Code::ResourceExhausted,
            InferError::Deadline(_) => Code::DeadlineExceeded,
            InferError::Engine(_) => Code::Internal,
        };
        Status::new(code, error.to_string())
    }
}

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");

pub(super) async fn handle(client: &Client, request: Request<Incoming>) -> Response<Reply> {
    match answer(&client.service, request).await {
        Ok((data, place)) => {
            let mut trailers = HeaderMap::with_capacity(1);
            trailers.insert("grpc-status", HeaderValue::from_static("0"));
            let mut response = Response::new(Reply::new(data, Some(trailers), Some(place)));
            response.headers_mut().insert(CONTENT_TYPE, GRPC);
            response
        }
        Err(status) => {
            if status.code == Code::ResourceExhausted {
                client.serving.refused.notify_one();
            }
            failed(&status)
        }
    }
}

/// Head and trailers in one.
#[cold]
fn failed(status: &Status) -> Response<Reply> {
    let mut response = Response::new(Reply::default());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, GRPC);
    headers.insert("grpc-status", HeaderValue::from(status.code as u16));
    if status.code == Code::Unimplemented {
        headers.insert("grpc-accept-encoding", HeaderValue::from_static("identity"));
    }
    // Percent-encoding leaves nothing that a header can't hold.
    if let Ok(mut message) = HeaderValue::from_str(&encoded(&status.message)) {
        // It hardly ever comes twice: kept out of the table of headers, where it would only drive out others.
        message.set_sensitive(true);
        headers.insert("grpc-message", message);
    }
    response
}

/// gRPC's percent-encoding: printable ASCII but `%` as it is.
fn encoded(message: &str) -> String {
    let mut text = String::with_capacity(message.len());
    for byte in message.bytes().take(2000) {
        match byte {
            b' '..=b'~' if byte != b'%' => text.push(char::from(byte)),
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

async fn answer(service: &Arc<Service>, request: Request<Incoming>) -> Result<(Bytes, Place), Status> {
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
            .ok_or_else(|| Status::new(Code::InvalidArgument, "the header grpc-timeout is no time"))?,
        None => bounds.timeout,
    };
    let now = Instant::now();
    let deadline = now.checked_add(timeout).unwrap_or(now + Duration::from_secs(86_400));
    let mut place = Place::take(service, &bounds)?;
    if method == methods::Method::Infer {
        service.has_memory_for(Priority::Critical)?;
    }
    let most = bounds.max_message;
    let until = deadline.min(now + WHOLE);
    let body = read(body, most.saturating_add(5), until, &mut place).await.map_err(|error| match error {
        BodyError::TooLarge => too_large(most),
        BodyError::Full(error) => error.into(),
        BodyError::Broken => Status::new(Code::Internal, "the request broke off"),
        BodyError::Late => late(until < deadline),
    })?;
    let message = unframed(&body, most)?;
    // The message is part of it.
    drop(body);
    let answer = methods::call(service, method, message, deadline).await?;
    place.answers(answer.len())?;
    Ok((answer, place))
}

/// Of a request that did not come whole: before its deadline if that is `later`.
pub(super) fn late(later: bool) -> Status {
    let told = match later {
        false => "the deadline came before the whole request".to_owned(),
        true => format!("the request did not come whole within {} s", WHOLE.as_secs()),
    };
    Status::new(Code::DeadlineExceeded, told)
}

fn too_large(most: usize) -> Status {
    let most = fanin_config::format_size(most as u64);
    Status::new(Code::ResourceExhausted, format!("the request is larger than {most} (models.max_message)"))
}

/// The one message of a request.
fn unframed(body: &Bytes, most: usize) -> Result<Bytes, Status> {
    let Some((head, rest)) = body.split_first_chunk::<5>() else {
        return Err(Status::new(Code::Internal, "the request has no message"));
    };
    if head[0] != 0 {
        return Err(Status::new(Code::Unimplemented, "the message is compressed; send it as it is"));
    }
    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
    if length > most {
        return Err(too_large(most));
    }
    if length != rest.len() {
        let told = format!("the message says {length} bytes, {} came", rest.len());
        return Err(Status::new(Code::Internal, told));
    }
    Ok(body.slice(5..))
}

/// A message after its five bytes.
pub(super) fn framed(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut frame = BytesMut::with_capacity(5 + length);
    frame.put_u8(0);
    frame.put_u32(length as u32);
    // It has been given the room that the message says it needs.
    let _ = message.encode(&mut frame);
    frame.freeze()
}

/// `50m`: at most eight digits and a unit.
fn parse_timeout(text: &str) -> Option<Duration> {
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
    fn timeouts_are_grpcs() {
        assert_eq!(parse_timeout("50m"), Some(Duration::from_millis(50)));
        assert_eq!(parse_timeout("99999999H"), Some(Duration::from_secs(99_999_999 * 3600)));
        for bad in ["", "m", "50", "50x", "999999999m", "-1m", "+1m", "1.5S", "5é"] {
            assert_eq!(parse_timeout(bad), None, "{bad}");
        }
    }

    #[test]
    fn messages_survive_headers() {
        assert_eq!(encoded("100 % of `x`\nü"), "100 %25 of `x`%0A%C3%BC");
    }

    #[test]
    fn a_frame_must_be_whole() {
        let told = |body: &'static [u8]| unframed(&Bytes::from_static(body), 10).expect_err("it is wrong").message;
        assert_eq!(unframed(&Bytes::from_static(b"\0\0\0\0\x02ab"), 10).expect("it is whole"), "ab");
        assert_eq!(told(b"\0\0"), "the request has no message");
        assert_eq!(told(b"\x01\0\0\0\0"), "the message is compressed; send it as it is");
        assert_eq!(told(b"\0\0\0\0\x03ab"), "the message says 3 bytes, 2 came");
        assert_eq!(told(b"\0\xff\0\0\0ab"), "the request is larger than 10B (models.max_message)");
    }
}
