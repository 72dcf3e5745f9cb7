//! One exchange on a connection: a request out, an answer in.
//!
//! All of it runs in the call's own future, except that the worker may write a short request. While an answer is
//! awaited, a connection holds no buffer. All connections of a thread share one read buffer, and only what has to stay
//! is copied out of it. An answer that comes in one piece, as most do, costs one read and one allocation for head and
//! body. A large one takes the buffer with it.

use std::cell::RefCell;
use std::fmt::Display;
use std::io;
use std::mem;
use std::ops::Range;
use std::pin::pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::{Method, StatusCode};
use tokio::io::AsyncReadExt;
use tokio::time::Instant;

use super::chunked::Chunked;
use super::connection::{Connection, Shared};
use super::head::{self, Framing, Head, MAX_HEAD};
use super::streamed::{Body, Rest};
use crate::answer_headers::Headers;
use crate::attempt_log::Attempted;
use crate::error::{ErrorKind, Failure};
use crate::transport::attempt::{Attempt, Received};
use crate::transport::body::{FIRST_ROOM, SMALL, too_large};
use crate::transport::kernel_time;
use crate::transport::upload::UploadBroken;

/// Most bytes of one read while the length is not known.
const READ: usize = 16 << 10;
/// Most interim answers (100, 103) before the answer.
const MAX_INTERIM: u8 = 16;

thread_local! {
    /// The shared read buffer.
    static READ_BUFFER: RefCell<BytesMut> = RefCell::new(BytesMut::new());
}

/// Why an exchange failed.
#[derive(Debug)]
pub(super) struct ExchangeError {
    /// `unsent` if no byte of the request was sent.
    pub failure: Failure,
    /// The connection was closed before any byte of an answer.
    pub gone: bool,
}

impl From<Failure> for ExchangeError {
    fn from(failure: Failure) -> ExchangeError {
        ExchangeError { failure, gone: false }
    }
}

/// A request and its answer. One task polls it until it is complete.
pub(super) struct Exchange<'a> {
    connection: &'a Shared,
    attempt: &'a Attempt<'a>,
    left: Duration,
    reading: Reading,
    /// Head and body, one after the other.
    answer: Vec<u8>,
    /// An answer that came in one piece and is too large to be copied.
    whole: Bytes,
    head: Option<Head>,
    /// Neither request nor answer leaves bytes on the connection.
    clean: bool,
}

enum Reading {
    /// The received part of the head is in `answer`.
    Head {
        interim: u8,
    },
    Length {
        left: usize,
    },
    Chunked(Box<Chunked>),
    UntilClose,
    Done,
}

impl<'a> Exchange<'a> {
    /// Nothing is sent before the first poll. `left` is the remaining time, which is sent to the upstream.
    pub fn new(connection: &'a Shared, attempt: &'a Attempt<'a>, left: Duration) -> Exchange<'a> {
        connection.borrow_mut().start_request();
        if attempt.noted.is_some_and(Attempted::wants_kernel_time) {
            kernel_time::watch(&connection.borrow().stream);
        }
        Exchange {
            connection,
            attempt,
            left,
            reading: Reading::Head { interim: 0 },
            answer: Vec::new(),
            whole: Bytes::new(),
            head: None,
            clean: true,
        }
    }

    /// Ready with `true` once the answer is complete, with `false` after any other part of its body.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, ExchangeError>> {
        if !Connection::send(self.connection, self.attempt, self.left, cx) {
            return Poll::Pending;
        }
        if self.attempt.upload.is_some_and(|upload| upload.is_broken()) {
            return Poll::Ready(Err(Failure::new(ErrorKind::Cancelled, UploadBroken.to_string()).into()));
        }
        loop {
            match self.reading {
                Reading::Done => return Poll::Ready(Ok(true)),
                Reading::Length { left } => {
                    ready!(self.read_exactly(cx, left))?;
                    return Poll::Ready(Ok(matches!(self.reading, Reading::Done)));
                }
                _ => {
                    let in_head = self.head.is_none();
                    if let Some(noted) = self.attempt.noted {
                        self.note_kernel_time(noted);
                    }
                    ready!(self.read_some(cx))?;
                    if !in_head || self.head.is_some() {
                        return Poll::Ready(Ok(matches!(self.reading, Reading::Done)));
                    }
                }
            }
        }
    }

    /// Notes how long the first bytes of the answer were in the kernel, if they are there.
    #[cold]
    fn note_kernel_time(&self, noted: &Attempted) {
        if self.answer.is_empty()
            && noted.wants_kernel_time()
            && let Some(time) = kernel_time::unread(&self.connection.borrow().stream)
        {
            noted.was_unread(time);
        }
    }

    /// The answer's head, for a body that is not collected, and what is left to read.
    pub fn into_body(self) -> Result<(Received, Body), Failure> {
        let Some(head) = self.head else { return Err(Failure::ours("an answer was taken before it had come")) };
        let mut first = if self.whole.is_empty() { Bytes::from(self.answer) } else { self.whole };
        let headers = Headers::received(first.split_to(head.len), head.content_type, head.encoded);
        let announced = match head.framing {
            Framing::Length(length) => Some(length),
            Framing::Chunked | Framing::UntilClose => None,
        };
        let rest = match self.reading {
            Reading::Length { left } => Rest::Length(left),
            Reading::Chunked(decoder) => Rest::Chunked(decoder),
            Reading::UntilClose => Rest::UntilClose,
            Reading::Head { .. } | Reading::Done => Rest::Done,
        };
        let reusable = self.clean && head.keep_alive;
        let received = Received { status: head.status, headers, body: Bytes::new(), at: Instant::now() };
        Ok((received, Body { first, rest, announced, reusable }))
    }

    /// The complete answer. The connection is free for another request unless it is `busy`.
    pub fn finish(self) -> Result<Received, Failure> {
        let Some(head) = self.head else { return Err(Failure::ours("an answer was taken before it had come")) };
        self.connection.borrow_mut().finish_answer(self.clean && head.keep_alive);
        let mut body = if self.whole.is_empty() { Bytes::from(self.answer) } else { self.whole };
        let headers = Headers::received(body.split_to(head.len), head.content_type, head.encoded);
        Ok(Received { status: head.status, headers, body, at: Instant::now() })
    }

    /// Reads a body of known length to its final position.
    fn read_exactly(&mut self, cx: &mut Context<'_>, left: usize) -> Poll<Result<(), ExchangeError>> {
        if self.answer.len() == self.answer.capacity() {
            // Capacity grows with what is received, not with what is announced.
            self.answer.reserve_exact(left.min(self.answer.len().max(FIRST_ROOM)));
        }
        let mut room = (&mut self.answer).limit(left);
        let read = pin!(self.connection.borrow_mut().stream.read_buf(&mut room)).poll(cx);
        match ready!(read) {
            Ok(0) => Poll::Ready(Err(self.broke_off(None))),
            Ok(count) => {
                self.reading = if count < left { Reading::Length { left: left - count } } else { Reading::Done };
                Poll::Ready(Ok(()))
            }
            Err(error) => Poll::Ready(Err(self.broke_off(Some(error)))),
        }
    }

    fn read_some(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ExchangeError>> {
        READ_BUFFER.with_borrow_mut(|buffer| {
            buffer.clear();
            buffer.reserve(READ);
            let read = pin!(self.connection.borrow_mut().stream.read_buf(&mut (&mut *buffer).limit(READ))).poll(cx);
            Poll::Ready(match ready!(read) {
                Ok(0) if matches!(self.reading, Reading::UntilClose) => {
                    self.reading = Reading::Done;
                    Ok(())
                }
                Ok(0) => Err(self.broke_off(None)),
                Ok(_) => {
                    let keep = self.received(buffer);
                    keep.map(|keep| {
                        if let Some(range) = keep {
                            // The answer takes the buffer. The next read gets another one.
                            buffer.truncate(range.end);
                            self.whole = buffer.split().freeze();
                            self.whole.advance(range.start);
                        }
                    })
                }
                Err(error) => Err(self.broke_off(Some(error))),
            })
        })
    }

    /// Processes received bytes. Returns the range of an answer that is complete and too large to be copied.
    fn received(&mut self, bytes: &[u8]) -> Result<Option<Range<usize>>, ExchangeError> {
        match &mut self.reading {
            Reading::Head { .. } if self.answer.is_empty() => return self.head(bytes, true),
            Reading::Head { .. } => {
                self.answer.extend_from_slice(bytes);
                // A head ends with a line.
                if self.answer.len() >= MAX_HEAD || bytes.contains(&b'\n') {
                    let bytes = mem::take(&mut self.answer);
                    self.head(&bytes, false)?;
                }
            }
            Reading::Chunked(_) => self.chunks(bytes)?,
            Reading::UntilClose => {
                let (had, max) = (self.body_len(), self.attempt.max_answer);
                if bytes.len() > max - had {
                    return Err(too_large(had + bytes.len(), max).into());
                }
                self.answer.extend_from_slice(bytes);
            }
            Reading::Length { .. } | Reading::Done => {}
        }
        Ok(None)
    }

    /// Parses all that was received, so far without a complete head. `in_buffer`: it is in the shared read buffer.
    fn head(&mut self, all: &[u8], in_buffer: bool) -> Result<Option<Range<usize>>, ExchangeError> {
        let bodiless = self.attempt.request.method == Method::HEAD;
        let mut at = 0;
        loop {
            let bytes = &all[at..];
            let Some(head) = head::parse(bytes, bodiless).map_err(|what| self.wrong(what))? else {
                self.answer = bytes.to_vec();
                return Ok(None);
            };
            if !head.status.is_informational() {
                self.head = Some(head);
                let whole = self.body(head, bytes, in_buffer)?;
                return Ok(whole.map(|len| at..at + len));
            }
            match &mut self.reading {
                Reading::Head { interim }
                    if *interim < MAX_INTERIM && head.status != StatusCode::SWITCHING_PROTOCOLS =>
                {
                    *interim += 1;
                }
                _ => return Err(self.wrong(&format_args!("status {} is not an answer", head.status.as_u16()))),
            }
            at += head.len;
            if at == all.len() {
                return Ok(None);
            }
        }
    }

    /// Processes the part of the body that came with the head. Returns the length of a complete answer that is not to
    /// be copied.
    fn body(&mut self, head: Head, bytes: &[u8], in_buffer: bool) -> Result<Option<usize>, ExchangeError> {
        let max = self.attempt.max_answer;
        let came = bytes.len() - head.len;
        match head.framing {
            Framing::Length(length) => {
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                if length > max {
                    return Err(too_large(length, max).into());
                }
                self.clean = came <= length;
                self.reading = if came < length { Reading::Length { left: length - came } } else { Reading::Done };
                if in_buffer && came >= length && length > SMALL {
                    return Ok(Some(head.len + length));
                }
                let room = if self.attempt.source.is_some() { came } else { FIRST_ROOM.max(came) };
                self.answer.reserve_exact(head.len + length.min(room));
                self.answer.extend_from_slice(&bytes[..head.len + came.min(length)]);
            }
            Framing::Chunked => {
                self.answer.extend_from_slice(&bytes[..head.len]);
                self.reading = Reading::Chunked(Box::new(Chunked::new()));
                self.chunks(&bytes[head.len..])?;
            }
            Framing::UntilClose => {
                self.answer.extend_from_slice(&bytes[..head.len]);
                self.reading = Reading::UntilClose;
                self.received(&bytes[head.len..])?;
            }
        }
        Ok(None)
    }

    fn chunks(&mut self, bytes: &[u8]) -> Result<(), ExchangeError> {
        let Reading::Chunked(decoder) = &mut self.reading else { return Ok(()) };
        let max = self.attempt.max_answer;
        let max_with_head = max.saturating_add(self.head.map_or(0, |head| head.len));
        match decoder.decode(bytes, &mut self.answer, max_with_head) {
            Ok(rest) => {
                if decoder.is_done() {
                    self.clean = rest.is_empty();
                    self.reading = Reading::Done;
                }
                Ok(())
            }
            Err(Some(what)) => Err(self.wrong(what)),
            Err(None) => Err(too_large(max.saturating_add(1), max).into()),
        }
    }

    fn body_len(&self) -> usize {
        self.answer.len() - self.head.map_or(0, |head| head.len)
    }

    #[cold]
    fn wrong(&self, what: &(impl Display + ?Sized)) -> ExchangeError {
        Failure::new(ErrorKind::Protocol, format!("{}: {what}", self.attempt.endpoint.address)).into()
    }

    /// The connection ended before the answer.
    #[cold]
    fn broke_off(&mut self, error: Option<io::Error>) -> ExchangeError {
        let address = self.attempt.endpoint.address;
        if self.head.is_some() {
            let (had, why) = (self.body_len(), Why(error));
            let what = match self.reading {
                Reading::Length { left } => format!("the answer broke off after {had} of {} bytes{why}", had + left),
                _ => format!("the answer broke off after {had} bytes{why}"),
            };
            return self.wrong(&what);
        }
        let gone = self.answer.is_empty() && matches!(self.reading, Reading::Head { interim: 0 });
        let (error, unsent) = match self.connection.borrow_mut().failure() {
            Some((error, sent)) => (Some(error), sent == 0),
            None => (error, false),
        };
        let closed = error.as_ref().is_none_or(|error| is_closed(error.kind()));
        let what = if closed { "connection closed before the answer".to_owned() } else { "no answer".to_owned() };
        let failure = Failure::new(ErrorKind::Protocol, format!("{address}: {what}{}", Why(error)));
        ExchangeError { failure: if unsent && gone { failure.unsent() } else { failure }, gone: gone && closed }
    }
}

struct Why(Option<io::Error>);

impl Display for Why {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.as_ref().map_or(Ok(()), |error| write!(f, " ({error})"))
    }
}

fn is_closed(kind: io::ErrorKind) -> bool {
    matches!(
        kind,
        io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::UnexpectedEof
    )
}
