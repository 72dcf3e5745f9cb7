//! How clients call methods: gRPC, gRPC-Web and Connect. How a request tells which one it is, and how each sends the end of a call.
//!
//! - `request`: the messages of a call. `response`: those of its response.
//! - `status`: the outcome of a call, and its codes. `problems`: problem documents as outcomes.
//! - `grpc`, `connect`: the forms of the protocols. gRPC-Web has that of gRPC, with the trailers in the body.

mod connect;
mod grpc;
mod problems;
pub(crate) mod request;
mod response;
mod status;

use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Method, StatusCode};

pub(crate) use problems::convert;
pub use request::{PREFIX, Reader};
pub use response::Writer;
pub use status::{Detail, Status};

use crate::{Body, Response};

/// The protocol of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// gRPC over HTTP/2.
    Grpc,
    /// gRPC-Web: trailers are in the body.
    GrpcWeb,
    /// gRPC-Web whose bodies are base64.
    GrpcWebText,
    /// Connect with one message each way, which is the whole body.
    Connect,
    /// Connect with streams of messages.
    ConnectStream,
}

/// How the messages of a call are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// As protobuf.
    Proto,
    /// As JSON, by the mapping of protobuf.
    Json,
    /// In a form that is not supported. Only gRPC has a status for it.
    Unknown,
}

/// How a request calls a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The protocol.
    pub protocol: Protocol,
    /// The form of its messages.
    pub codec: Codec,
}

/// How the messages of a call end.
#[derive(Debug)]
pub enum End {
    /// With trailers of HTTP.
    Trailers(HeaderMap),
    /// With these bytes of the body.
    Frame(Vec<u8>),
}

impl Call {
    /// The call that a request is. GET calls a method by Connect, and the query says the rest.
    pub fn of(method: &Method, headers: &HeaderMap) -> Option<Call> {
        if *method == Method::GET || *method == Method::HEAD {
            return Some(Call { protocol: Protocol::Connect, codec: Codec::Json });
        }
        Call::of_kind(headers.get(CONTENT_TYPE)?.as_bytes())
    }

    /// A call by gRPC or gRPC-Web, of which the content type alone tells.
    #[inline]
    pub(crate) fn grpc(headers: &HeaderMap) -> Option<Call> {
        let kind = headers.get(CONTENT_TYPE)?.as_bytes();
        if kind.starts_with(b"application/grpc") { Call::of_kind(kind) } else { None }
    }

    fn of_kind(kind: &[u8]) -> Option<Call> {
        let kind = kind.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        let rest = kind.strip_prefix(b"application/")?;
        let (name, codec) = match rest.iter().position(|byte| *byte == b'+') {
            Some(at) => (&rest[..at], Some(&rest[at + 1..])),
            None => (rest, None),
        };
        let codec = |unknown: Option<Codec>| match codec {
            None | Some(b"proto") => Some(Codec::Proto),
            Some(b"json") => Some(Codec::Json),
            Some(_) => unknown,
        };
        let (protocol, codec) = match name {
            b"grpc" => (Protocol::Grpc, codec(Some(Codec::Unknown))),
            b"grpc-web" => (Protocol::GrpcWeb, codec(Some(Codec::Unknown))),
            b"grpc-web-text" => (Protocol::GrpcWebText, codec(Some(Codec::Unknown))),
            b"connect" if rest.len() > name.len() => (Protocol::ConnectStream, codec(None)),
            b"proto" if rest == name => (Protocol::Connect, Some(Codec::Proto)),
            b"json" if rest == name => (Protocol::Connect, Some(Codec::Json)),
            _ => return None,
        };
        codec.map(|codec| Call { protocol, codec })
    }

    /// The content type of responses.
    pub fn content_type(self) -> HeaderValue {
        let is_json = self.codec == Codec::Json;
        HeaderValue::from_static(match self.protocol {
            Protocol::Grpc if is_json => "application/grpc+json",
            Protocol::Grpc => "application/grpc",
            Protocol::GrpcWeb if is_json => "application/grpc-web+json",
            Protocol::GrpcWeb => "application/grpc-web+proto",
            Protocol::GrpcWebText if is_json => "application/grpc-web-text+json",
            Protocol::GrpcWebText => "application/grpc-web-text+proto",
            Protocol::Connect if is_json => "application/json",
            Protocol::Connect => "application/proto",
            Protocol::ConnectStream if is_json => "application/connect+json",
            Protocol::ConnectStream => "application/connect+proto",
        })
    }

    /// Whether the HTTP status of every response is 200, and the outcome stands elsewhere.
    pub(crate) fn is_always_ok(self) -> bool {
        self.protocol != Protocol::Connect
    }

    /// The end of a call's messages. Not for Connect with one message, whose response is either that or an error.
    pub fn end(self, status: &Status) -> End {
        match self.protocol {
            Protocol::Grpc => End::Trailers(grpc::trailers(status)),
            Protocol::GrpcWeb | Protocol::GrpcWebText => End::Frame(grpc::trailer_frame(status)),
            Protocol::Connect | Protocol::ConnectStream => End::Frame(connect::end_frame(status)),
        }
    }

    /// The response of a call that failed before its first message. `status` is what log and metrics have.
    pub fn failed(self, status: &Status, mut headers: HeaderMap, logged: StatusCode) -> Response {
        headers.insert(CONTENT_TYPE, self.content_type());
        let body = match self.protocol {
            // The status is in the head ("Trailers-Only"), unless there are trailers to be told from headers.
            Protocol::Grpc | Protocol::GrpcWeb | Protocol::GrpcWebText if status.trailers.is_none() => {
                grpc::add_status(status, &mut headers);
                Body::empty()
            }
            Protocol::Connect => {
                headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
                self.add_trailers(status, &mut headers);
                let mut response = Response::new(status.http(), connect::error(status));
                response.headers = headers;
                return response;
            }
            _ => match self.end(status) {
                End::Trailers(trailers) => Body::empty().with_trailers(trailers),
                End::Frame(frame) if self.protocol == Protocol::GrpcWebText => grpc::text(&frame).into(),
                End::Frame(frame) => frame.into(),
            },
        };
        Response { status: logged, headers, body, ..Response::default() }
    }

    /// Adds the trailers of a call that has succeeded with one message by Connect: they are headers with a prefix.
    pub fn add_trailers(self, status: &Status, headers: &mut HeaderMap) {
        if let (Protocol::Connect, Some(trailers)) = (self.protocol, &status.trailers) {
            connect::add_trailers(trailers, headers);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_content_type_tells_the_protocol() {
        use Codec::{Json, Proto, Unknown};
        use Protocol::{Connect, ConnectStream, Grpc, GrpcWeb, GrpcWebText};
        for (kind, expected) in [
            ("application/grpc", Some((Grpc, Proto))),
            ("application/grpc+proto", Some((Grpc, Proto))),
            ("application/grpc; charset=utf-8", Some((Grpc, Proto))),
            ("application/grpc+json", Some((Grpc, Json))),
            ("application/grpc+thrift", Some((Grpc, Unknown))),
            ("application/grpc-web", Some((GrpcWeb, Proto))),
            ("application/grpc-web-text+proto", Some((GrpcWebText, Proto))),
            ("application/grpcx", None),
            ("application/json", Some((Connect, Json))),
            ("application/json;charset=utf-8", Some((Connect, Json))),
            ("application/proto", Some((Connect, Proto))),
            ("application/proto+json", None),
            ("application/connect", None),
            ("application/connect+json", Some((ConnectStream, Json))),
            ("application/connect+xml", None),
            ("text/plain", None),
        ] {
            let found = Call::of_kind(kind.as_bytes()).map(|call| (call.protocol, call.codec));
            assert_eq!(found, expected, "{kind}");
        }
    }
}
