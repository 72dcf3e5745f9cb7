//! Bodies that are made while they are sent.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::task::{Context, Poll};

use super::Shared;
use bytes::Bytes;
use fanin_server::{Aborted, Body, BodyStream, Permit, Report, Response};
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body::Frame;

/// Counts in `begun` each part that it gives, and in `dropped` its end.
struct Parts {
    shared: Arc<Shared>,
    kind: String,
    given: usize,
    waiting: Option<Pin<Box<dyn Future<Output = ()>>>>,
    _permit: Permit,
}

/// Bytes of a part of an endless stream.
pub const PART: usize = 64 << 10;

pub fn response(shared: Arc<Shared>, kind: &str, permit: Permit) -> Response {
    let parts = Parts { shared, kind: kind.into(), given: 0, waiting: None, _permit: permit };
    Response::new(StatusCode::OK, Body::stream(parts))
}

impl BodyStream for Parts {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Aborted>>> {
        let part = self.given;
        let frame = match (self.kind.as_str(), part) {
            ("endless", _) => Frame::data(Bytes::from(vec![b'x'; PART])),
            ("gated", 0..3) => {
                let shared = self.shared.clone();
                let gate = async move { shared.limiter.acquire().await.unwrap().forget() };
                if self.waiting.get_or_insert_with(|| Box::pin(gate)).as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                self.waiting = None;
                Frame::data(Bytes::from_static(["one,", "two,", "six,"][part].as_bytes()))
            }
            ("silent", 1) => return Poll::Pending,
            ("known" | "aborted" | "panics" | "trailers" | "silent", 0) => Frame::data(Bytes::from_static(b"abc")),
            ("aborted", _) => return Poll::Ready(Some(Err(Aborted("a test")))),
            ("panics", _) => panic!("expected by a test"),
            ("trailers", 1) => {
                let mut trailers = HeaderMap::new();
                trailers.insert("x-trailer", HeaderValue::from_static("last"));
                Frame::trailers(trailers)
            }
            _ => return Poll::Ready(None),
        };
        self.given += 1;
        self.shared.begun.fetch_add(1, SeqCst);
        Poll::Ready(Some(Ok(frame)))
    }

    fn exact_len(&self) -> Option<u64> {
        (self.kind == "known").then_some(3)
    }

    fn report(&mut self) -> Option<Report> {
        Some(Report { calls: 5, ..Report::default() })
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        self.shared.dropped.fetch_add(1, SeqCst);
    }
}
