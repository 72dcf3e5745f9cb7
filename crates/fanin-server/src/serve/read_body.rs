//! A request's body, read to its end under its limit.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body::Body as _;
use hyper::body::Incoming;

/// Most bytes reserved because of `Content-Length` alone; more only as bytes arrive.
const MAX_RESERVED: usize = 64 << 10;

/// A body being read. One that arrives in a single piece is not copied.
#[derive(Debug)]
pub(super) struct ReadBody {
    incoming: Incoming,
    limit: usize,
    first: Bytes,
    rest: BytesMut,
}

/// Why there is no body.
#[derive(Debug)]
pub(super) enum BodyError {
    TooLarge,
    Broken(hyper::Error),
}

impl ReadBody {
    pub(super) fn new(incoming: Incoming, limit: usize) -> ReadBody {
        ReadBody { incoming, limit, first: Bytes::new(), rest: BytesMut::new() }
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Bytes, BodyError>> {
        while let Some(frame) = ready!(Pin::new(&mut self.incoming).poll_frame(cx)) {
            let frame = frame.map_err(BodyError::Broken)?;
            // Trailers are ignored.
            let Ok(data) = frame.into_data() else { continue };
            if self.first.len() + self.rest.len() + data.len() > self.limit {
                return Poll::Ready(Err(BodyError::TooLarge));
            }
            if self.first.is_empty() && self.rest.is_empty() {
                self.first = data;
                continue;
            }
            if self.rest.is_empty() {
                let announced = self.incoming.size_hint().lower() as usize + data.len() + self.first.len();
                self.rest.reserve(announced.min(MAX_RESERVED));
                self.rest.extend_from_slice(&std::mem::take(&mut self.first));
            }
            self.rest.extend_from_slice(&data);
        }
        let whole = if self.rest.is_empty() { std::mem::take(&mut self.first) } else { self.rest.split().freeze() };
        Poll::Ready(Ok(whole))
    }
}
