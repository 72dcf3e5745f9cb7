//! A body that is compressed while it is sent.

use std::cell::Cell;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http_body::Frame;

use super::encoder::{Coding, Encoder};
use crate::body::Pieces;
use crate::{Aborted, Body, BodyStream, Report};

/// Bytes that are compressed in one piece.
const SLICE: usize = 8 << 10;
/// Output is passed on in pieces of about this size, unless the body pauses.
const FRAME: usize = 8 << 10;
/// Bytes after which other work of the worker goes on.
const TURN: usize = 32 << 10;

thread_local! {
    /// Encoders in use on this worker.
    static IN_USE: Cell<usize> = const { Cell::new(0) };
}

/// Counts an encoder while it is used.
#[derive(Debug)]
struct InUse;

impl InUse {
    fn begin() -> InUse {
        IN_USE.set(IN_USE.get() + 1);
        InUse
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        IN_USE.set(IN_USE.get() - 1);
    }
}

/// Takes the body's bytes in slices. When the body has none, what it had so far is sent.
#[derive(Debug)]
pub(super) struct Slices {
    body: Body,
    /// Bytes of the body that are not compressed yet.
    rest: Option<Pieces>,
    /// `None` at the end.
    encoder: Option<(Encoder, InUse)>,
    /// Something was compressed that may still be in the encoder.
    is_dirty: bool,
    /// Bytes compressed in this turn.
    turn: usize,
    /// Trailers of the body, which come last.
    trailers: Option<Frame<Bytes>>,
}

const NO_MEMORY: Aborted = Aborted("there is no memory to compress it");

impl Slices {
    /// Takes the body, unless so many are being compressed already.
    pub(super) fn begin(coding: Coding, level: u8, body: &mut Body, most: usize) -> Option<Body> {
        if IN_USE.get() >= most {
            return None;
        }
        let encoder = Encoder::new(coding, level)?;
        let (body, encoder) = (std::mem::take(body), Some((encoder, InUse::begin())));
        Some(Body::stream(Slices { body, rest: None, encoder, is_dirty: false, turn: 0, trailers: None }))
    }

    /// Compresses the next slice of what there is.
    fn slice(&mut self) -> Option<()> {
        let (Some(encoder), Some(rest)) = (&mut self.encoder, &mut self.rest) else { return Some(()) };
        let chunk = rest.chunk();
        let slice = &chunk[..chunk.len().min(SLICE)];
        let taken = slice.len();
        encoder.0.write(slice)?;
        rest.advance(taken);
        self.is_dirty = true;
        self.turn += taken;
        if !self.rest.as_ref().is_some_and(Buf::has_remaining) {
            self.rest = None;
        }
        Some(())
    }

    /// The output so far, if it is at least so many bytes.
    fn output(&mut self, least: usize) -> Option<Frame<Bytes>> {
        let bytes = self.encoder.as_mut()?.0.take(least)?;
        Some(Frame::data(bytes))
    }

    /// The end of the output. Every encoding has one.
    fn finish(&mut self) -> Option<Result<Frame<Bytes>, Aborted>> {
        let (encoder, _in_use) = self.encoder.take()?;
        Some(encoder.finish().map(Frame::data).ok_or(NO_MEMORY))
    }
}

impl BodyStream for Slices {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Aborted>>> {
        loop {
            if self.encoder.is_none() {
                return Poll::Ready(self.trailers.take().map(Ok));
            }
            if self.turn >= TURN {
                self.turn = 0;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            if self.rest.is_some() {
                if self.slice().is_none() {
                    return Poll::Ready(Some(Err(NO_MEMORY)));
                }
                if let Some(frame) = self.output(FRAME) {
                    return Poll::Ready(Some(Ok(frame)));
                }
                continue;
            }
            match http_body::Body::poll_frame(Pin::new(&mut self.body), cx) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => self.rest = data.has_remaining().then_some(data),
                    Err(frame) => {
                        self.trailers = frame.into_trailers().ok().map(Frame::trailers);
                        return Poll::Ready(self.finish());
                    }
                },
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(None) => return Poll::Ready(self.finish()),
                // Nothing more for now: the client gets what there was.
                Poll::Pending if self.is_dirty => {
                    self.is_dirty = false;
                    if self.encoder.as_mut().and_then(|encoder| encoder.0.flush()).is_none() {
                        return Poll::Ready(Some(Err(NO_MEMORY)));
                    }
                    if let Some(frame) = self.output(1) {
                        return Poll::Ready(Some(Ok(frame)));
                    }
                }
                Poll::Pending => {
                    self.turn = 0;
                    return Poll::Pending;
                }
            }
        }
    }

    fn report(&mut self) -> Option<Report> {
        self.body.stream_report()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::io::Read;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};

    use http::HeaderMap;

    use super::*;

    /// Gives what it has; an empty part means that there is nothing for now.
    #[derive(Debug)]
    struct Parts(VecDeque<Bytes>, Option<HeaderMap>);

    impl BodyStream for Parts {
        fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Aborted>>> {
            match self.0.pop_front() {
                Some(part) if part.is_empty() => {
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
                Some(part) if part == "abort" => Poll::Ready(Some(Err(Aborted("a test")))),
                Some(part) => Poll::Ready(Some(Ok(Frame::data(part)))),
                None => Poll::Ready(self.1.take().map(|trailers| Ok(Frame::trailers(trailers)))),
            }
        }
    }

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What was sent.
    #[derive(Debug, Default, PartialEq)]
    struct Sent {
        pieces: Vec<Vec<u8>>,
        pauses: usize,
        has_trailers: bool,
    }

    fn run(mut body: Body) -> Result<Sent, Aborted> {
        let wakes = Arc::new(Wakes::default());
        let (waker, mut sent) = (Waker::from(wakes.clone()), Sent::default());
        loop {
            let before = wakes.0.load(Ordering::Relaxed);
            match http_body::Body::poll_frame(Pin::new(&mut body), &mut Context::from_waker(&waker)) {
                Poll::Pending => {
                    assert!(wakes.0.load(Ordering::Relaxed) > before, "it would sleep for ever");
                    sent.pauses += 1;
                }
                Poll::Ready(None) => return Ok(sent),
                Poll::Ready(Some(Err(error))) => return Err(error),
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(mut data) => sent.pieces.push(data.copy_to_bytes(data.remaining()).into()),
                    Err(_) => sent.has_trailers = true,
                },
            }
        }
    }

    fn decoded(coding: Coding, bytes: &[u8]) -> Vec<u8> {
        let mut text = Vec::new();
        // What a prefix of the stream holds counts, too.
        let _ = match coding {
            Coding::Gzip => flate2::read::GzDecoder::new(bytes).read_to_end(&mut text),
            Coding::Brotli => brotli::Decompressor::new(bytes, 4096).read_to_end(&mut text),
            #[cfg(feature = "zstd")]
            Coding::Zstd => zstd::stream::read::Decoder::new(bytes).unwrap().read_to_end(&mut text),
            #[cfg(not(feature = "zstd"))]
            Coding::Zstd => unreachable!(),
        };
        text
    }

    fn all() -> impl Iterator<Item = Coding> {
        [Coding::Zstd, Coding::Brotli, Coding::Gzip].into_iter().filter(|coding| coding.is_built())
    }

    #[test]
    fn each_part_of_a_stream_is_sent_when_nothing_follows_it() {
        for coding in all() {
            let parts = ["data: one\n\n", "", "data: two\n\n", "", "", "data: three\n\n"].map(Bytes::from);
            let mut body = Body::stream(Parts(parts.into(), None));
            let sent = run(Slices::begin(coding, 3, &mut body, 1).unwrap()).unwrap();
            let mut so_far = Vec::new();
            let texts: Vec<_> = sent
                .pieces
                .iter()
                .map(|part| {
                    so_far.extend_from_slice(part);
                    String::from_utf8(decoded(coding, &so_far)).unwrap()
                })
                .collect();
            let last = "data: one\n\ndata: two\n\ndata: three\n\n";
            assert_eq!(texts, [&last[..11], &last[..22], last], "{coding:?}");
        }
    }

    #[test]
    fn a_long_body_gives_the_worker_back_between_turns() {
        let mut random = 1_u32;
        let text: Vec<u8> = std::iter::repeat_with(|| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            b"abcdefgh"[random as usize >> 29]
        })
        .take(10 * TURN)
        .collect();
        for coding in all() {
            for level in [1, 6] {
                let pieces: Vec<_> = text.chunks(3 * TURN).map(Bytes::copy_from_slice).collect();
                let sent = run(Slices::begin(coding, level, &mut pieces.into(), 1).unwrap()).unwrap();
                assert_eq!(sent.pauses, 10, "{coding:?}");
                assert_eq!(decoded(coding, &sent.pieces.concat()), text, "{coding:?} {level}");
            }
        }
    }

    #[test]
    fn trailers_and_failures_pass_through() {
        for coding in all() {
            let mut body = Body::from("text").with_trailers(HeaderMap::new());
            let sent = run(Slices::begin(coding, 1, &mut body, 1).unwrap()).unwrap();
            assert_eq!((decoded(coding, &sent.pieces.concat()).as_slice(), sent.has_trailers), (&b"text"[..], true));
            let parts = ["text", "abort"].map(Bytes::from);
            let mut body = Body::stream(Parts(parts.into(), None));
            assert_eq!(run(Slices::begin(coding, 1, &mut body, 1).unwrap()), Err(Aborted("a test")));
        }
    }

    #[test]
    fn only_so_many_are_compressed_at_a_time() {
        let mut bodies = [1, 2, 3].map(|_| Body::from("text"));
        let [first, second, third] = &mut bodies;
        let running = Slices::begin(Coding::Gzip, 1, first, 2).unwrap();
        let also_running = Slices::begin(Coding::Gzip, 1, second, 2).unwrap();
        assert!(Slices::begin(Coding::Gzip, 1, third, 2).is_none());
        assert_eq!(&third.to_bytes()[..], b"text", "it is sent as it is");
        drop(running);
        let third = Slices::begin(Coding::Gzip, 1, third, 2).unwrap();
        assert_eq!(run(third).unwrap().pieces.len(), 1);
        drop(also_running);
        assert_eq!(IN_USE.get(), 0);
    }
}
