//! The status of a call in gRPC and gRPC-Web.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use http::header::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use prost::Message;

use super::status::{Detail, Status};

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");

/// What `grpc-message` escapes, besides bytes that are not ASCII.
const ESCAPED: &AsciiSet = &CONTROLS.add(b'%');

/// Bytes of a message that are sent: a client refuses headers that are too large.
const MAX_MESSAGE: usize = 2000;

/// The flag of the last frame in gRPC-Web, which holds the trailers.
const TRAILERS: u8 = 0x80;

/// `google.rpc.Status`.
#[derive(Clone, PartialEq, Message)]
struct RpcStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, Message)]
struct Any {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "bytes", tag = "2")]
    value: bytes::Bytes,
}

/// The messages of `grpc-status-details-bin`, which another server has sent; none if they cannot be read.
#[cold]
pub(super) fn read_details(value: &HeaderValue) -> Vec<Detail> {
    // Servers differ in whether they pad.
    let text = value.as_bytes().trim_ascii_end();
    let text = text.strip_suffix(b"==").or_else(|| text.strip_suffix(b"=")).unwrap_or(text);
    let Ok(bytes) = STANDARD_NO_PAD.decode(text) else { return Vec::new() };
    let status = RpcStatus::decode(bytes::Bytes::from(bytes)).unwrap_or_default();
    let detail = |Any { type_url, value }: Any| {
        let kind = type_url.rsplit('/').next().unwrap_or_default().to_owned();
        Detail { kind, value, json: None }
    };
    status.details.into_iter().map(detail).collect()
}

impl Status {
    /// Takes the details of a status that another server has sent: the value of `grpc-status-details-bin`.
    #[must_use]
    pub fn with_details_of(mut self, value: &HeaderValue) -> Status {
        self.details = read_details(value);
        self
    }
}

/// Adds a status to headers or trailers.
pub(super) fn add_status(status: &Status, to: &mut HeaderMap) {
    to.insert(STATUS, HeaderValue::from(u16::from(status.code)));
    let text = &status.message[..status.message.floor_char_boundary(MAX_MESSAGE)];
    if !text.is_empty()
        && let Ok(message) = HeaderValue::try_from(utf8_percent_encode(text, ESCAPED).to_string())
    {
        to.insert(MESSAGE, message);
    }
    if status.details.is_empty() {
        return;
    }
    let details = status
        .details
        .iter()
        .map(|detail| Any { type_url: format!("type.googleapis.com/{}", detail.kind), value: detail.value.clone() });
    let message = RpcStatus { code: status.code.into(), message: text.to_owned(), details: details.collect() };
    // Base64 is a valid value.
    if let Ok(value) = HeaderValue::try_from(STANDARD_NO_PAD.encode(message.encode_to_vec())) {
        to.insert(DETAILS, value);
    }
}

/// The trailers of a call.
pub(super) fn trailers(status: &Status) -> HeaderMap {
    let mut trailers = status.trailers.as_deref().cloned().unwrap_or_default();
    trailers.reserve(1);
    add_status(status, &mut trailers);
    trailers
}

/// The trailers of a call as the last frame of a gRPC-Web body.
pub(super) fn trailer_frame(status: &Status) -> Vec<u8> {
    let mut frame = vec![TRAILERS, 0, 0, 0, 0];
    for (name, value) in &trailers(status) {
        frame.extend_from_slice(name.as_str().as_bytes());
        frame.extend_from_slice(b": ");
        frame.extend_from_slice(value.as_bytes());
        frame.extend_from_slice(b"\r\n");
    }
    // Headers of 4 GB do not exist.
    let length = u32::try_from(frame.len() - 5).unwrap_or(u32::MAX);
    frame[1..5].copy_from_slice(&length.to_be_bytes());
    frame
}

/// Bytes as gRPC-Web text.
pub(super) fn text(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::super::status::Detail;
    use super::*;

    #[test]
    fn statuses_are_written() {
        let detail = Detail { kind: "a.B".to_owned(), value: bytes::Bytes::from_static(b"\x08\x01"), json: None };
        let mut status = Status { details: vec![detail], ..Status::new(5, "50 % für\n") };
        status.trailers =
            Some(Box::new(HeaderMap::from_iter([(HeaderName::from_static("x-a"), "1".parse().unwrap())])));
        let trailers = trailers(&status);
        assert_eq!(
            (&trailers[STATUS], &trailers[MESSAGE]),
            (&"5".parse().unwrap(), &"50 %25 f%C3%BCr%0A".parse().unwrap())
        );
        let details = RpcStatus::decode(&STANDARD_NO_PAD.decode(&trailers[DETAILS]).unwrap()[..]).unwrap();
        assert_eq!((details.code, &*details.message), (5, "50 % für\n"));
        assert_eq!(details.details[0].type_url, "type.googleapis.com/a.B");
        // They are read again, also when another server has padded them.
        assert_eq!(read_details(&trailers[DETAILS]), status.details);
        let padded = STANDARD.encode(details.encode_to_vec());
        assert_eq!(read_details(&padded.parse().unwrap()), status.details);
        for broken in ["*", "AAAA", ""] {
            assert_eq!(read_details(&HeaderValue::from_static(broken)), [], "{broken}");
        }
        let mut long = HeaderMap::new();
        add_status(&Status::new(3, format!("{}ü", "x".repeat(MAX_MESSAGE - 1))), &mut long);
        assert_eq!(long[MESSAGE], "x".repeat(MAX_MESSAGE - 1));
        let frame = trailer_frame(&Status { details: Vec::new(), ..status });
        assert_eq!(frame, b"\x80\0\0\0\x3ax-a: 1\r\ngrpc-status: 5\r\ngrpc-message: 50 %25 f%C3%BCr%0A\r\n");
    }
}
