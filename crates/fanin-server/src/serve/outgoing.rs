//! A response's body on its way.

use std::convert::Infallible;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use http_body::{Frame, SizeHint};

use crate::connection::Conn;
use crate::{Body, Pieces};

/// A body that tells its connection when hyper has all of it.
#[derive(Debug)]
pub(crate) struct Outgoing {
    body: Body,
    conn: Rc<Conn>,
}

impl Outgoing {
    pub(super) fn new(body: Body, conn: &Rc<Conn>) -> Outgoing {
        conn.response_begins();
        Outgoing { body, conn: conn.clone() }
    }
}

impl Drop for Outgoing {
    #[inline]
    fn drop(&mut self) {
        self.conn.response_ends();
    }
}

impl http_body::Body for Outgoing {
    type Data = Pieces;
    type Error = Infallible;

    #[inline]
    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Pieces>, Infallible>>> {
        Pin::new(&mut self.body).poll_frame(cx)
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
