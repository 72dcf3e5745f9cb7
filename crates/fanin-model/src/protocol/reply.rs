//! A response's body, which holds its place until the client has taken it.

use std::convert::Infallible;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use ::http::HeaderMap;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::client::Client;
use super::place::Place;

/// Most that a connection is given at a time: what it has been given waits in its buffers, however long the client takes.
const PIECE: usize = 16 << 10;

/// A response's body: data, and trailers for gRPC.
#[derive(Debug, Default)]
pub(super) struct Reply {
    data: Bytes,
    trailers: Option<HeaderMap>,
    /// Given back once the connection has been given the whole answer.
    place: Option<Place>,
    client: Option<Rc<Client>>,
}

impl Reply {
    pub fn new(data: Bytes, trailers: Option<HeaderMap>, place: Option<Place>) -> Reply {
        Reply { data, trailers, place, client: None }
    }

    /// It goes to this client.
    pub fn goes_to(&mut self, client: Rc<Client>) {
        if !self.is_end_stream() {
            client.answers();
            self.client = Some(client);
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if let Some(client) = &self.client {
            client.answered();
        }
    }
}

impl Body for Reply {
    type Data = Bytes;
    type Error = Infallible;

    /// Asked for whenever the connection has room for more.
    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(client) = &self.client {
            client.takes();
        }
        let length = self.data.len().min(PIECE);
        let frame = if length > 0 {
            Some(Frame::data(self.data.split_to(length)))
        } else {
            self.place = None;
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
    async fn an_answer_is_given_in_pieces_and_trailers_come_last() {
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
