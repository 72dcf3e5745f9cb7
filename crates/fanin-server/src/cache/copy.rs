//! A stream that is kept while it is sent.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http_body::{Body as _, Frame};

use super::keep::Keep;
use crate::{Aborted, Body, BodyStream, Pieces, Report};

/// A stream, and a copy of what it has sent. Only a complete one is kept.
pub(super) struct Copying {
    body: Body,
    copy: Vec<u8>,
    /// Bytes of all of it, if that is known. Nobody asks for more then.
    len: Option<u64>,
    /// `None` once it is kept, or cannot be.
    keep: Option<Keep>,
}

impl Copying {
    pub(super) fn new(body: Body, keep: Keep) -> Copying {
        Copying { len: body.size_hint().exact(), body, copy: Vec::new(), keep: Some(keep) }
    }

    fn note(&mut self, bytes: &[u8]) {
        let Some(keep) = &self.keep else { return };
        if self.copy.len() + bytes.len() > keep.max_body() {
            self.copy = Vec::new();
            if let Some(keep) = self.keep.take() {
                keep.give_up();
            }
            return;
        }
        self.copy.extend_from_slice(bytes);
        if self.len == Some(self.copy.len() as u64) {
            self.finish();
        }
    }

    fn finish(&mut self) {
        if let Some(keep) = self.keep.take() {
            keep.finish(&self.copy);
            self.copy = Vec::new();
        }
    }
}

impl BodyStream for Copying {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Aborted>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        Poll::Ready(match frame {
            Some(Ok(frame)) => {
                let frame = frame.map_data(|pieces| match pieces {
                    Pieces::One(bytes) => bytes,
                    mut pieces @ Pieces::Many { .. } => pieces.copy_to_bytes(pieces.remaining()),
                });
                match frame.data_ref() {
                    Some(bytes) => self.note(&bytes.clone()),
                    // Trailers are not kept, so the whole is not.
                    None => self.keep = None,
                }
                Some(Ok(frame))
            }
            Some(Err(error)) => {
                self.keep = None;
                Some(Err(error))
            }
            None => {
                self.finish();
                None
            }
        })
    }

    fn exact_len(&self) -> Option<u64> {
        self.body.size_hint().exact()
    }

    fn report(&mut self) -> Option<Report> {
        self.body.stream_report()
    }
}
