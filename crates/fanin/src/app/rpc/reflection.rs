//! Server reflection: a conversation, so that each message is answered as it comes.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use fanin_grpc::{Conversation, Reflector, Refused};
use fanin_server::rpc::{Call, Codec, End, Protocol, Status, Writer};
use fanin_server::{Aborted, Body, BodyStream, Permit, Problem, Request, Response, Upload, UploadError};
use http::header::CONTENT_TYPE;
use http::{StatusCode, Version};
use http_body::Frame;

use super::no_call;

const INVALID_ARGUMENT: u8 = 3;
const DEADLINE_EXCEEDED: u8 = 4;
const RESOURCE_EXHAUSTED: u8 = 8;

/// Answers a conversation.
///
/// # Errors
/// It is none by gRPC.
pub(super) fn serve(reflector: Arc<Reflector>, request: Request) -> Result<Response, Problem> {
    let call = Call::of(&request.method, &request.headers).filter(|call| {
        *call == Call { protocol: Protocol::Grpc, codec: Codec::Proto } && request.version == Version::HTTP_2
    });
    let Some(call) = call else { return Err(no_call().detail("reflection is served by gRPC over HTTP/2 only")) };
    let writer = Writer::new(call, None);
    let mut response = Response::new(StatusCode::OK, Body::empty());
    response.headers.insert(CONTENT_TYPE, call.content_type());
    writer.add_headers(false, &mut response.headers);
    let (upload, conversation) = (request.upload, Conversation::new(reflector));
    response.body = Body::stream(Answers { conversation, writer, upload, ended: false, _permit: request.permit });
    Ok(response)
}

struct Answers {
    conversation: Conversation,
    writer: Writer,
    /// `None` once the client sends nothing more.
    upload: Option<Box<Upload>>,
    ended: bool,
    _permit: Permit,
}

impl Answers {
    fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Status>> {
        let refused = |Refused { code, message }| Status::new(code, message);
        loop {
            if let Some(answer) = self.conversation.answer().map_err(refused)? {
                let frame = self.writer.frame(&answer).map_err(|what| Status::new(RESOURCE_EXHAUSTED, what))?;
                return Poll::Ready(Ok(Some(frame)));
            }
            let Some(upload) = &mut self.upload else {
                return Poll::Ready(self.conversation.end().map(|()| None).map_err(refused));
            };
            match ready!(upload.poll_part(cx)) {
                Some(Ok(part)) => self.conversation.receive(&part),
                Some(Err(error)) => {
                    let code = match error {
                        UploadError::TooLarge { .. } => RESOURCE_EXHAUSTED,
                        UploadError::Timeout | UploadError::TooSlow => DEADLINE_EXCEEDED,
                        UploadError::Broken(_) => INVALID_ARGUMENT,
                    };
                    return Poll::Ready(Err(Status::new(code, error.to_string())));
                }
                None => self.upload = None,
            }
        }
    }
}

impl BodyStream for Answers {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Aborted>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let status = match ready!(self.poll_answer(cx)) {
            Ok(Some(answer)) => return Poll::Ready(Some(Ok(Frame::data(answer)))),
            Ok(None) => Status::default(),
            Err(status) => status,
        };
        self.ended = true;
        // Dropped here, a body that has not ended is read no further.
        self.upload = None;
        Poll::Ready(Some(Ok(match self.writer.call().end(&status) {
            End::Trailers(trailers) => Frame::trailers(trailers),
            End::Frame(frame) => Frame::data(frame.into()),
        })))
    }
}
