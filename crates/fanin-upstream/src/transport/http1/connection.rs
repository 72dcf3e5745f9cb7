//! One connection: how a request gets out on it, and whether it is good for another.
//!
//! A short request is written by the worker, beside others of its lap; the rest is written inside the call's own future. Requests are
//! written from one buffer that all connections of a thread use in turn; what a socket does not take at once is copied out of it.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::mem;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::request;
use crate::transport::attempt::Attempt;
use crate::transport::connection_budget::OpenConnection;
use crate::transport::departure::{self, Departs};
use crate::transport::stream::Stream;

/// A body up to this is put behind the head, so that both go out as one buffer.
const TOGETHER: usize = 4 << 10;
/// A write buffer that has grown beyond this is given up.
const MAX_KEPT: usize = 64 << 10;

thread_local! {
    /// What is being written.
    static WRITE_BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A connection. Dropping it closes it.
#[derive(Debug)]
pub(super) struct Connection {
    pub stream: Stream,
    /// How far the request is that is on its way.
    sending: Sending,
    /// It has answered before, so that the endpoint may have closed it meanwhile.
    pub served: bool,
    /// A request was begun on it and not answered to the end: nobody else can use it.
    pub busy: bool,
    /// After the stream: the room is given back once the socket is closed.
    _open: OpenConnection,
}

impl Connection {
    pub fn new(stream: Stream, open: OpenConnection) -> Connection {
        Connection { stream, sending: Sending::Done, served: false, busy: false, _open: open }
    }

    /// Whether a request waits as bytes for its departure, not as a call.
    pub fn is_coalesced(&self, attempt: &Attempt<'_>) -> bool {
        matches!(self.stream, Stream::Tcp(_)) && attempt.request.body.len() <= TOGETHER
    }

    /// A request begins on it. Nothing is sent yet.
    pub fn start_request(&mut self) {
        self.busy = true;
        self.sending = Sending::Start;
    }

    /// Sends what can be sent now of the attempt's request; `false` while nothing can be sent yet. A failure is kept: an answer may
    /// be there all the same (413 and closed, say).
    pub fn send(shared: &Shared, attempt: &Attempt<'_>, left: Duration, cx: &mut Context<'_>) -> bool {
        let connection = &mut *shared.borrow_mut();
        match &mut connection.sending {
            Sending::Done | Sending::Failed(_) => {}
            Sending::Queued => {
                // Whoever polls now may be somebody else than before.
                departure::set_waker(&(shared.clone() as Rc<dyn Departs>), cx.waker());
                return false;
            }
            Sending::Start => WRITE_BUFFER.with_borrow_mut(|head| {
                head.clear();
                head.shrink_to(MAX_KEPT);
                request::write(head, attempt, left);
                let mut body = &attempt.request.body[..];
                if body.len() <= TOGETHER {
                    head.extend_from_slice(body);
                    body = &[];
                }
                if connection.is_coalesced(attempt) {
                    departure::push(shared.clone(), head, cx.waker());
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
        }
        !matches!(connection.sending, Sending::Queued)
    }

    /// Sends more of what the socket has not taken at once.
    #[cold]
    fn continue_write(&mut self, cx: &mut Context<'_>) {
        let Sending::Rest(rest) = &mut self.sending else { return };
        match write(&mut self.stream, cx, &rest.bytes, &rest.body, &mut rest.written) {
            Poll::Ready(Ok(())) => self.sending = Sending::Done,
            Poll::Ready(Err(error)) => self.sending = Sending::Failed(Box::new((error, rest.written))),
            Poll::Pending => {}
        }
    }

    /// The answer has come. `reusable`: as far as it is concerned, the next request may be sent.
    pub fn finish_answer(&mut self, reusable: bool) {
        self.busy = !(reusable && matches!(self.sending, Sending::Done));
        self.served = true;
    }

    /// What kept the request from being sent, and how much of it had been.
    pub fn failure(&mut self) -> Option<(io::Error, usize)> {
        match mem::replace(&mut self.sending, Sending::Done) {
            Sending::Failed(failed) => Some(*failed),
            _ => None,
        }
    }

    /// The request on its way is not sent, if it waits for its departure still: the connection is as good as before it.
    pub fn withdraw(shared: &Shared) {
        let queued = matches!(shared.borrow().sending, Sending::Queued);
        if queued {
            departure::withdraw(&(shared.clone() as Rc<dyn Departs>));
            let mut connection = shared.borrow_mut();
            connection.sending = Sending::Done;
            connection.busy = false;
        }
    }

    /// Whether an unused connection is still good, as far as the runtime has heard: neither closed nor saying anything, since
    /// nothing has been asked. Costs no system call.
    pub fn is_quiet(&mut self) -> bool {
        match &self.stream {
            Stream::Tcp(stream) => {
                matches!(stream.try_read(&mut [0]), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
            }
            // Under TLS, bytes may come that say nothing, such as a ticket for a later session.
            Stream::Tls(_) => self.stays_quiet(Waker::noop()),
        }
    }

    /// The same, and `waker` is woken when it may be no longer.
    pub fn stays_quiet(&mut self, waker: &Waker) -> bool {
        let mut one = [0];
        Pin::new(&mut self.stream).poll_read(&mut Context::from_waker(waker), &mut ReadBuf::new(&mut one)).is_pending()
    }
}

/// A connection as calls and departures share it. Nobody keeps it borrowed beyond a call of a method here.
pub(super) type Shared = Rc<RefCell<Connection>>;

impl Departs for RefCell<Connection> {
    fn depart(&self, bytes: &[u8], waker: &Waker) {
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
    /// All of it waits for its departure.
    Queued,
    /// What the socket has not taken at once.
    Rest(Box<Rest>),
    Done,
    Failed(Box<(io::Error, usize)>),
}

#[derive(Debug)]
struct Rest {
    bytes: Vec<u8>,
    body: Bytes,
    written: usize,
}

/// Writes a head and the body behind it, of which `written` bytes are gone already.
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
    async fn what_the_socket_does_not_take_at_once_follows() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut endpoint, _) = listener.accept().await.unwrap();
        // More than the sockets' buffers hold while the endpoint does not read.
        let request: Vec<u8> = (0..16_u32 << 20).map(|at| (at % 251) as u8).collect();
        let permit = ConnectionBudget::new(1, 1).try_start(&Arc::new(PoolSignal::default())).unwrap();
        let mut connection = Connection::new(Stream::Tcp(stream), permit.opened());
        connection.start_request();
        let connection = RefCell::new(connection);
        connection.depart(&request, Waker::noop());
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
    async fn what_cannot_be_sent_is_told_with_how_much_was() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (endpoint, _) = listener.accept().await.unwrap();
        socket2::SockRef::from(&endpoint).set_linger(Some(Duration::ZERO)).unwrap();
        drop(endpoint);
        stream.readable().await.unwrap();
        let permit = ConnectionBudget::new(1, 1).try_start(&Arc::new(PoolSignal::default())).unwrap();
        let connection = RefCell::new(Connection::new(Stream::Tcp(stream), permit.opened()));
        connection.depart(b"GET / HTTP/1.1\r\n\r\n", Waker::noop());
        let (error, sent) = connection.borrow_mut().failure().unwrap();
        assert_eq!((error.kind(), sent), (io::ErrorKind::ConnectionReset, 0));
    }
}
