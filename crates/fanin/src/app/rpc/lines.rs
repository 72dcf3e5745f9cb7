//! The messages of a response as its body, made of JSON that comes one after the other: the lines of a body, or the messages of an
//! upstream's stream.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use fanin_flow::{FlowError, MessageStream};
use fanin_server::rpc::{End, Status, Writer};
use fanin_server::{Aborted, Body, BodyStream, Report};
use fanin_upstream::grpc::DETAILS;
use http::StatusCode;
use http_body::{Body as _, Frame};
use tokio::time::{Instant, Sleep, sleep_until};

use super::ours;

const DEADLINE_EXCEEDED: u8 = 4;
const UNAVAILABLE: u8 = 14;

/// Longest line, in bytes.
const MAX_LINE: usize = 16 << 20;

/// A message as it is sent, while it is made of its JSON. An error is for the log.
pub(super) type Making = Pin<Box<dyn Future<Output = Result<Bytes, String>>>>;

/// Makes a message of its JSON.
pub(super) type Make = Box<dyn Fn(Bytes) -> Making>;

/// Where the JSON of the messages comes from.
pub(super) enum Source {
    /// Each line of a body. An empty line is none.
    Lines(Lines),
    /// A stream of an upstream.
    Messages(Box<dyn MessageStream>),
}

impl Source {
    /// The JSON of the next message; `None` at the end.
    fn poll_json(&mut self, cx: &mut Context<'_>, name: &str) -> Poll<Result<Option<Bytes>, Status>> {
        match self {
            Source::Lines(lines) => lines.poll_line(cx, name),
            Source::Messages(messages) => Poll::Ready(match ready!(messages.poll_message(cx)) {
                None => Ok(None),
                Some(Ok(json)) => Ok(Some(json)),
                Some(Err(error)) => Err(failed(error)),
            }),
        }
    }
}

/// The end of a call whose source has failed: with the status that the upstream has sent, if it has sent one.
#[cold]
fn failed(FlowError { status, detail, rpc, .. }: FlowError) -> Status {
    match rpc {
        Some(rpc) => {
            let status = Status::new(rpc.code, rpc.message);
            match rpc.trailers.get(&DETAILS) {
                Some(details) => status.with_details_of(details),
                None => status,
            }
        }
        None if status == StatusCode::GATEWAY_TIMEOUT => Status::new(DEADLINE_EXCEEDED, detail),
        None => Status::new(UNAVAILABLE, detail),
    }
}

/// The lines of a body.
pub(super) struct Lines {
    body: Body,
    rest: BytesMut,
    /// Where the end of a line is looked for next.
    searched: usize,
    /// The body has ended.
    is_complete: bool,
}

impl Lines {
    pub(super) fn new(body: Body) -> Lines {
        Lines { body, rest: BytesMut::new(), searched: 0, is_complete: false }
    }

    /// The next line that is complete.
    fn line(&mut self) -> Option<Bytes> {
        loop {
            let found = self.rest[self.searched..].iter().position(|byte| *byte == b'\n');
            let line = match found {
                Some(at) => {
                    let line = self.rest.split_to(self.searched + at).freeze();
                    self.rest.advance(1);
                    line
                }
                None if self.is_complete && !self.rest.is_empty() => self.rest.split().freeze(),
                None => {
                    self.searched = self.rest.len();
                    return None;
                }
            };
            self.searched = 0;
            if !line.trim_ascii().is_empty() {
                return Some(line);
            }
        }
    }

    fn poll_line(&mut self, cx: &mut Context<'_>, name: &str) -> Poll<Result<Option<Bytes>, Status>> {
        loop {
            if let Some(line) = self.line() {
                return Poll::Ready(Ok(Some(line)));
            }
            if self.is_complete {
                return Poll::Ready(Ok(None));
            }
            if self.rest.len() > MAX_LINE {
                tracing::error!("{name}: a line has more than {MAX_LINE} bytes");
                return Poll::Ready(Err(ours()));
            }
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => {
                    if let Ok(mut data) = frame.into_data() {
                        while data.has_remaining() {
                            let piece = data.chunk().len();
                            self.rest.extend_from_slice(data.chunk());
                            data.advance(piece);
                        }
                    }
                }
                Some(Err(Aborted(why))) => return Poll::Ready(Err(Status::new(UNAVAILABLE, why))),
                None => self.is_complete = true,
            }
        }
    }
}

/// A stream of messages as a body. A client that takes none slows the source.
pub(super) struct Stream {
    /// `None` after the end: what the source still has is not read.
    source: Option<Source>,
    make: Make,
    making: Option<Making>,
    writer: Writer,
    /// The end, if all goes well.
    end: Status,
    /// The client's deadline.
    until: Option<Pin<Box<Sleep>>>,
    /// Flow and method, for the log.
    name: String,
    report: Option<Report>,
}

impl Stream {
    /// `end` is the status if all goes well, `until` the client's deadline.
    pub(super) fn new(
        source: Source,
        make: Make,
        writer: Writer,
        end: Status,
        until: Option<Instant>,
        name: String,
    ) -> Stream {
        let until = until.map(|until| Box::pin(sleep_until(until)));
        Stream { source: Some(source), make, making: None, writer, end, until, name, report: None }
    }

    fn ended(&mut self, status: &Status) -> Frame<Bytes> {
        self.report = self.report();
        (self.source, self.making) = (None, None);
        match self.writer.call().end(status) {
            End::Trailers(trailers) => Frame::trailers(trailers),
            End::Frame(frame) => Frame::data(self.writer.sent(frame.into())),
        }
    }
}

impl BodyStream for Stream {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Aborted>>> {
        if self.source.is_some()
            && let Some(until) = &mut self.until
            && until.as_mut().poll(cx).is_ready()
        {
            let status = Status::new(DEADLINE_EXCEEDED, "the call's deadline has passed");
            return Poll::Ready(Some(Ok(self.ended(&status))));
        }
        loop {
            if let Some(making) = &mut self.making {
                let made = ready!(making.as_mut().poll(cx));
                self.making = None;
                return Poll::Ready(Some(Ok(match made {
                    Ok(message) => Frame::data(message),
                    Err(what) => {
                        tracing::error!("{}: {what}", self.name);
                        self.ended(&ours())
                    }
                })));
            }
            let Some(source) = &mut self.source else { return Poll::Ready(None) };
            match ready!(source.poll_json(cx, &self.name)) {
                Ok(Some(json)) => self.making = Some((self.make)(json)),
                Ok(None) => {
                    let end = std::mem::take(&mut self.end);
                    return Poll::Ready(Some(Ok(self.ended(&end))));
                }
                Err(status) => return Poll::Ready(Some(Ok(self.ended(&status)))),
            }
        }
    }

    fn report(&mut self) -> Option<Report> {
        match &mut self.source {
            Some(Source::Lines(lines)) => lines.body.stream_report(),
            _ => self.report.take(),
        }
    }
}
