//! A response's body while hyper writes it. The connection counts the bytes that its client has not taken.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Buf;
use fanin_io::min_rate::UnsentBuf;
use http_body::{Frame, SizeHint};

use super::panic::catch_panic;
use crate::body::Aborted;
use crate::connection::ConnectionState;
use crate::{Body, Pieces, Report};

/// A body that tells its connection when hyper has taken all of it.
pub(crate) struct ResponseBody {
    body: Body,
    conn: Rc<ConnectionState>,
    /// Of a stream only: its request goes on until the stream ends.
    stream: Option<Box<StreamState>>,
}

/// A body that is a stream, while it is sent.
struct StreamState {
    end: Option<Box<dyn FnOnce(StreamEnd)>>,
    bytes: u64,
    complete: bool,
    /// It was aborted: the polls that are left until the protocol sees it.
    aborted: Option<(Aborted, u8)>,
}

/// How a stream ended.
#[derive(Debug)]
pub(super) struct StreamEnd {
    /// Bytes passed to hyper.
    pub(super) bytes: u64,
    /// It ended by itself; otherwise its client left, or it was aborted.
    pub(super) complete: bool,
    pub(super) report: Option<Report>,
}

impl ResponseBody {
    pub(super) fn new(body: Body, conn: &Rc<ConnectionState>) -> ResponseBody {
        conn.on_response_start(body.len());
        ResponseBody { body, conn: conn.clone(), stream: None }
    }

    /// A body that is a stream. `end` is called once.
    #[cold]
    pub(super) fn stream(
        body: Body,
        conn: &Rc<ConnectionState>,
        end: impl FnOnce(StreamEnd) + 'static,
    ) -> ResponseBody {
        let stream = Some(Box::new(StreamState { end: Some(Box::new(end)), bytes: 0, complete: false, aborted: None }));
        conn.on_response_start(0);
        ResponseBody { body, conn: conn.clone(), stream }
    }
}

/// hyper and h2 drop what they have not written when a body fails. This often they are polled first, so that the client gets it.
const POLLS_BEFORE_ABORT: u8 = 4;

impl StreamState {
    #[cold]
    fn poll_aborted<T>(&mut self, (error, polls): (Aborted, u8), cx: &Context<'_>) -> Poll<Option<Result<T, Aborted>>> {
        if polls == 0 {
            return Poll::Ready(Some(Err(error)));
        }
        self.aborted = Some((error, polls - 1));
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Drop for ResponseBody {
    #[inline]
    fn drop(&mut self) {
        self.conn.on_response_end(self.body.len());
        if let Some(stream) = &mut self.stream
            && let Some(end) = stream.end.take()
        {
            end(StreamEnd { bytes: stream.bytes, complete: stream.complete, report: self.body.stream_report() });
        }
    }
}

impl http_body::Body for ResponseBody {
    type Data = UnsentBuf<Pieces, ConnectionState>;
    type Error = Aborted;

    #[inline]
    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Self::Data>, Aborted>>> {
        let ResponseBody { body, conn, stream } = &mut *self;
        let Some(stream) = stream else {
            let unsent = |pieces| UnsentBuf::new(pieces, conn.clone());
            return Pin::new(body).poll_frame(cx).map_ok(|frame| frame.map_data(unsent));
        };
        if let Some(error) = stream.aborted {
            return stream.poll_aborted(error, cx);
        }
        let frame = ready!(
            catch_panic(|| Pin::new(body).poll_frame(cx))
                .unwrap_or(Poll::Ready(Some(Err(Aborted("its code panicked")))))
        );
        if let Some(Err(error)) = frame {
            return stream.poll_aborted((error, POLLS_BEFORE_ABORT), cx);
        }
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            stream.bytes += data.remaining() as u64;
            conn.on_stream_bytes(data.remaining());
        }
        stream.complete = match &frame {
            None => true,
            Some(frame) => frame.as_ref().is_ok_and(Frame::is_trailers),
        };
        Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(|pieces| UnsentBuf::new(pieces, conn.clone())))))
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
