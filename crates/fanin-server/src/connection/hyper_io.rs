//! The socket as hyper sees it. What passes through is recorded in [`ConnectionState`].

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::body_reader::{BODY_END, BodyReader, MAX_BODY_READ};
use super::coalesced_socket::CoalescedSocket;
use super::fast_rejection::{self, FastRejection};
use super::protocol_detection::Prefix;
use super::strict_head::HeadScanner;
use super::{ConnectionState, pre_request_errors};

/// Most bytes of an unread request that are discarded before the connection is reset.
const LINGER_BYTES: usize = 16 << 20;

/// Longest response of a fast rejection, in bytes.
const MAX_REJECTION: usize = 1 << 10;

/// What hyper refuses in any place of a head. It looks at a head that came in several reads only when that has an end.
const FAULT: &[u8] = b"\0\r\n\r\n";

/// A connection's socket, and the bytes that protocol detection has read from it.
pub(super) struct HyperIo<S> {
    socket: Rc<CoalescedSocket<S>>,
    conn: Rc<ConnectionState>,
    fast_rejection: Rc<dyn FastRejection>,
    prefix: Prefix,
    head: HeadScanner,
    /// The response that replaces hyper's own, and how much of it has been written.
    pre_request_error: Option<(Vec<u8>, usize)>,
    /// The writing half is closed; bytes discarded since then.
    lingering: Option<usize>,
}

impl<S: AsyncRead + AsyncWrite + Unpin + 'static> HyperIo<S> {
    pub(super) fn new(
        socket: Rc<CoalescedSocket<S>>,
        conn: Rc<ConnectionState>,
        fast_rejection: Rc<dyn FastRejection>,
        prefix: Prefix,
    ) -> HyperIo<S> {
        HyperIo {
            socket,
            conn,
            fast_rejection,
            prefix,
            head: HeadScanner::new(),
            pre_request_error: None,
            lingering: None,
        }
    }

    fn record(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match &written {
            Poll::Ready(_) => self.conn.on_write(),
            Poll::Pending => self.conn.on_write_blocked(),
        }
        written
    }

    /// Keeps what is written once the connection goes on in another protocol. Otherwise writes our error response in place of hyper's own,
    /// which counts as written when ours is. `None`: hyper's is not an error response and is written.
    #[cold]
    fn poll_write_unexpected(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
        len: usize,
    ) -> Option<Poll<io::Result<usize>>> {
        if self.conn.keep_head(slices) {
            return Some(Poll::Ready(Ok(len)));
        }
        match self.socket.poll_clear(cx) {
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(error)) => return Some(Poll::Ready(Err(error))),
            Poll::Pending => return Some(Poll::Pending),
        }
        if self.pre_request_error.is_none() {
            let (status, date) = pre_request_errors::status_of(slices.first()?)?;
            self.pre_request_error = Some((pre_request_errors::response(status, date), 0));
            self.conn.on_pre_request_error();
        }
        let (response, mut written) = self.pre_request_error.take()?;
        while written < response.len() {
            match self.socket.with(|stream| stream.poll_write(cx, &response[written..])) {
                Poll::Ready(Ok(0)) => return Some(Poll::Ready(Err(io::ErrorKind::WriteZero.into()))),
                Poll::Ready(Ok(count)) => written += count,
                Poll::Ready(Err(error)) => return Some(Poll::Ready(Err(error))),
                Poll::Pending => {
                    self.pre_request_error = Some((response, written));
                    return Some(self.record(Poll::Pending));
                }
            }
        }
        // What hyper writes after it is passed on.
        self.conn.expect_response_bytes();
        Some(self.record(Poll::Ready(Ok(len))))
    }

    /// Reads the start of a request, and rejects it if that is possible without hyper.
    fn poll_read_head(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        loop {
            let examines = self.conn.is_between_requests()
                && self.fast_rejection.is_rejecting()
                && self.socket.has_room(MAX_REJECTION);
            let rejected = ready!(fast_rejection::with_buffer(|scratch| {
                let len = scratch.len().min(buffer.remaining());
                let mut read = ReadBuf::new(&mut scratch[..len]);
                ready!(self.socket.with(|stream| stream.poll_read(cx, &mut read)))?;
                let bytes = read.filled();
                if examines
                    && self.socket.push(|rejection| self.fast_rejection.try_reject(&self.conn, bytes, rejection))
                {
                    return Poll::Ready(Ok::<_, io::Error>(true));
                }
                hand_over(&self.conn, &mut self.head, bytes, buffer);
                Poll::Ready(Ok(false))
            }))?;
            if !rejected {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Discards bytes until the client closes, so that a reset does not destroy the last response.
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut scratch = [0; 4096];
        while let Some(taken) = self.lingering.filter(|taken| *taken < LINGER_BYTES) {
            let mut buffer = ReadBuf::new(&mut scratch);
            match ready!(self.socket.with(|stream| stream.poll_read(cx, &mut buffer))) {
                Ok(()) if !buffer.filled().is_empty() => self.lingering = Some(taken + buffer.filled().len()),
                _ => break,
            }
        }
        Poll::Ready(())
    }
}

/// Gives hyper bytes of a head, and perhaps some behind it. Those from a fault on are replaced by one that it refuses in any place.
#[inline]
fn hand_over(conn: &ConnectionState, head: &mut HeadScanner, bytes: &[u8], buffer: &mut ReadBufCursor<'_>) {
    if conn.is_idle() {
        head.on_idle();
    }
    match conn.expects_head() {
        true => conn.on_head_bytes(bytes),
        // The prefix of HTTP/2, or a pipelined request.
        false => conn.on_read(),
    }
    // The preface of HTTP/2 comes here too.
    let fault = if conn.is_http2() { None } else { head.fault(bytes) };
    match fault {
        None => buffer.put_slice(bytes),
        Some(at) => {
            buffer.put_slice(&bytes[..at.min(buffer.remaining().saturating_sub(FAULT.len()))]);
            buffer.put_slice(&FAULT[..FAULT.len().min(buffer.remaining())]);
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + 'static> Read for HyperIo<S> {
    #[inline]
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, mut buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let prefix = this.prefix.take(buffer.remaining());
        if !prefix.is_empty() {
            hand_over(&this.conn, &mut this.head, &prefix, &mut buffer);
            if this.conn.is_http2() {
                return Poll::Ready(Ok(()));
            }
            // The rest comes with it if it is there: hyper's buffer grows before each read into a part of it.
            return match this.poll_read_head(cx, &mut buffer) {
                Poll::Pending => Poll::Ready(Ok(())),
                read => read,
            };
        }
        // hyper reads on while a request is in progress; behind its body, the next bytes are another head.
        let body = if this.conn.is_http2() { usize::MAX } else { this.head.body() };
        if this.conn.expects_head() || body < buffer.remaining().min(BODY_END) {
            return this.poll_read_head(cx, &mut buffer);
        }
        let limit = if this.conn.is_http2() { usize::MAX } else { body.min(MAX_BODY_READ) };
        let head = &mut this.head;
        ready!(
            this.socket
                .with(|stream| Pin::new(&mut TokioIo::new(BodyReader { stream, head, limit })).poll_read(cx, buffer))
        )?;
        this.conn.on_read();
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + 'static> Write for HyperIo<S> {
    #[inline]
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.conn.is_write_unexpected()
            && let Some(written) = this.poll_write_unexpected(cx, &[IoSlice::new(bytes)], bytes.len())
        {
            return written;
        }
        if this.socket.has_room(bytes.len()) {
            this.socket.push(|batch| {
                batch.extend_from_slice(bytes);
                true
            });
            return Poll::Ready(Ok(bytes.len()));
        }
        ready!(this.socket.poll_clear(cx))?;
        let written = this.socket.with(|stream| stream.poll_write(cx, bytes));
        this.record(written)
    }

    #[inline]
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let len = slices.iter().map(|slice| slice.len()).sum();
        if this.conn.is_write_unexpected()
            && let Some(written) = this.poll_write_unexpected(cx, slices, len)
        {
            return written;
        }
        if this.socket.has_room(len) {
            this.socket.push(|batch| {
                slices.iter().for_each(|slice| batch.extend_from_slice(slice));
                true
            });
            return Poll::Ready(Ok(len));
        }
        ready!(this.socket.poll_clear(cx))?;
        let written = this.socket.with(|stream| stream.poll_write_vectored(cx, slices));
        this.record(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.with(|stream| stream.is_write_vectored())
    }

    #[inline]
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // The batch is written without this task.
        let flushed = match this.socket.is_batched() {
            true => Poll::Ready(Ok(())),
            false => match this.socket.poll_unsent(cx) {
                Poll::Ready(Ok(())) => this.socket.with(|stream| stream.poll_flush(cx)),
                other => other,
            },
        };
        match &flushed {
            Poll::Ready(_) => this.conn.on_flush(),
            // TLS may hold bytes back here.
            Poll::Pending => this.conn.on_write_blocked(),
        }
        flushed
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.lingering.is_none() {
            ready!(this.socket.poll_shutdown(cx))?;
            this.lingering = Some(0);
            if this.conn.has_unread_request() {
                this.conn.begin_linger();
            }
        }
        if this.conn.has_unread_request() {
            ready!(this.poll_linger(cx));
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::{Future, poll_fn};
    use std::sync::Arc;

    use hyper::rt::ReadBuf as HyperBuf;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::time::Instant;

    use super::super::ResponseBatch;
    use super::*;

    const REJECTION: [u8; 1000] = [b'r'; 1000];

    /// Rejects what begins with `x`.
    struct RejectsX;

    impl FastRejection for RejectsX {
        fn is_rejecting(&self) -> bool {
            true
        }

        fn try_reject(&self, _: &ConnectionState, bytes: &[u8], to: &mut Vec<u8>) -> bool {
            let rejects = bytes.starts_with(b"x");
            if rejects {
                to.extend_from_slice(&REJECTION);
            }
            rejects
        }
    }

    /// A connection whose socket takes a part of a rejection at a time, its other end, and the write batch.
    fn io() -> (HyperIo<DuplexStream>, DuplexStream, Rc<ResponseBatch>) {
        io_of(64)
    }

    fn io_of(room: usize) -> (HyperIo<DuplexStream>, DuplexStream, Rc<ResponseBatch>) {
        let (client, server) = duplex(room);
        let now = Rc::new(Cell::new(Instant::now()));
        let conn = Rc::new(ConnectionState::new("127.0.0.1:1".parse().unwrap(), now, Arc::default()));
        let write_batch = Rc::<ResponseBatch>::default();
        let socket = CoalescedSocket::new(server, conn.clone(), write_batch.clone());
        (HyperIo::new(socket, conn, Rc::new(RejectsX), Prefix::default()), client, write_batch)
    }

    async fn read(io: &mut HyperIo<DuplexStream>) -> Vec<u8> {
        read_up_to(100, io).await
    }

    /// As the connection's task does.
    async fn read_up_to(most: usize, io: &mut HyperIo<DuplexStream>) -> Vec<u8> {
        let mut room = vec![0; most];
        let mut buffer = HyperBuf::new(&mut room);
        poll_fn(|cx| {
            io.conn.register_waker(cx);
            assert!(!matches!(io.socket.poll_unsent(cx), Poll::Ready(Err(_))));
            Pin::new(&mut *io).poll_read(cx, buffer.unfilled())
        })
        .await
        .unwrap();
        buffer.filled().to_vec()
    }

    async fn run(test: impl Future<Output = ()>, write_batch: Rc<ResponseBatch>) {
        tokio::select! {
            () = test => {}
            () = write_batch.writer() => {}
        }
    }

    #[tokio::test]
    async fn rejections_are_written_to_the_end() {
        let (mut io, mut client, write_batch) = io();
        let requests = async {
            let mut answer = [0; REJECTION.len()];
            for _ in 0..3 {
                client.write_all(b"x\r\n\r\n").await.unwrap();
                client.read_exact(&mut answer).await.unwrap();
                assert_eq!(answer, REJECTION);
            }
            client.write_all(b"y\r\n\r\n").await.unwrap();
        };
        let test = async {
            let (request, ()) = tokio::join!(read(&mut io), requests);
            assert_eq!(request, b"y\r\n\r\n", "what is not rejected is read unchanged");
        };
        run(test, write_batch).await;
    }

    #[tokio::test]
    async fn while_a_client_reads_nothing_its_requests_are_not_rejected_fast() {
        let (mut io, mut client, write_batch) = io();
        let test = async {
            let mut answer = [0; REJECTION.len()];
            let requests = async {
                client.write_all(b"x\r\n\r\n").await.unwrap();
                // A part of the rejection has arrived, and there is more.
                client.read_exact(&mut answer[..1]).await.unwrap();
                client.write_all(b"x\r\n\r\n").await.unwrap();
            };
            let (request, ()) = tokio::join!(read(&mut io), requests);
            assert_eq!(request, b"x\r\n\r\n");
            let rest = poll_fn(|cx| io.socket.poll_unsent(cx));
            let (written, read) = tokio::join!(rest, client.read_exact(&mut answer[1..]));
            assert!(written.is_ok() && read.is_ok());
            assert_eq!(answer, REJECTION);
        };
        run(test, write_batch).await;
    }

    #[tokio::test]
    async fn bytes_behind_an_unfinished_request_are_not_examined() {
        let (mut io, mut client, _) = io();
        client.write_all(b"y").await.unwrap();
        assert_eq!(read(&mut io).await, b"y");
        client.write_all(b"x\r\n\r\n").await.unwrap();
        assert_eq!(read(&mut io).await, b"x\r\n\r\n");
    }

    #[tokio::test]
    async fn a_failed_write_ends_the_connection() {
        let (io, client, write_batch) = io();
        // A socket whose failure is visible to writes only, as under TLS.
        drop(client);
        let test = async {
            assert!(io.socket.push(|batch| {
                batch.extend_from_slice(&REJECTION);
                true
            }));
            let ended = poll_fn(|cx| {
                io.conn.register_waker(cx);
                match io.socket.poll_unsent(cx) {
                    Poll::Ready(Err(error)) => Poll::Ready(error),
                    _ => Poll::Pending,
                }
            });
            let error = tokio::time::timeout(std::time::Duration::from_secs(60), ended).await;
            assert_eq!(error.expect("the connection's task is woken").kind(), io::ErrorKind::BrokenPipe);
            assert!(!io.socket.has_room(1), "nothing more is batched");
            assert!(
                matches!(poll_fn(|cx| Poll::Ready(io.socket.poll_unsent(cx))).await, Poll::Ready(Err(_))),
                "it stays so"
            );
        };
        run(test, write_batch).await;
    }

    /// What hyper writes arrives in order and completely, whether it is batched or not.
    #[tokio::test]
    async fn bytes_arrive_in_order_batched_or_not() {
        let (mut io, mut client, write_batch) = io();
        io.conn.expect_response_bytes();
        let sizes = [10, 5000, 20_000, 3, 12_000, 12_000, 40_000, 1];
        let all = (0..sizes.iter().sum::<usize>()).map(|at| (at % 251) as u8).collect::<Vec<_>>();
        let (sent, mut came) = (all.clone(), Vec::new());
        let writes = async {
            let mut rest = &sent[..];
            for size in sizes {
                let (mut piece, behind) = rest.split_at(size);
                rest = behind;
                while !piece.is_empty() {
                    let count = poll_fn(|cx| {
                        io.conn.register_waker(cx);
                        assert!(!matches!(io.socket.poll_unsent(cx), Poll::Ready(Err(_))));
                        if piece.len() % 2 == 0 {
                            return Pin::new(&mut io).poll_write(cx, piece);
                        }
                        let (one, two) = piece.split_at(piece.len() / 2);
                        Pin::new(&mut io).poll_write_vectored(cx, &[IoSlice::new(one), IoSlice::new(two)])
                    });
                    piece = &piece[count.await.unwrap()..];
                }
                poll_fn(|cx| Pin::new(&mut io).poll_flush(cx)).await.unwrap();
            }
            poll_fn(|cx| Pin::new(&mut io).poll_shutdown(cx)).await.unwrap();
            drop(io);
        };
        run(
            async {
                tokio::join!(writes, async { client.read_to_end(&mut came).await.unwrap() });
            },
            write_batch,
        )
        .await;
        assert!(came == all, "{} of {}", came.len(), all.len());
    }

    /// A large body comes in pieces that do not hold the worker. The last one is not read in small parts because of what may follow.
    #[tokio::test]
    async fn bodies_are_read_in_pieces_of_a_bounded_size_and_not_beyond_their_end() {
        let (mut io, mut client, _) = io_of(1 << 20);
        let length = 2 * MAX_BODY_READ + MAX_BODY_READ / 2;
        let head = format!("POST / HTTP/1.1\r\nContent-Length: {length}\r\n\r\n");
        client.write_all(head.as_bytes()).await.unwrap();
        assert_eq!(read(&mut io).await, head.as_bytes());
        io.conn.on_request_start();
        client.write_all(&vec![b'a'; length]).await.unwrap();
        client.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
        let mut sizes = Vec::new();
        for _ in 0..4 {
            sizes.push(read_up_to(256 << 10, &mut io).await.len());
        }
        assert_eq!(sizes, [MAX_BODY_READ, MAX_BODY_READ, MAX_BODY_READ / 2, 16]);
    }
}
