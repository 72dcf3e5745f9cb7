//! Response bodies: bytes that are complete when the response is made, sent without a copy; or a stream that is made while it is sent.

use std::collections::VecDeque;
use std::fmt;
use std::io::IoSlice;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Frame, SizeHint};

use crate::Report;
use crate::upgrade::Upgraded;

/// Lists up to this many bytes are joined: copying costs less than passing each piece through hyper and the kernel.
const JOIN: usize = 16 << 10;
/// In longer lists, neighbours up to this many bytes are joined for the same reason.
const JOIN_PIECE: usize = 1 << 10;

/// A response's body: one piece of bytes or a few, or a stream of them.
#[derive(Debug, Default)]
pub struct Body(Inner);

#[derive(Default)]
enum Inner {
    #[default]
    Empty,
    One(Bytes),
    Many {
        pieces: VecDeque<Bytes>,
        len: usize,
    },
    Stream(Box<dyn BodyStream>),
    Upgrade(Box<dyn Upgraded>),
    Trailed(Box<Trailed>),
}

/// A body and the trailers behind it, until they are sent.
#[derive(Debug)]
struct Trailed {
    body: Body,
    trailers: Option<HeaderMap>,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Inner::Empty => f.write_str("Empty"),
            Inner::One(bytes) => f.debug_tuple("One").field(bytes).finish(),
            Inner::Many { pieces, .. } => f.debug_tuple("Many").field(pieces).finish(),
            Inner::Stream(_) => f.write_str("Stream"),
            Inner::Upgrade(_) => f.write_str("Upgrade"),
            Inner::Trailed(trailed) => trailed.fmt(f),
        }
    }
}

/// A body that is made while it is sent, on the request's worker. It is polled only when the client has taken most of what came before, so
/// a slow client slows it. Dropped before its end, the client has left.
///
/// It lasts as long as it likes: the request's deadline does not end it. It holds the request's permit, if the stream is to count among the
/// requests in flight.
pub trait BodyStream: 'static {
    /// The next bytes, or the trailers, which come last. `None` at the end.
    ///
    /// # Errors
    /// [`Aborted`]: the client must see that the body is incomplete. The connection is closed (HTTP/1.1) or the stream is reset (HTTP/2).
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Aborted>>>;

    /// How many bytes will come, if that is known: it is sent as `content-length`.
    fn exact_len(&self) -> Option<u64> {
        None
    }

    /// What happened, for the access log and the metrics. Called once, after the end or before the drop. The metrics add it to what the
    /// response's own report says, so one of the two is empty.
    fn report(&mut self) -> Option<Report> {
        None
    }
}

/// A body ended before it was complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the body ended before it was complete: {0}")]
pub struct Aborted(pub &'static str);

impl Body {
    /// A body without bytes.
    pub fn empty() -> Body {
        Body(Inner::Empty)
    }

    /// A body that is made while it is sent.
    pub fn stream(stream: impl BodyStream) -> Body {
        Body(Inner::Stream(Box::new(stream)))
    }

    /// No bytes, but what goes on with the connection after a response with status 101.
    pub(crate) fn upgrade(upgraded: impl Upgraded) -> Body {
        Body(Inner::Upgrade(Box::new(upgraded)))
    }

    /// What goes on with the connection. The body has no bytes then.
    pub(crate) fn take_upgrade(&mut self) -> Option<Box<dyn Upgraded>> {
        match std::mem::take(&mut self.0) {
            Inner::Upgrade(upgraded) => Some(upgraded),
            other => {
                self.0 = other;
                None
            }
        }
    }

    /// The same body, and trailers behind it.
    #[must_use]
    pub fn with_trailers(self, trailers: HeaderMap) -> Body {
        Body(Inner::Trailed(Box::new(Trailed { body: self, trailers: Some(trailers) })))
    }

    /// Whether it is made while it is sent.
    pub fn is_stream(&self) -> bool {
        match &self.0 {
            Inner::Stream(_) => true,
            Inner::Trailed(trailed) => trailed.body.is_stream(),
            _ => false,
        }
    }

    /// What the stream reports at its end.
    pub fn stream_report(&mut self) -> Option<Report> {
        match &mut self.0 {
            Inner::Stream(stream) => stream.report(),
            Inner::Trailed(trailed) => trailed.body.stream_report(),
            _ => None,
        }
    }

    /// Bytes in it; 0 for a stream.
    pub fn len(&self) -> usize {
        match &self.0 {
            Inner::Empty | Inner::Stream(_) | Inner::Upgrade(_) => 0,
            Inner::One(bytes) => bytes.len(),
            Inner::Many { len, .. } => *len,
            Inner::Trailed(trailed) => trailed.body.len(),
        }
    }

    /// Whether it has no bytes. A stream may have some.
    pub fn is_empty(&self) -> bool {
        self.len() == 0 && !self.is_stream()
    }

    /// Its bytes, piece by piece; none of a stream.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &Bytes> {
        let (one, many) = match self.whole() {
            Inner::One(bytes) => (Some(bytes), None),
            Inner::Many { pieces, .. } => (None, Some(pieces)),
            _ => (None, None),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }

    /// What it is without its trailers.
    fn whole(&self) -> &Inner {
        match &self.0 {
            Inner::Trailed(trailed) => trailed.body.whole(),
            other => other,
        }
    }

    /// All bytes in one piece; none of a stream. Copies only if there are several.
    pub fn to_bytes(&self) -> Bytes {
        match &self.0 {
            Inner::Empty | Inner::Stream(_) | Inner::Upgrade(_) => Bytes::new(),
            Inner::One(bytes) => bytes.clone(),
            Inner::Many { pieces, len } => join(pieces.iter(), *len),
            Inner::Trailed(trailed) => trailed.body.to_bytes(),
        }
    }
}

fn join<'a>(pieces: impl Iterator<Item = &'a Bytes>, len: usize) -> Bytes {
    let mut all = BytesMut::with_capacity(len);
    for piece in pieces {
        all.extend_from_slice(piece);
    }
    all.freeze()
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Body {
        Body(if bytes.is_empty() { Inner::Empty } else { Inner::One(bytes) })
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Body {
        Bytes::from(bytes).into()
    }
}

impl From<String> for Body {
    fn from(text: String) -> Body {
        Bytes::from(text).into()
    }
}

impl From<&'static str> for Body {
    fn from(text: &'static str) -> Body {
        Bytes::from_static(text.as_bytes()).into()
    }
}

impl From<Vec<Bytes>> for Body {
    fn from(mut pieces: Vec<Bytes>) -> Body {
        let len = pieces.iter().map(Bytes::len).sum();
        if pieces.len() == 1 {
            // The length was just seen to be 1.
            return pieces.swap_remove(0).into();
        }
        if len <= JOIN {
            return join(pieces.iter(), len).into();
        }
        let mut joined = VecDeque::with_capacity(pieces.len());
        let mut rest = pieces.as_slice();
        while let Some(first) = rest.first() {
            let small = rest.iter().take_while(|piece| piece.len() <= JOIN_PIECE).count();
            if small > 1 {
                let (run, after) = rest.split_at(small);
                joined.push_back(join(run.iter(), run.iter().map(Bytes::len).sum()));
                rest = after;
            } else {
                if !first.is_empty() {
                    joined.push_back(first.clone());
                }
                rest = &rest[1..];
            }
        }
        Body(Inner::Many { pieces: joined, len })
    }
}

/// The data of a body, as passed to hyper at once.
#[derive(Debug)]
pub enum Pieces {
    /// In one piece.
    One(Bytes),
    /// In several, none of them empty.
    Many {
        /// What is left.
        pieces: VecDeque<Bytes>,
        /// Bytes left.
        len: usize,
    },
}

impl Buf for Pieces {
    #[inline]
    fn remaining(&self) -> usize {
        match self {
            Pieces::One(bytes) => bytes.len(),
            Pieces::Many { len, .. } => *len,
        }
    }

    #[inline]
    fn chunk(&self) -> &[u8] {
        match self {
            Pieces::One(bytes) => bytes,
            Pieces::Many { pieces, .. } => pieces.front().map_or(&[], |piece| piece),
        }
    }

    fn chunks_vectored<'a>(&'a self, to: &mut [IoSlice<'a>]) -> usize {
        match self {
            Pieces::One(bytes) => bytes.chunks_vectored(to),
            Pieces::Many { pieces, .. } => {
                let count = pieces.len().min(to.len());
                for (slice, piece) in to.iter_mut().zip(pieces) {
                    *slice = IoSlice::new(piece);
                }
                count
            }
        }
    }

    fn advance(&mut self, mut count: usize) {
        match self {
            Pieces::One(bytes) => bytes.advance(count),
            Pieces::Many { pieces, len } => {
                assert!(count <= *len, "advanced past the end");
                *len -= count;
                while count > 0 {
                    // `count` was at most what the pieces have together.
                    let Some(first) = pieces.front_mut() else { break };
                    if first.len() > count {
                        first.advance(count);
                        break;
                    }
                    count -= first.len();
                    pieces.pop_front();
                }
            }
        }
    }
}

impl http_body::Body for Body {
    type Data = Pieces;
    type Error = Aborted;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Pieces>, Aborted>>> {
        match &mut self.0 {
            Inner::Stream(stream) => return stream.poll_frame(cx).map_ok(|frame| frame.map_data(Pieces::One)),
            Inner::Trailed(trailed) => {
                let Trailed { body, trailers } = &mut **trailed;
                let frame = ready!(Pin::new(body).poll_frame(cx));
                return Poll::Ready(frame.or_else(|| trailers.take().map(Frame::trailers).map(Ok)));
            }
            _ => {}
        }
        Poll::Ready(match std::mem::take(&mut self.0) {
            Inner::Empty | Inner::Stream(_) | Inner::Upgrade(_) | Inner::Trailed(_) => None,
            Inner::One(bytes) => Some(Ok(Frame::data(Pieces::One(bytes)))),
            Inner::Many { pieces, len } => Some(Ok(Frame::data(Pieces::Many { pieces, len }))),
        })
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Inner::Empty => true,
            Inner::Trailed(trailed) => trailed.trailers.is_none(),
            _ => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Inner::Stream(stream) => stream.exact_len().map_or_else(SizeHint::default, SizeHint::with_exact),
            Inner::Trailed(trailed) => trailed.body.size_hint(),
            _ => SizeHint::with_exact(self.len() as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(byte: u8, len: usize) -> Bytes {
        Bytes::from(vec![byte; len])
    }

    #[test]
    fn short_lists_become_one_piece() {
        let body = Body::from(vec![piece(b'a', 10), Bytes::new(), piece(b'b', 3)]);
        assert!(matches!(body.0, Inner::One(_)));
        assert_eq!(&body.to_bytes()[..], b"aaaaaaaaaabbb");
        assert!(matches!(Body::from(Vec::<Bytes>::new()).0, Inner::Empty));
    }

    #[test]
    fn large_pieces_are_not_copied_and_small_neighbours_are_joined() {
        let large = piece(b'x', JOIN);
        let body = Body::from(vec![piece(b'a', 1), piece(b'b', 2), large.clone(), Bytes::new(), piece(b'c', 4)]);
        let Inner::Many { pieces, len } = &body.0 else { panic!("joined: {body:?}") };
        assert_eq!(*len, JOIN + 7);
        assert_eq!(pieces.len(), 3);
        assert_eq!(pieces[1].as_ptr(), large.as_ptr());
        assert_eq!(&pieces[0][..], b"abb");
    }

    #[test]
    fn trailers_follow_the_bytes() {
        let trailers = HeaderMap::from_iter([(http::HeaderName::from_static("x-end"), http::HeaderValue::from(1))]);
        let mut body = Body::from("abc").with_trailers(trailers.clone());
        assert_eq!((body.len(), body.is_stream(), &body.to_bytes()[..]), (3, false, &b"abc"[..]));
        let cx = &mut Context::from_waker(std::task::Waker::noop());
        let mut next = || {
            assert!(!http_body::Body::is_end_stream(&body));
            let Poll::Ready(Some(Ok(frame))) = http_body::Body::poll_frame(Pin::new(&mut body), cx) else { panic!() };
            frame
        };
        assert_eq!(next().into_data().expect("bytes").chunk(), b"abc");
        assert_eq!(next().into_trailers().expect("trailers"), trailers);
        assert!(http_body::Body::is_end_stream(&body) && body.is_empty());
    }

    #[test]
    fn pieces_advance_across_borders() {
        let Inner::Many { pieces, len } = Body::from(vec![piece(b'a', JOIN), piece(b'b', JOIN)]).0 else { panic!() };
        let mut pieces = Pieces::Many { pieces, len };
        let mut slices = [IoSlice::new(&[]); 4];
        assert_eq!(pieces.chunks_vectored(&mut slices), 2);
        pieces.advance(JOIN - 1);
        assert_eq!(pieces.chunk(), b"a");
        pieces.advance(2);
        assert_eq!((pieces.remaining(), pieces.chunk()[0]), (JOIN - 1, b'b'));
        pieces.advance(JOIN - 1);
        assert!(!pieces.has_remaining());
        assert_eq!(pieces.chunk(), b"");
    }
}
