//! A response's body. It holds its in-flight permit until the client has taken all of it.

use std::convert::Infallible;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use ::http::HeaderMap;
use bytes::{Buf, Bytes};
use fanin_io::min_rate::UnsentBuf;
use http_body::{Body, Frame, SizeHint};

use super::connection_state::ConnectionState;
use super::in_flight::InFlightPermit;
use super::status::Status;

/// Bytes handed over at a time. Those of HTTP/2 then wait for the client's flow control.
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
    /// Handed over with the last piece, or released at the end of a stream.
    permit: Option<InFlightPermit>,
    connection: Option<Rc<ConnectionState>>,
    is_stream: bool,
}

impl Reply {
    pub fn new(data: Bytes, trailers: Option<HeaderMap>, permit: Option<InFlightPermit>) -> Reply {
        Reply { data, trailers, messages: None, permit, connection: None, is_stream: false }
    }

    pub fn stream(messages: Box<dyn Messages>, permit: Option<InFlightPermit>) -> Reply {
        let mut reply = Reply::new(Bytes::new(), None, permit);
        (reply.messages, reply.is_stream) = (Some(messages), true);
        reply
    }

    /// Counts its bytes as unsent of its connection. Without it, the data is not sent.
    pub fn attach(&mut self, connection: &Rc<ConnectionState>) {
        if self.is_stream {
            connection.stream_started();
        } else if self.data.is_empty() {
            return;
        }
        (**connection).as_ref().add(self.data.len());
        self.connection = Some(connection.clone());
    }
}

/// A piece of an answer, and with the last one the permit.
#[derive(Debug)]
pub(super) struct Piece {
    bytes: Bytes,
    _permit: Option<InFlightPermit>,
}

impl Buf for Piece {
    #[inline]
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    #[inline]
    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    #[inline]
    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if let Some(connection) = &self.connection {
            (**connection).as_ref().take(self.data.len());
            if self.is_stream {
                connection.stream_ended();
            }
        }
    }
}

impl Body for Reply {
    type Data = UnsentBuf<Piece, ConnectionState>;
    type Error = Infallible;

    /// Called whenever the connection has room for more.
    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Infallible>>> {
        if self.data.is_empty()
            && let Some(messages) = &mut self.messages
        {
            match ready!(messages.poll_next(cx)) {
                Ok(Some(message)) => {
                    if let Some(connection) = &self.connection {
                        (**connection).as_ref().add(message.len());
                    }
                    self.data = message;
                }
                end => {
                    self.messages = None;
                    self.permit = None;
                    self.trailers = Some(end.map_or_else(|status| status.headers(), |_| Status::ok()));
                }
            }
        }
        let length = self.data.len().min(PIECE);
        let frame = match self.connection.clone().filter(|_| length > 0) {
            Some(connection) => {
                let bytes = self.data.split_to(length);
                let is_last = self.data.is_empty() && self.messages.is_none();
                let permit = if is_last { self.permit.take() } else { None };
                Some(Frame::data(UnsentBuf::new(Piece { bytes, _permit: permit }, connection)))
            }
            None => self.trailers.take().map(Frame::trailers),
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
        let connection = Rc::new(ConnectionState::new(&fanin_config::Models::new("")));
        let mut reply = Reply::stream(Box::new(Scripted(vec![Poll::Pending, news, end])), None);
        reply.attach(&connection);
        assert!(Pin::new(&mut reply).poll_frame(cx).is_pending());
        assert_eq!(connection.counts(), (0, 1));
        let Poll::Ready(Some(Ok(frame))) = Pin::new(&mut reply).poll_frame(cx) else { panic!("no message") };
        assert_eq!(connection.counts(), (2, 1));
        let mut piece = frame.into_data().expect("data");
        assert_eq!(piece.copy_to_bytes(piece.remaining()), "ab");
        drop(piece);
        assert_eq!(connection.counts(), (0, 1));
        let Poll::Ready(Some(Ok(frame))) = Pin::new(&mut reply).poll_frame(cx) else { panic!("no end") };
        assert_eq!(frame.into_trailers().expect("trailers")["grpc-status"], "0");
        assert!(reply.is_end_stream());
        drop(reply);
        assert_eq!(connection.counts(), (0, 0));
    }

    #[tokio::test]
    async fn an_answer_is_handed_over_in_pieces_before_its_trailers() {
        let connection = Rc::new(ConnectionState::new(&fanin_config::Models::new("")));
        let unsent = || (*connection).as_ref().bytes();
        let data: Bytes = (0..PIECE * 2 + 5).map(|at| at as u8).collect();
        let mut reply = Reply::new(data.clone(), Some(HeaderMap::new()), None);
        reply.attach(&connection);
        assert_eq!((reply.size_hint().exact(), unsent()), (Some(data.len() as u64), data.len()));
        let mut pieces = Vec::new();
        let mut trailers = 0;
        while let Some(Ok(frame)) = reply.frame().await {
            match frame.into_data() {
                Ok(mut piece) => pieces.push(piece.copy_to_bytes(piece.remaining())),
                Err(_) => trailers += 1,
            }
        }
        assert_eq!((pieces.iter().map(Bytes::len).collect::<Vec<_>>(), trailers), (vec![PIECE, PIECE, 5], 1));
        assert_eq!((pieces.concat(), unsent()), (data.to_vec(), 0));
    }

    #[tokio::test]
    async fn a_piece_that_is_handed_over_is_unsent_until_it_is_written() {
        let connection = Rc::new(ConnectionState::new(&fanin_config::Models::new("")));
        let unsent = || (*connection).as_ref().bytes();
        let mut reply = Reply::new(Bytes::from_static(b"12345"), None, None);
        reply.attach(&connection);
        let mut piece =
            reply.frame().await.and_then(Result::ok).and_then(|frame| frame.into_data().ok()).expect("data");
        drop(reply);
        assert_eq!(unsent(), 5);
        piece.advance(1);
        assert_eq!(unsent(), 4);
        drop(piece);
        assert_eq!(unsent(), 0);
        let mut dropped = Reply::new(Bytes::from_static(b"12345"), None, None);
        dropped.attach(&connection);
        drop(dropped);
        assert_eq!(unsent(), 0);
    }
}
