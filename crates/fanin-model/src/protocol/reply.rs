//! A response's body. It holds its in-flight permit until the connection has taken all of it.

use std::convert::Infallible;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use ::http::HeaderMap;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::connection_state::ConnectionState;
use super::in_flight::InFlightPermit;
use super::status::Status;

/// Bytes handed over at a time. Bytes handed over wait in the connection's buffers, which the budget does not count.
const PIECE: usize = 16 << 10;

/// The messages of an answer that is a stream.
pub(super) trait Messages {
    /// The next message with its prefix; `None` at the end.
    ///
    /// # Errors
    /// The status with which the stream ends early.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Status>>;
}

/// A response's body: data, and trailers for gRPC.
#[derive(Default)]
pub(super) struct Reply {
    data: Bytes,
    trailers: Option<HeaderMap>,
    /// Makes more data, and the trailers in the end.
    messages: Option<Box<dyn Messages>>,
    /// Released once the whole answer was handed over.
    permit: Option<InFlightPermit>,
    connection: Option<Rc<ConnectionState>>,
    is_stream: bool,
    /// It counts among the pending answers of its connection.
    is_pending: bool,
    /// It may last: while there is no message, it is not pending.
    may_last: bool,
}

impl Reply {
    pub fn new(data: Bytes, trailers: Option<HeaderMap>, permit: Option<InFlightPermit>) -> Reply {
        Reply {
            data,
            trailers,
            messages: None,
            permit,
            connection: None,
            is_stream: false,
            is_pending: false,
            may_last: false,
        }
    }

    /// A stream. Without a permit it may last.
    pub fn stream(messages: Box<dyn Messages>, permit: Option<InFlightPermit>) -> Reply {
        let may_last = permit.is_none();
        let mut reply = Reply::new(Bytes::new(), None, permit);
        (reply.messages, reply.is_stream, reply.may_last) = (Some(messages), true, may_last);
        reply
    }

    /// Counts it among the pending answers of its connection.
    pub fn attach(&mut self, connection: &Rc<ConnectionState>) {
        if self.is_end_stream() {
            return;
        }
        if self.is_stream {
            connection.stream_started();
        }
        connection.answer_started();
        (self.connection, self.is_pending) = (Some(connection.clone()), true);
    }

    fn set_pending(&mut self, is_pending: bool) {
        let Some(connection) = &self.connection else { return };
        match (self.is_pending, is_pending) {
            (false, true) => connection.answer_started(),
            (true, false) => connection.answer_ended(),
            _ => {}
        }
        self.is_pending = is_pending;
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        self.set_pending(false);
        if let (Some(connection), true) = (&self.connection, self.is_stream) {
            connection.stream_ended();
        }
    }
}

impl Body for Reply {
    type Data = Bytes;
    type Error = Infallible;

    /// Called whenever the connection has room for more.
    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(connection) = &self.connection {
            connection.answer_progressed();
        }
        if self.data.is_empty()
            && let Some(messages) = &mut self.messages
        {
            match messages.poll_next(cx) {
                Poll::Pending => {
                    let may_last = self.may_last;
                    self.set_pending(!may_last);
                    return Poll::Pending;
                }
                Poll::Ready(Ok(Some(message))) => {
                    self.set_pending(true);
                    self.data = message;
                }
                Poll::Ready(end) => {
                    self.messages = None;
                    self.trailers = Some(end.map_or_else(|status| status.headers(), |_| Status::ok()));
                }
            }
        }
        let length = self.data.len().min(PIECE);
        let frame = if length > 0 {
            Some(Frame::data(self.data.split_to(length)))
        } else {
            self.permit = None;
            self.trailers.take().map(Frame::trailers)
        };
        Poll::Ready(frame.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.data.is_empty() && self.trailers.is_none() && self.messages.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        match self.is_stream {
            true => SizeHint::default(),
            false => SizeHint::with_exact(self.data.len() as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    /// What it is asked, in turn: to wait, a message, the end.
    struct Scripted(Vec<Poll<Result<Option<Bytes>, Status>>>);

    impl Messages for Scripted {
        fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Status>> {
            self.0.remove(0)
        }
    }

    #[test]
    fn a_stream_that_waits_for_news_is_no_answer_that_its_client_does_not_read() {
        let cx = &mut Context::from_waker(std::task::Waker::noop());
        let (news, end) = (Poll::Ready(Ok(Some(Bytes::from_static(b"ab")))), Poll::Ready(Ok(None)));
        for (permit, is_pending) in [(None, false), (Some(()), true)] {
            let connection = Rc::new(ConnectionState::default());
            let messages = Box::new(Scripted(vec![Poll::Pending, news.clone(), end.clone()]));
            let mut reply = Reply::stream(messages, None);
            reply.may_last = permit.is_none();
            reply.attach(&connection);
            assert!(Pin::new(&mut reply).poll_frame(cx).is_pending());
            assert_eq!(connection.counts(), (usize::from(is_pending), 1));
            let Poll::Ready(Some(Ok(frame))) = Pin::new(&mut reply).poll_frame(cx) else { panic!("no message") };
            assert_eq!((frame.into_data().expect("data"), connection.counts()), (Bytes::from_static(b"ab"), (1, 1)));
            let Poll::Ready(Some(Ok(frame))) = Pin::new(&mut reply).poll_frame(cx) else { panic!("no end") };
            assert_eq!(frame.into_trailers().expect("trailers")["grpc-status"], "0");
            assert!(reply.is_end_stream());
            drop(reply);
            assert_eq!(connection.counts(), (0, 0));
        }
    }

    #[tokio::test]
    async fn an_answer_is_handed_over_in_pieces_before_its_trailers() {
        let data: Bytes = (0..PIECE * 2 + 5).map(|at| at as u8).collect();
        let mut reply = Reply::new(data.clone(), Some(HeaderMap::new()), None);
        assert_eq!(reply.size_hint().exact(), Some(data.len() as u64));
        let mut pieces = Vec::new();
        let mut trailers = 0;
        while let Some(Ok(frame)) = reply.frame().await {
            match frame.into_data() {
                Ok(piece) => pieces.push(piece),
                Err(_) => trailers += 1,
            }
        }
        assert_eq!((pieces.iter().map(Bytes::len).collect::<Vec<_>>(), trailers), (vec![PIECE, PIECE, 5], 1));
        assert_eq!(pieces.concat(), data);
    }
}
