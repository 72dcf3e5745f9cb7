//! Sending over HTTP/1.1: a task for each connection sends one request after another on it.
//!
//! Written on the socket itself rather than with hyper: hyper runs each connection as a task of its own, and handing requests
//! to it costs several times the CPU. The generator has to offer an overload from one core.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use http::Method;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep_until};
use tokio_rustls::client::TlsStream;

use crate::attempt::AttemptResult;
use crate::connect::tcp;
use crate::dispatch::Dispatch;
use crate::error::LoadError;
use crate::plan::Plan;
use crate::record::End;
use crate::request::Request;
use crate::response::{Reader, Response};
use crate::tls::Tls;

thread_local! {
    /// Read buffer, shared by the connections of a thread.
    static READ_BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; 64 << 10]);
}

/// What all HTTP/1.1 connections of a run share.
#[derive(Debug)]
pub(crate) struct Http1 {
    pub(crate) addr: SocketAddr,
    pub(crate) tls: Option<Tls>,
    /// The encoded request.
    pub(crate) bytes: Vec<u8>,
    /// It is a HEAD: answers have no body.
    pub(crate) head: bool,
    /// Connections at most.
    pub(crate) max_connections: usize,
}

impl Http1 {
    pub(crate) fn new(plan: &Plan, addr: SocketAddr) -> Result<Http1, LoadError> {
        let tls = match plan.request.secure {
            true => Some(Tls::new(&plan.trust, &plan.request.host, plan.protocol)?),
            false => None,
        };
        let head = plan.request.method == Method::HEAD;
        Ok(Http1 { addr, tls, bytes: encode(&plan.request), head, max_connections: plan.connections })
    }
}

/// Encodes a request, head and body.
fn encode(request: &Request) -> Vec<u8> {
    // Origin form, as a client without a proxy sends it.
    let target = request.uri.path_and_query().map_or("/", |target| target.as_str());
    let mut bytes =
        format!("{} {} HTTP/1.1\r\n", request.method, if target.is_empty() { "/" } else { target }).into_bytes();
    for (name, value) in &request.headers {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            bytes.extend_from_slice(part);
        }
    }
    let expected = matches!(request.method, Method::POST | Method::PUT | Method::PATCH);
    let said = request.headers.contains_key(http::header::CONTENT_LENGTH);
    if !said && (expected || !request.body.is_empty()) {
        bytes.extend_from_slice(format!("content-length: {}\r\n", request.body.len()).as_bytes());
    }
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(&request.body);
    bytes
}

/// Sends due requests on one connection until dropped. `number` identifies the connection.
pub(crate) async fn run(dispatch: Arc<Dispatch>, http1: Arc<Http1>, number: usize) {
    let mut connection = None;
    let mut timer = None;
    loop {
        let job = poll_fn(|cx| dispatch.poll_job(number, cx)).await;
        let deadline = dispatch.deadline(&job);
        let sent = {
            let mut sending = std::pin::pin!(send(&http1, &mut connection));
            poll_fn(|cx| match sending.as_mut().poll(cx) {
                Poll::Ready(sent) => Poll::Ready(Some(sent)),
                Poll::Pending => poll_deadline(&mut timer, deadline, cx).map(|()| None),
            })
            .await
        };
        let end = match sent {
            Some(sent) => End::Sent(sent),
            None => {
                // The late answer must not be taken for that of the next request.
                connection = None;
                End::Timeout
            }
        };
        dispatch.ends(job, end);
    }
}

/// Completes once the deadline has passed. The timer keeps the deadline of an earlier request, which is mostly earlier: a
/// spurious wake-up costs less than resetting the timer for each request.
fn poll_deadline(timer: &mut Option<Pin<Box<Sleep>>>, deadline: Instant, cx: &mut Context<'_>) -> Poll<()> {
    let timer = timer.get_or_insert_with(|| Box::pin(sleep_until(deadline.into())));
    // The deadline of a retried request may be earlier.
    if timer.deadline() > deadline.into() {
        timer.as_mut().reset(deadline.into());
    }
    while timer.as_mut().poll(cx).is_ready() {
        if Instant::now() >= deadline {
            return Poll::Ready(());
        }
        timer.as_mut().reset(deadline.into());
    }
    Poll::Pending
}

/// A connection without a request in flight.
#[derive(Debug)]
struct Connection {
    stream: Stream,
    reader: Reader,
}

#[derive(Debug)]
enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

async fn send(http1: &Http1, kept: &mut Option<Connection>) -> AttemptResult {
    // Drops a connection that the server has closed, or on which it sent unsolicited bytes.
    let alive = kept.take().filter(|connection| connection.stream.is_quiet());
    let mut connection = match alive {
        Some(connection) => connection,
        None => match Connection::open(http1).await {
            Some(connection) => connection,
            None => return AttemptResult::Connect,
        },
    };
    let answered = match connection.stream.write(&http1.bytes).await {
        Ok(()) => connection.answer().await,
        Err(_) => None,
    };
    match answered {
        Some(Response { status, length, close }) => {
            if !close {
                *kept = Some(connection);
            }
            AttemptResult::Answer { status, bytes: length as u64 }
        }
        None => AttemptResult::Broken,
    }
}

impl Connection {
    async fn open(http1: &Http1) -> Option<Connection> {
        let stream = tcp(http1.addr).await?;
        let stream = match &http1.tls {
            None => Stream::Plain(stream),
            Some(tls) => Stream::Tls(Box::new(tls.connect(stream).await.ok()?)),
        };
        Some(Connection { stream, reader: if http1.head { Reader::of_head() } else { Reader::default() } })
    }

    /// Reads the answer; `None` if the connection breaks or the answer is not valid HTTP.
    async fn answer(&mut self) -> Option<Response> {
        poll_fn(|cx| {
            READ_BUFFER.with_borrow_mut(|buffer| {
                loop {
                    let mut buffer = ReadBuf::new(buffer);
                    match self.stream.poll_read(cx, &mut buffer) {
                        Poll::Pending => return Poll::Pending,
                        Poll::Ready(Err(_)) => return Poll::Ready(None),
                        Poll::Ready(Ok(())) => {}
                    }
                    let mut bytes = buffer.filled();
                    if bytes.is_empty() {
                        return Poll::Ready(self.reader.closed());
                    }
                    match self.reader.read(&mut bytes) {
                        Ok(None) => {}
                        // Surplus bytes would be taken for the next answer.
                        Ok(Some(response)) => {
                            return Poll::Ready(Some(Response {
                                close: response.close || !bytes.is_empty(),
                                ..response
                            }));
                        }
                        Err(_) => return Poll::Ready(None),
                    }
                }
            })
        })
        .await
    }
}

impl Stream {
    /// Whether nothing has arrived and it is not closed.
    fn is_quiet(&self) -> bool {
        match self {
            // Costs no system call when nothing has arrived: tokio caches readiness.
            Stream::Plain(stream) => {
                matches!(stream.try_read(&mut [0]), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
            }
            // Pending bytes may be a session ticket.
            Stream::Tls(_) => true,
        }
    }

    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Stream::Tls(stream) => Pin::new(&mut **stream).poll_read(cx, buffer),
        }
    }

    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Stream::Plain(stream) => stream.write_all(bytes).await,
            Stream::Tls(stream) => {
                stream.write_all(bytes).await?;
                poll_fn(|cx| Pin::new(&mut **stream).poll_flush(cx)).await
            }
        }
    }
}
