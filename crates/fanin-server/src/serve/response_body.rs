//! A response's body while hyper writes it. The connection counts the bytes that its client has not taken.

use std::convert::Infallible;
use std::io::IoSlice;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Buf;
use http_body::{Frame, SizeHint};

use crate::connection::ConnectionState;
use crate::{Body, Pieces};

/// A body that tells its connection when hyper has taken all of it.
#[derive(Debug)]
pub(crate) struct ResponseBody {
    body: Body,
    conn: Rc<ConnectionState>,
}

impl ResponseBody {
    pub(super) fn new(body: Body, conn: &Rc<ConnectionState>) -> ResponseBody {
        conn.on_response_start(body.len());
        ResponseBody { body, conn: conn.clone() }
    }
}

impl Drop for ResponseBody {
    #[inline]
    fn drop(&mut self) {
        self.conn.on_response_end(self.body.len());
    }
}

impl http_body::Body for ResponseBody {
    type Data = UnsentPieces;
    type Error = Infallible;

    #[inline]
    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<UnsentPieces>, Infallible>>> {
        let ResponseBody { body, conn } = &mut *self;
        let unsent = |pieces| UnsentPieces { pieces, conn: conn.clone() };
        Pin::new(body).poll_frame(cx).map_ok(|frame| frame.map_data(unsent))
    }

    #[inline]
    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    #[inline]
    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Bytes of a response that hyper holds. Each that it writes counts as progress of the connection.
#[derive(Debug)]
pub(crate) struct UnsentPieces {
    pieces: Pieces,
    conn: Rc<ConnectionState>,
}

impl Buf for UnsentPieces {
    #[inline]
    fn remaining(&self) -> usize {
        self.pieces.remaining()
    }

    #[inline]
    fn chunk(&self) -> &[u8] {
        self.pieces.chunk()
    }

    #[inline]
    fn chunks_vectored<'a>(&'a self, to: &mut [IoSlice<'a>]) -> usize {
        self.pieces.chunks_vectored(to)
    }

    #[inline]
    fn advance(&mut self, count: usize) {
        self.pieces.advance(count);
        self.conn.on_bytes_taken(count);
    }
}

impl Drop for UnsentPieces {
    #[inline]
    fn drop(&mut self) {
        let rest = self.pieces.remaining();
        if rest > 0 {
            self.conn.on_bytes_taken(rest);
        }
    }
}
