//! Reads any bytes as requests over HTTP/1.1, for [`crate::fuzzing`].

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::{Body as _, Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::coalesced_socket::CoalescedSocket;
use super::fast_rejection::FastRejection;
use super::hyper_io::HyperIo;
use super::protocol_detection::Prefix;
use super::{ConnectionState, ResponseBatch};

/// Largest head, as in the configuration.
const MAX_HEAD: usize = 8 << 10;

/// Polls without progress after which a connection waits for more bytes.
const STILL: usize = 4;

/// Method, target and body.
type Seen = (String, String, Vec<u8>);

/// Reads bytes as requests, in pieces of several sizes. Whether they are requests that all are read.
///
/// # Panics
/// If the connection reads a request that the bytes do not have, or one with a malformed head.
pub fn requests(bytes: &[u8]) -> bool {
    let expected = expected(bytes);
    let mut complete = !expected.is_empty();
    for size in [bytes.len().max(1), 1, 3, 64] {
        let seen = seen(bytes, size);
        assert!(expected.starts_with(&seen), "in pieces of {size}: {seen:?} of {expected:?}");
        assert!(seen.is_empty() || !is_malformed(bytes), "a malformed head was read in pieces of {size}: {seen:?}");
        complete &= seen.len() == expected.len();
    }
    complete
}

/// Whether the first head has a bare LF or two framings. A name may come in any case.
fn is_malformed(bytes: &[u8]) -> bool {
    let mut framings = (false, false);
    let start = bytes.iter().position(|byte| !b"\r\n".contains(byte)).unwrap_or(bytes.len());
    for line in bytes[start..].split_inclusive(|byte| *byte == b'\n') {
        if line == b"\r\n" {
            break;
        }
        if line.ends_with(b"\n") && !line.ends_with(b"\r\n") {
            return true;
        }
        let line = line.to_ascii_lowercase();
        framings.0 |= line.starts_with(b"content-length:");
        framings.1 |= line.starts_with(b"transfer-encoding:");
    }
    framings == (true, true)
}

/// The requests as RFC 9112 reads them, up to the first that is malformed or incomplete.
fn expected(mut bytes: &[u8]) -> Vec<Seen> {
    let mut all = Vec::new();
    while let Some((request, rest)) = next(bytes) {
        all.push(request);
        bytes = rest;
    }
    all
}

fn next(bytes: &[u8]) -> Option<(Seen, &[u8])> {
    let mut lines = [httparse::EMPTY_HEADER; 256];
    let mut head = httparse::Request::new(&mut lines);
    let httparse::Status::Complete(length) = head.parse(bytes).ok()? else { return None };
    let values = |name: &str| {
        let lines = head.headers.iter().filter(|line| line.name.eq_ignore_ascii_case(name));
        lines.map(|line| line.value).collect::<Vec<_>>()
    };
    let (codings, lengths) = (values("transfer-encoding"), values("content-length"));
    let rest = &bytes[length..];
    let (body, rest) = match (codings.last(), lengths.first()) {
        (Some(last), _) => {
            let last = last.rsplit(|byte| *byte == b',').next()?.trim_ascii();
            last.eq_ignore_ascii_case(b"chunked").then(|| chunks(rest)).flatten()?
        }
        (None, Some(first)) => {
            let is_number = first.iter().all(u8::is_ascii_digit) && lengths.iter().all(|length| length == first);
            let length: usize = std::str::from_utf8(first).ok().filter(|_| is_number)?.parse().ok()?;
            let (body, rest) = rest.split_at_checked(length)?;
            (body.to_vec(), rest)
        }
        (None, None) => (Vec::new(), rest),
    };
    Some(((head.method?.to_owned(), head.path?.to_owned(), body), rest))
}

fn chunks(mut bytes: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut body = Vec::new();
    loop {
        let (line, rest) = line(bytes)?;
        let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let size = u64::from_str_radix(std::str::from_utf8(&line[..digits]).ok()?, 16).ok()?;
        bytes = rest;
        if size == 0 {
            break;
        }
        let (data, rest) = bytes.split_at_checked(usize::try_from(size).ok()?)?;
        body.extend_from_slice(data);
        bytes = rest.strip_prefix(b"\r\n")?;
    }
    loop {
        let (trailer, rest) = line(bytes)?;
        bytes = rest;
        if trailer.is_empty() {
            return Some((body, bytes));
        }
    }
}

/// Up to the first CR, which LF must follow.
fn line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == b'\r')?;
    Some((&bytes[..end], bytes[end..].strip_prefix(b"\r\n")?))
}

/// The requests that the connection reads.
fn seen(bytes: &[u8], size: usize) -> Vec<Seen> {
    let now = Rc::new(Cell::new(Instant::now()));
    let conn = Rc::new(ConnectionState::new(([127, 0, 0, 1], 1).into(), now, Arc::default()));
    let batch = Rc::<ResponseBatch>::default();
    let taken = Rc::new(Cell::new(0));
    let stream = Pieces { bytes: bytes.to_vec(), at: taken.clone(), size, pause: false };
    let socket = CoalescedSocket::new(stream, conn.clone(), batch.clone());
    let io = HyperIo::new(socket.clone(), conn.clone(), Rc::new(NoRejection), Prefix::default());
    let found = Rc::new(RefCell::new(Vec::new()));
    let service = service_fn(|request: Request<Incoming>| {
        let (conn, found) = (conn.clone(), found.clone());
        conn.on_request_start();
        if !request.body().is_end_stream() {
            conn.on_request_body();
        }
        async move {
            let (head, mut incoming) = request.into_parts();
            let mut body = Vec::new();
            let mut failed = false;
            while let Some(frame) = poll_fn(|cx| Pin::new(&mut incoming).poll_frame(cx)).await {
                match frame {
                    Ok(frame) => body.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data)),
                    Err(_) => failed = true,
                }
            }
            if !failed {
                found.borrow_mut().push((head.method.to_string(), head.uri.to_string(), body));
            }
            let response = Response::new(NoBody::new(conn.clone()));
            conn.on_request_end();
            Ok::<_, Infallible>(response)
        }
    });
    let serving =
        http1::Builder::new().header_read_timeout(None).max_header_size(MAX_HEAD).serve_connection(io, service);
    let (mut serving, mut writing) = (pin!(serving), pin!(batch.writer()));
    let mut cx = Context::from_waker(Waker::noop());
    let (mut still, mut before) = (0, (0, 0));
    while still < STILL {
        if matches!(socket.poll_unsent(&mut cx), Poll::Ready(Err(_))) || serving.as_mut().poll(&mut cx).is_ready() {
            break;
        }
        let _ = writing.as_mut().poll(&mut cx);
        let after = (taken.get(), found.borrow().len());
        still = if after == before { still + 1 } else { 0 };
        before = after;
    }
    found.take()
}

/// The body of each response. The connection is told when hyper drops it.
struct NoBody(Rc<ConnectionState>);

impl NoBody {
    fn new(conn: Rc<ConnectionState>) -> NoBody {
        conn.on_response_start(0);
        NoBody(conn)
    }
}

impl Drop for NoBody {
    fn drop(&mut self) {
        self.0.on_response_end(0);
    }
}

impl hyper::body::Body for NoBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        true
    }
}

struct NoRejection;

impl FastRejection for NoRejection {
    fn is_rejecting(&self) -> bool {
        false
    }

    fn try_reject(&self, _: &ConnectionState, _: &[u8], _: &mut Vec<u8>) -> bool {
        false
    }
}

/// A socket that gives bytes in pieces, with a pause before each, and takes whatever is written.
struct Pieces {
    bytes: Vec<u8>,
    at: Rc<Cell<usize>>,
    size: usize,
    pause: bool,
}

impl AsyncRead for Pieces {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.pause = !self.pause;
        let rest = &self.bytes[self.at.get()..];
        if self.pause || rest.is_empty() {
            return Poll::Pending;
        }
        let piece = &rest[..self.size.min(rest.len()).min(buffer.remaining())];
        buffer.put_slice(piece);
        self.at.set(self.at.get() + piece.len());
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Pieces {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
