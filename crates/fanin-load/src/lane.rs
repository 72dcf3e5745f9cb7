//! Sending over HTTP/1.1: a lane is a connection and the task that sends one request after another on it.
//!
//! Written on the socket itself and not with hyper, whose connection is a task of its own that a request and its answer are
//! handed to and back: a generator that takes a third of the CPU time can offer what an overload needs from one core.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use http::Method;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep_until};
use tokio_rustls::client::TlsStream;

use crate::client::{Sent, tcp};
use crate::record::End;
use crate::request::Request;
use crate::response::{Reader, Response};
use crate::run::{Http1, Load};

thread_local! {
    /// Where bytes are read to. Nothing stays in it.
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; 64 << 10]);
}

/// The bytes of a request, head and body.
pub(crate) fn bytes(request: &Request) -> Vec<u8> {
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

/// Sends what is due until the load is dropped.
pub(crate) async fn run(load: Arc<Load>, http1: Arc<Http1>, number: usize) {
    let mut connection = None;
    let mut alarm = None;
    loop {
        let job = poll_fn(|cx| load.poll_job(number, cx)).await;
        let deadline = load.deadline(&job);
        let sent = {
            let mut sending = std::pin::pin!(send(&http1, &mut connection));
            poll_fn(|cx| match sending.as_mut().poll(cx) {
                Poll::Ready(sent) => Poll::Ready(Some(sent)),
                Poll::Pending => poll_alarm(&mut alarm, deadline, cx).map(|()| None),
            })
            .await
        };
        let end = match sent {
            Some(sent) => End::Sent(sent),
            None => {
                // Its answer may still come.
                connection = None;
                End::Timeout
            }
        };
        load.ends(job, end);
    }
}

/// Ready once the deadline has passed. The timer is left where an earlier request has set it, as that is mostly before this one's
/// deadline: setting it anew for each request would cost more than one ring too many.
fn poll_alarm(alarm: &mut Option<Pin<Box<Sleep>>>, deadline: Instant, cx: &mut Context<'_>) -> Poll<()> {
    let alarm = alarm.get_or_insert_with(|| Box::pin(sleep_until(deadline.into())));
    // One that is tried again is older than what was sent meanwhile.
    if alarm.deadline() > deadline.into() {
        alarm.as_mut().reset(deadline.into());
    }
    while alarm.as_mut().poll(cx).is_ready() {
        if Instant::now() >= deadline {
            return Poll::Ready(());
        }
        alarm.as_mut().reset(deadline.into());
    }
    Poll::Pending
}

/// A connection with nothing under way.
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

async fn send(http1: &Http1, kept: &mut Option<Connection>) -> Sent {
    // One that the server has closed meanwhile, or on which it has said what nobody asked for, is of no use.
    let alive = kept.take().filter(|connection| connection.stream.is_quiet());
    let mut connection = match alive {
        Some(connection) => connection,
        None => match Connection::open(http1).await {
            Some(connection) => connection,
            None => return Sent::Connect,
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
            Sent::Answer { status, bytes: length as u64 }
        }
        None => Sent::Broken,
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

    /// The answer, once it is whole; `None` if the connection breaks or what comes is no HTTP.
    async fn answer(&mut self) -> Option<Response> {
        poll_fn(|cx| {
            SCRATCH.with_borrow_mut(|scratch| {
                loop {
                    let mut buffer = ReadBuf::new(scratch);
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
                        // More than was asked for: what comes next would be taken for the answer to something else.
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
    /// Nothing has come on it, and it is not closed.
    fn is_quiet(&self) -> bool {
        match self {
            // The runtime knows without asking the system when nothing has come.
            Stream::Plain(stream) => {
                matches!(stream.try_read(&mut [0]), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
            }
            // What has come may be a ticket for a next session.
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
