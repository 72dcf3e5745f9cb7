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

/// Bytes handed over at a time. Bytes handed over wait in the connection's buffers, which the budget does not count.
const PIECE: usize = 16 << 10;

/// A response's body: data, and trailers for gRPC.
#[derive(Debug, Default)]
pub(super) struct Reply {
    data: Bytes,
    trailers: Option<HeaderMap>,
    /// Released once the whole answer was handed over.
    permit: Option<InFlightPermit>,
    connection: Option<Rc<ConnectionState>>,
}

impl Reply {
    pub fn new(data: Bytes, trailers: Option<HeaderMap>, permit: Option<InFlightPermit>) -> Reply {
        Reply { data, trailers, permit, connection: None }
    }

    /// Counts it among the pending answers of its connection.
    pub fn attach(&mut self, connection: &Rc<ConnectionState>) {
        if !self.is_end_stream() {
            connection.answer_started();
            self.connection = Some(connection.clone());
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if let Some(connection) = &self.connection {
            connection.answer_ended();
        }
    }
}

impl Body for Reply {
    type Data = Bytes;
    type Error = Infallible;

    /// JsonRequest for whenever the connection has room for more.
    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(connection) = &self.connection {
            connection.answer_progressed();
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
        self.data.is_empty() && self.trailers.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.data.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

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
