//! A body that is read from its connection as its reader takes it.
//!
//! All streamed bodies of a thread share one read buffer, so that one which waits holds none. A short part is copied out of it, a long one
//! takes the buffer with it.

use std::cell::RefCell;
use std::fmt::Display;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::task::{Context, Poll, ready};

use bytes::{BufMut, Bytes, BytesMut};
use tokio::io::AsyncReadExt;
use tokio::time::Instant;

use super::chunked::Chunked;
use super::{Lease, return_to_pool};
use crate::error::{ErrorKind, Failure};
use crate::transport::attempt::Attempt;
use crate::transport::part_source::{PartSource, SourceSlot};

/// Most bytes of one read.
const READ: usize = 64 << 10;
/// Shorter parts are copied, so that they do not keep the whole buffer.
const COPIED: usize = 16 << 10;

thread_local! {
    static READ_BUFFER: RefCell<BytesMut> = RefCell::new(BytesMut::new());
}

/// A body whose head has come.
pub(super) struct Body {
    /// What came with the head.
    pub first: Bytes,
    pub rest: Rest,
    pub announced: Option<u64>,
    /// The connection can be used again after the body, if nothing follows it.
    pub reusable: bool,
}

/// What of a body is still on the connection.
pub(super) enum Rest {
    Length(usize),
    Chunked(Box<Chunked>),
    UntilClose,
    Done,
}

/// Leaves a body in `slot`. The connection stays its own until its end.
pub(super) fn leave(slot: &SourceSlot, lease: Lease, body: Body, attempt: &Attempt<'_>) {
    let announced = body.announced;
    let mut source = Source { lease: Some(lease), body, address: attempt.endpoint.address, read: 0 };
    if matches!(source.body.rest, Rest::Done) {
        source.release();
    }
    slot.put(source, announced);
}

struct Source {
    /// `None` after the end.
    lease: Option<Lease>,
    body: Body,
    address: SocketAddr,
    /// Bytes of the body so far, for messages.
    read: u64,
}

impl PartSource for Source {
    fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Failure>>> {
        if !self.body.first.is_empty() {
            self.read += self.body.first.len() as u64;
            return Poll::Ready(Some(Ok(std::mem::take(&mut self.body.first))));
        }
        loop {
            if matches!(self.body.rest, Rest::Done) {
                return Poll::Ready(None);
            }
            match ready!(self.read(cx)) {
                // Only the framing of chunks has come.
                Ok(part) if part.is_empty() => {}
                Ok(part) => {
                    self.read += part.len() as u64;
                    return Poll::Ready(Some(Ok(part)));
                }
                Err(failure) => return Poll::Ready(Some(Err(failure))),
            }
        }
    }
}

impl Source {
    fn read(&mut self, cx: &mut Context<'_>) -> Poll<Result<Bytes, Failure>> {
        let Some(connection) = self.lease.as_ref().and_then(|lease| lease.connection.clone()) else {
            return Poll::Ready(Err(Failure::ours("a body was read after its end")));
        };
        let most = match self.body.rest {
            Rest::Length(left) => left.min(READ),
            _ => READ,
        };
        READ_BUFFER.with_borrow_mut(|buffer| {
            buffer.clear();
            buffer.reserve(READ);
            let read = {
                let mut connection = connection.borrow_mut();
                // An upstream may answer before it has read the whole request.
                connection.continue_write(cx);
                ready!(pin!(connection.stream.read_buf(&mut (&mut *buffer).limit(most))).poll(cx))
            };
            let count = match read {
                Ok(0) if matches!(self.body.rest, Rest::UntilClose) => {
                    self.body.rest = Rest::Done;
                    self.release();
                    return Poll::Ready(Ok(Bytes::new()));
                }
                Ok(0) => return Poll::Ready(Err(self.broke_off(&""))),
                Ok(count) => count,
                Err(error) => return Poll::Ready(Err(self.broke_off(&format_args!(" ({error})")))),
            };
            let part = match &mut self.body.rest {
                Rest::Chunked(decoder) => {
                    let mut part = Vec::with_capacity(count);
                    let rest = decoder.decode(buffer, &mut part, usize::MAX).map_err(|what| {
                        let what = what.unwrap_or("a chunk that is too long");
                        Failure::new(ErrorKind::Protocol, format!("{}: {what}", self.address))
                    })?;
                    if decoder.is_done() {
                        self.body.reusable &= rest.is_empty();
                        self.body.rest = Rest::Done;
                    }
                    Bytes::from(part)
                }
                Rest::Length(left) => {
                    *left -= count;
                    if *left == 0 {
                        self.body.rest = Rest::Done;
                    }
                    take(buffer, count)
                }
                Rest::UntilClose | Rest::Done => take(buffer, count),
            };
            if matches!(self.body.rest, Rest::Done) {
                self.release();
            }
            Poll::Ready(Ok(part))
        })
    }

    /// The body is complete: returns the connection to the pool, or closes it.
    fn release(&mut self) {
        let Some(mut lease) = self.lease.take() else { return };
        let Some(connection) = lease.connection.take() else { return };
        connection.borrow_mut().finish_answer(self.body.reusable);
        let is_free = !connection.borrow().busy;
        if is_free {
            return_to_pool(&lease.pool, connection, Instant::now());
        }
    }

    #[cold]
    fn broke_off(&self, why: &dyn Display) -> Failure {
        let (address, had) = (self.address, self.read);
        let detail = match self.body.announced {
            Some(all) => format!("{address}: the answer broke off after {had} of {all} bytes{why}"),
            None => format!("{address}: the answer broke off after {had} bytes{why}"),
        };
        Failure::new(ErrorKind::Protocol, detail)
    }
}

/// The bytes read, without the buffer if they are few.
fn take(buffer: &mut BytesMut, count: usize) -> Bytes {
    if count <= COPIED { Bytes::copy_from_slice(&buffer[..count]) } else { buffer.split().freeze() }
}
