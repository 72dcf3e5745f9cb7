//! One connection: how a request is written to it, and whether it can be used again.
//!
//! Write coalescing: the worker writes short requests together at the end of an event loop iteration. Others are
//! written in the call's own future. All connections of a thread share one write buffer; what a socket does not accept
//! at once is copied out of it.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::mem;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use fanin_io::write_coalescing::BatchTarget;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::request;
use super::uploading::Uploading;
use crate::transport::attempt::Attempt;
use crate::transport::connection_budget::OpenConnection;
use crate::transport::stream::Stream;
use crate::transport::write_coalescing::{self, AnswerWaker};

/// A body up to this size is written in one buffer with the head.
const TOGETHER: usize = 4 << 10;
/// A larger buffer is freed after use.
const MAX_KEPT: usize = 64 << 10;

thread_local! {
    /// The shared write buffer.
    static WRITE_BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A connection. Dropping it closes it.
#[derive(Debug)]
pub(super) struct Connection {
    pub stream: Stream,
    /// The state of the present request.
    sending: Sending,
    /// It has answered before, so the endpoint may have closed it since.
    pub served: bool,
    /// A request was started and not answered to the end: no other call can use it.
    pub busy: bool,
    /// Dropped after the stream: the budget gets its room back once the socket is closed.
    _open: OpenConnection,
}

impl Connection {
    pub fn new(stream: Stream, open: OpenConnection) -> Connection {
        Connection { stream, sending: Sending::Done, served: false, busy: false, _open: open }
    }

    /// Whether the worker writes the request together with others.
    pub fn is_coalesced(&self, attempt: &Attempt<'_>) -> bool {
        matches!(self.stream, Stream::Tcp(_)) && attempt.request.body.len() <= TOGETHER && attempt.upload.is_none()
    }

    /// Starts a request. Nothing is sent yet.
    pub fn start_request(&mut self) {
        self.busy = true;
        self.sending = Sending::Start;
    }

    /// Sends what can be sent now. `false` if nothing can be sent yet. An error is kept, because an answer may be there
    /// all the same (413 and closed, for example).
    pub fn send(shared: &Shared, attempt: &Attempt<'_>, left: Duration, cx: &mut Context<'_>) -> bool {
        let connection = &mut *shared.borrow_mut();
        match &mut connection.sending {
            Sending::Done | Sending::Failed(_) => {}
            Sending::Queued => {
                // The task that polls may have changed.
                write_coalescing::set_waker(&(shared.clone() as Rc<dyn BatchTarget<AnswerWaker>>), cx.waker());
                return false;
            }
            Sending::Start => WRITE_BUFFER.with_borrow_mut(|head| {
                head.clear();
                head.shrink_to(MAX_KEPT);
                request::write(head, attempt, left);
                if let Some(slot) = attempt.upload {
                    connection.sending = match Uploading::new(head, slot) {
                        Some(uploading) => Sending::Upload(Box::new(uploading)),
                        None => Sending::Failed(Box::new((io::Error::other("the body has been sent before"), 0))),
                    };
                    return;
                }
                let mut body = &attempt.request.body[..];
                if body.len() <= TOGETHER {
                    head.extend_from_slice(body);
                    body = &[];
                }
                if connection.is_coalesced(attempt) {
                    write_coalescing::push(shared.clone(), head, cx.waker());
                    connection.sending = Sending::Queued;
                    return;
                }
                let mut written = 0;
                connection.sending = match write(&mut connection.stream, cx, head, body, &mut written) {
                    Poll::Ready(Ok(())) => Sending::Done,
                    Poll::Ready(Err(error)) => Sending::Failed(Box::new((error, written))),
                    Poll::Pending => {
                        let body = if body.is_empty() { Bytes::new() } else { attempt.request.body.clone() };
                        Sending::Rest(Box::new(Rest { bytes: head.clone(), body, written }))
                    }
                };
            }),
            Sending::Rest(_) => connection.continue_write(cx),
            Sending::Upload(_) => {}
        }
        if matches!(connection.sending, Sending::Upload(_)) {
            connection.continue_write(cx);
        }
        !matches!(connection.sending, Sending::Queued)
    }

    /// Sends more of what the socket did not accept at once.
    #[cold]
    pub fn continue_write(&mut self, cx: &mut Context<'_>) {
        if let Sending::Upload(uploading) = &mut self.sending {
            match uploading.poll(&mut self.stream, cx) {
                Poll::Ready(Ok(())) => self.sending = Sending::Done,
                Poll::Ready(Err(error)) => self.sending = Sending::Failed(Box::new((error, uploading.sent()))),
                Poll::Pending => {}
            }
            return;
        }
        let Sending::Rest(rest) = &mut self.sending else { return };
        match write(&mut self.stream, cx, &rest.bytes, &rest.body, &mut rest.written) {
            Poll::Ready(Ok(())) => self.sending = Sending::Done,
            Poll::Ready(Err(error)) => self.sending = Sending::Failed(Box::new((error, rest.written))),
            Poll::Pending => {}
        }
    }

    /// The answer is complete. `reusable` tells whether the answer allows another request.
    pub fn finish_answer(&mut self, reusable: bool) {
        self.busy = !(reusable && matches!(self.sending, Sending::Done));
        self.served = true;
    }

    /// Why the request could not be sent, and how many bytes of it were.
    pub fn failure(&mut self) -> Option<(io::Error, usize)> {
        match mem::replace(&mut self.sending, Sending::Done) {
            Sending::Failed(failed) => Some(*failed),
            _ => None,
        }
    }

    /// Withdraws a request that is still in the write batch: the connection is as good as before.
    pub fn withdraw(shared: &Shared) {
        let queued = matches!(shared.borrow().sending, Sending::Queued);
        if queued {
            write_coalescing::withdraw(&(shared.clone() as Rc<dyn BatchTarget<AnswerWaker>>));
            let mut connection = shared.borrow_mut();
            connection.sending = Sending::Done;
            connection.busy = false;
        }
    }

    /// Whether an unused connection is still open and silent, as far as the runtime knows. Makes no system call.
    pub fn is_quiet(&mut self) -> bool {
        match &self.stream {
            Stream::Tcp(stream) => {
                matches!(stream.try_read(&mut [0]), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
            }
            // Under TLS, a session ticket may come on an unused connection.
            Stream::Tls(_) => self.stays_quiet(Waker::noop()),
        }
    }

    /// The same, and wakes `waker` when that changes.
    pub fn stays_quiet(&mut self, waker: &Waker) -> bool {
        let mut one = [0];
        Pin::new(&mut self.stream).poll_read(&mut Context::from_waker(waker), &mut ReadBuf::new(&mut one)).is_pending()
    }
}

/// A connection, shared by its call and the write batch. It is borrowed only within the methods here.
pub(super) type Shared = Rc<RefCell<Connection>>;

impl BatchTarget<AnswerWaker> for RefCell<Connection> {
    fn write(&self, bytes: &[u8], AnswerWaker(waker): &AnswerWaker) {
        let connection = &mut *self.borrow_mut();
        let Stream::Tcp(stream) = &connection.stream else { return };
        connection.sending = match stream.try_write(bytes) {
            Ok(count) if count == bytes.len() => Sending::Done,
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Sending::Failed(Box::new((error, 0))),
            other => Sending::Rest(Box::new(Rest {
                bytes: bytes.to_vec(),
                body: Bytes::new(),
                written: other.unwrap_or_default(),
            })),
        };
        let waits = matches!(connection.sending, Sending::Done)
            && stream.poll_read_ready(&mut Context::from_waker(waker)).is_pending();
        if !waits {
            waker.wake_by_ref();
        }
    }
}

#[derive(Debug)]
enum Sending {
    Start,
    /// In the write batch.
    Queued,
    /// The rest of what the socket did not accept at once.
    Rest(Box<Rest>),
    /// A body that is sent as it comes.
    Upload(Box<Uploading>),
    Done,
    Failed(Box<(io::Error, usize)>),
}

#[derive(Debug)]
struct Rest {
    bytes: Vec<u8>,
    body: Bytes,
    written: usize,
}

/// Writes a head and its body, of which `written` bytes have been sent.
fn write(
    stream: &mut Stream,
    cx: &mut Context<'_>,
    head: &[u8],
    body: &[u8],
    written: &mut usize,
) -> Poll<io::Result<()>> {
    let mut stream = Pin::new(stream);
    while *written < head.len() + body.len() {
        let count = if *written >= head.len() {
            ready!(stream.as_mut().poll_write(cx, &body[*written - head.len()..]))?
        } else if body.is_empty() {
            ready!(stream.as_mut().poll_write(cx, &head[*written..]))?
        } else {
            let both = [IoSlice::new(&head[*written..]), IoSlice::new(body)];
            ready!(stream.as_mut().poll_write_vectored(cx, &both))?
        };
        if count == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        *written += count;
    }
    stream.poll_flush(cx)
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::Arc;

    use tokio::io::AsyncReadExt;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::transport::connection_budget::{ConnectionBudget, PoolSignal};

    #[tokio::test]
    async fn a_partial_write_is_continued() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut endpoint, _) = listener.accept().await.unwrap();
        // More than the sockets' buffers hold while the endpoint does not read.
        let request: Vec<u8> = (0..16_u32 << 20).map(|at| (at % 251) as u8).collect();
        let permit = ConnectionBudget::new(1, 1)
            .try_start(&Arc::new(PoolSignal::default()), tokio::time::Instant::now())
            .unwrap();
        let mut connection = Connection::new(Stream::Tcp(stream), permit.opened());
        connection.start_request();
        let connection = RefCell::new(connection);
        connection.write(&request, &AnswerWaker(Waker::noop().clone()));
        let written = match &connection.borrow().sending {
            Sending::Rest(rest) => rest.written,
            other => panic!("{other:?}"),
        };
        assert!(written > 0 && written < request.len(), "{written}");
        let reading = tokio::spawn(async move {
            let mut all = vec![0; request.len()];
            endpoint.read_exact(&mut all).await.unwrap();
            assert!(all == request);
        });
        poll_fn(|cx| {
            let connection = &mut *connection.borrow_mut();
            connection.continue_write(cx);
            if matches!(connection.sending, Sending::Done) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        reading.await.unwrap();
        assert!(connection.borrow_mut().failure().is_none());
    }

    #[tokio::test]
    async fn a_failed_write_reports_the_bytes_sent() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (endpoint, _) = listener.accept().await.unwrap();
        socket2::SockRef::from(&endpoint).set_linger(Some(Duration::ZERO)).unwrap();
        drop(endpoint);
        stream.readable().await.unwrap();
        let permit = ConnectionBudget::new(1, 1)
            .try_start(&Arc::new(PoolSignal::default()), tokio::time::Instant::now())
            .unwrap();
        let connection = RefCell::new(Connection::new(Stream::Tcp(stream), permit.opened()));
        connection.write(b"GET / HTTP/1.1\r\n\r\n", &AnswerWaker(Waker::noop().clone()));
        let (error, sent) = connection.borrow_mut().failure().unwrap();
        assert_eq!((error.kind(), sent), (io::ErrorKind::ConnectionReset, 0));
    }
}
