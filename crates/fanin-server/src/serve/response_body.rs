//! A response's body while hyper writes it.

use std::convert::Infallible;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

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
        conn.on_response_start();
        ResponseBody { body, conn: conn.clone() }
    }
}

impl Drop for ResponseBody {
    #[inline]
    fn drop(&mut self) {
        self.conn.on_response_end();
    }
}

impl http_body::Body for ResponseBody {
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
