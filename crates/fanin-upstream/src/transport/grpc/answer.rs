//! Reads an answer: its head, its messages, and the status that ends it.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::RecvStream;
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};

use crate::endpoint::Endpoint;
use crate::error::{ErrorKind, Failure};
use crate::grpc::{Code, Frame, Frames, Status};
use crate::headers::strip_hop_by_hop;
use crate::transport::content_encoding;
use crate::transport::http2::{self, Lease};

pub(super) const GRPC: &str = "application/grpc";
pub(super) const ACCEPT: HeaderName = HeaderName::from_static("grpc-accept-encoding");
pub(super) const ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");

/// An answer whose head has come.
pub(super) enum Opened {
    /// The head is all of it, or it is not gRPC.
    Ended {
        status: Status,
        headers: HeaderMap,
    },
    Messages(Answer),
}

/// An answer whose messages are being read.
pub(super) struct Answer {
    stream: RecvStream,
    frames: Frames,
    headers: HeaderMap,
    /// A status in the head counts only if nothing follows it.
    in_head: Option<Status>,
    /// Messages so far.
    count: usize,
    max_message: usize,
}

/// The end of an answer.
pub(super) struct End {
    pub status: Status,
    /// Without the status.
    pub trailers: HeaderMap,
}

impl Answer {
    /// `gzip`: messages may be compressed.
    pub fn open(head: http::response::Parts, stream: RecvStream, gzip: bool, max_message: usize) -> Opened {
        let mut headers = head.headers;
        let kind = headers.remove(CONTENT_TYPE);
        let in_head = Status::take(&mut headers);
        let is_gzip = headers.get(ENCODING).is_some_and(|encoding| encoding.as_bytes() == b"gzip");
        strip_hop_by_hop(&mut headers);
        for name in [ACCEPT, ENCODING] {
            headers.remove(name);
        }
        match in_head {
            Some(status) if stream.is_end_stream() => Opened::Ended { status, headers },
            _ if head.status != StatusCode::OK || !kind.as_ref().is_some_and(is_grpc) => {
                let kind = kind.as_ref().map_or("nothing".into(), |kind| String::from_utf8_lossy(kind.as_bytes()));
                let message = format!("HTTP status {} with {kind} instead of gRPC", head.status.as_u16());
                Opened::Ended { status: Status::new(Code::of_http(head.status), message), headers }
            }
            in_head => {
                let frames = Frames::new(gzip && is_gzip);
                Opened::Messages(Answer { stream, frames, headers, in_head, count: 0, max_message })
            }
        }
    }

    /// The headers, without those of the protocol.
    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// Headers and trailers, without those of the protocol.
    pub fn all_headers(self, mut trailers: HeaderMap) -> HeaderMap {
        let mut headers = self.headers;
        strip_hop_by_hop(&mut trailers);
        for (name, value) in trailers.iter().filter(|(name, _)| ![CONTENT_TYPE, ACCEPT, ENCODING].contains(name)) {
            headers.append(name.clone(), value.clone());
        }
        headers
    }

    /// The next message of the parts read so far.
    pub fn next_message(&mut self) -> Result<Option<Frame>, Failure> {
        let message = self.frames.next(self.max_message)?;
        self.count += usize::from(message.is_some());
        Ok(message)
    }

    /// Reads a part. `false` after the last one.
    pub fn poll_part(
        &mut self,
        lease: &Lease,
        endpoint: &Endpoint,
        cx: &mut Context<'_>,
    ) -> Poll<Result<bool, Failure>> {
        Poll::Ready(match ready!(http2::poll_part(lease, endpoint, &mut self.stream, cx)) {
            Some(Ok(part)) => {
                self.frames.push(&part);
                if !part.is_empty() {
                    self.in_head = None;
                }
                Ok(true)
            }
            Some(Err(failure)) => Err(self.interrupted(failure)),
            None => Ok(false),
        })
    }

    /// Reads what follows the last part.
    pub fn poll_end(&mut self, lease: &Lease, endpoint: &Endpoint, cx: &mut Context<'_>) -> Poll<Result<End, Failure>> {
        let trailers = match ready!(self.stream.poll_trailers(cx)) {
            Ok(trailers) => trailers,
            Err(error) => return Poll::Ready(Err(self.interrupted(http2::failure(lease, endpoint, &error)))),
        };
        let in_head = self.in_head.take().filter(|_| trailers.is_none());
        let mut trailers = trailers.unwrap_or_default();
        let broken = |detail: String| Poll::Ready(Err(Failure::new(ErrorKind::Protocol, detail)));
        let Some(status) = Status::take(&mut trailers).or(in_head) else {
            return broken(format!("the server closed the stream after {} messages without a status", self.count));
        };
        if status.code == Code::OK && self.frames.left() > 0 {
            return broken(format!("the answer ends in the middle of message {}", self.count));
        }
        Poll::Ready(Ok(End { status, trailers }))
    }

    #[cold]
    fn interrupted(&self, mut failure: Failure) -> Failure {
        failure.detail = format!("the answer broke off after {} messages: {}", self.count, failure.detail).into();
        failure.unsent = false;
        failure
    }
}

/// Whether a content type is gRPC with protobuf. The text behind `+` names another form of messages.
fn is_grpc(kind: &HeaderValue) -> bool {
    let essence = kind.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    [GRPC, "application/grpc+proto"].iter().any(|known| essence.eq_ignore_ascii_case(known.as_bytes()))
}

/// A compressed message as it was.
pub(super) async fn decompressed(message: Bytes, max: usize) -> Result<Bytes, Failure> {
    content_encoding::gunzip(message, max).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_protobuf_is_grpc() {
        for (kind, expected) in [
            ("application/grpc", true),
            ("application/grpc+proto", true),
            ("Application/gRPC; charset=utf-8", true),
            ("application/grpc+json", false),
            ("application/grpc-web", false),
            ("application/grpcx", false),
            ("text/html", false),
        ] {
            assert_eq!(is_grpc(&HeaderValue::from_static(kind)), expected, "{kind}");
        }
    }
}
