//! The socket as hyper sees it, and what passes through it as [`Conn`] sees it.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::line::Line;
use super::shed::{self, Shed};
use super::sniff::Prefix;
use super::{Conn, early};

/// At most this much of a request that nobody reads is taken before the connection is closed the hard way.
const LINGER_BYTES: usize = 16 << 20;

/// No refusal is longer.
const MOST_REFUSAL: usize = 1 << 10;

/// A connection's socket with the bytes that were read to find out what it speaks.
pub(super) struct Io<S> {
    line: Rc<Line<S>>,
    conn: Rc<Conn>,
    shed: Rc<dyn Shed>,
    prefix: Prefix,
    /// What is written in place of hyper's own answer, and how much of it has been.
    early: Option<(Vec<u8>, usize)>,
    /// The writing half is closed; bytes taken since then.
    lingering: Option<usize>,
}

impl<S: AsyncRead + AsyncWrite + Unpin + 'static> Io<S> {
    pub(super) fn new(line: Rc<Line<S>>, conn: Rc<Conn>, shed: Rc<dyn Shed>, prefix: Prefix) -> Io<S> {
        Io { line, conn, shed, prefix, early: None, lingering: None }
    }

    fn noted(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match &written {
            Poll::Ready(_) => self.conn.has_written(),
            Poll::Pending => self.conn.is_blocked(),
        }
        written
    }

    /// Writes our answer in place of hyper's own, whose bytes count as written when ours are. `None`: hyper's stands.
    fn poll_write_early(&mut self, cx: &mut Context<'_>, hypers: &[u8], len: usize) -> Option<Poll<io::Result<usize>>> {
        match self.line.poll_clear(cx) {
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(error)) => return Some(Poll::Ready(Err(error))),
            Poll::Pending => return Some(Poll::Pending),
        }
        if self.early.is_none() {
            let (status, date) = early::status_of(hypers)?;
            self.early = Some((early::answer(status, date), 0));
            self.conn.answers_early();
        }
        let (answer, mut written) = self.early.take()?;
        while written < answer.len() {
            match self.line.with(|stream| stream.poll_write(cx, &answer[written..])) {
                Poll::Ready(Ok(0)) => return Some(Poll::Ready(Err(io::ErrorKind::WriteZero.into()))),
                Poll::Ready(Ok(count)) => written += count,
                Poll::Ready(Err(error)) => return Some(Poll::Ready(Err(error))),
                Poll::Pending => {
                    self.early = Some((answer, written));
                    return Some(self.noted(Poll::Pending));
                }
            }
        }
        // Whatever hyper still has to say follows as it is.
        self.conn.owes();
        Some(self.noted(Poll::Ready(Ok(len))))
    }

    /// Reads the start of a request, and refuses it if that can be done without hyper.
    fn poll_read_head(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        loop {
            let looks = self.conn.is_at_rest() && self.shed.sheds() && self.line.has_room(MOST_REFUSAL);
            let refused = ready!(shed::with_buffer(|room| {
                let most = room.len().min(buffer.remaining());
                let mut read = ReadBuf::new(&mut room[..most]);
                ready!(self.line.with(|stream| stream.poll_read(cx, &mut read)))?;
                let bytes = read.filled();
                if looks && self.line.push(|refusal| self.shed.shed(&self.conn, bytes, refusal)) {
                    return Poll::Ready(Ok::<_, io::Error>(true));
                }
                self.conn.has_read_head(bytes);
                buffer.put_slice(bytes);
                Poll::Ready(Ok(false))
            }))?;
            if !refused {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Reads and forgets until the client closes, so that our last answer is not lost in a reset.
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut scratch = [0; 4096];
        while let Some(taken) = self.lingering.filter(|taken| *taken < LINGER_BYTES) {
            let mut buffer = ReadBuf::new(&mut scratch);
            match ready!(self.line.with(|stream| stream.poll_read(cx, &mut buffer))) {
                Ok(()) if !buffer.filled().is_empty() => self.lingering = Some(taken + buffer.filled().len()),
                _ => break,
            }
        }
        Poll::Ready(())
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + 'static> Read for Io<S> {
    #[inline]
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, mut buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let prefix = this.prefix.take(buffer.remaining());
        if !prefix.is_empty() {
            this.conn.has_read_head(&prefix);
            buffer.put_slice(&prefix);
            return Poll::Ready(Ok(()));
        }
        if this.conn.awaits_head() {
            return this.poll_read_head(cx, &mut buffer);
        }
        ready!(this.line.with(|stream| Pin::new(&mut TokioIo::new(stream)).poll_read(cx, buffer)))?;
        this.conn.has_read();
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + 'static> Write for Io<S> {
    #[inline]
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.conn.is_hypers_own()
            && let Some(written) = this.poll_write_early(cx, bytes, bytes.len())
        {
            return written;
        }
        if this.line.has_room(bytes.len()) {
            this.line.push(|waiting| {
                waiting.extend_from_slice(bytes);
                true
            });
            return Poll::Ready(Ok(bytes.len()));
        }
        ready!(this.line.poll_clear(cx))?;
        let written = this.line.with(|stream| stream.poll_write(cx, bytes));
        this.noted(written)
    }

    #[inline]
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let len = slices.iter().map(|slice| slice.len()).sum();
        if this.conn.is_hypers_own()
            && let Some(head) = slices.first()
            && let Some(written) = this.poll_write_early(cx, head, len)
        {
            return written;
        }
        if this.line.has_room(len) {
            this.line.push(|waiting| {
                slices.iter().for_each(|slice| waiting.extend_from_slice(slice));
                true
            });
            return Poll::Ready(Ok(len));
        }
        ready!(this.line.poll_clear(cx))?;
        let written = this.line.with(|stream| stream.poll_write_vectored(cx, slices));
        this.noted(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.line.with(|stream| stream.is_write_vectored())
    }

    #[inline]
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // What waits for its departure leaves by itself.
        let flushed = match this.line.is_queued() {
            true => Poll::Ready(Ok(())),
            false => match this.line.poll_rest(cx) {
                Poll::Ready(Ok(())) => this.line.with(|stream| stream.poll_flush(cx)),
                other => other,
            },
        };
        match &flushed {
            Poll::Ready(_) => this.conn.has_flushed(),
            // Under TLS, bytes may be kept back here.
            Poll::Pending => this.conn.is_blocked(),
        }
        flushed
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.lingering.is_none() {
            ready!(this.line.poll_shutdown(cx))?;
            this.lingering = Some(0);
            if this.conn.is_unread() {
                this.conn.lingers();
            }
        }
        if this.conn.is_unread() {
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

    use super::super::Departures;
    use super::*;

    const REFUSAL: [u8; 1000] = [b'r'; 1000];

    /// Refuses what begins with `x`.
    struct RefusesX;

    impl Shed for RefusesX {
        fn sheds(&self) -> bool {
            true
        }

        fn shed(&self, _: &Conn, bytes: &[u8], to: &mut Vec<u8>) -> bool {
            let refuses = bytes.starts_with(b"x");
            if refuses {
                to.extend_from_slice(&REFUSAL);
            }
            refuses
        }
    }

    /// A connection whose socket takes some of a refusal at a time, its other end, and what writes.
    fn io() -> (Io<DuplexStream>, DuplexStream, Rc<Departures>) {
        let (client, server) = duplex(64);
        let now = Rc::new(Cell::new(Instant::now()));
        let conn = Rc::new(Conn::new("127.0.0.1:1".parse().unwrap(), now, Arc::default()));
        let departures = Rc::<Departures>::default();
        let line = Line::new(server, conn.clone(), departures.clone());
        (Io::new(line, conn, Rc::new(RefusesX), Prefix::default()), client, departures)
    }

    /// As the connection's task does.
    async fn read(io: &mut Io<DuplexStream>) -> Vec<u8> {
        let mut room = [0; 100];
        let mut buffer = HyperBuf::new(&mut room);
        poll_fn(|cx| {
            io.conn.note_waker(cx);
            assert!(!matches!(io.line.poll_rest(cx), Poll::Ready(Err(_))));
            Pin::new(&mut *io).poll_read(cx, buffer.unfilled())
        })
        .await
        .unwrap();
        buffer.filled().to_vec()
    }

    async fn run(test: impl Future<Output = ()>, departures: Rc<Departures>) {
        tokio::select! {
            () = test => {}
            () = departures.run() => {}
        }
    }

    #[tokio::test]
    async fn refusals_get_through_to_the_end() {
        let (mut io, mut client, departures) = io();
        let asks = async {
            let mut answer = [0; REFUSAL.len()];
            for _ in 0..3 {
                client.write_all(b"x\r\n\r\n").await.unwrap();
                client.read_exact(&mut answer).await.unwrap();
                assert_eq!(answer, REFUSAL);
            }
            client.write_all(b"y\r\n\r\n").await.unwrap();
        };
        let test = async {
            let (request, ()) = tokio::join!(read(&mut io), asks);
            assert_eq!(request, b"y\r\n\r\n", "what is not refused is read as it is");
        };
        run(test, departures).await;
    }

    #[tokio::test]
    async fn while_a_client_takes_nothing_its_requests_go_the_usual_way() {
        let (mut io, mut client, departures) = io();
        let test = async {
            let mut answer = [0; REFUSAL.len()];
            let asks = async {
                client.write_all(b"x\r\n\r\n").await.unwrap();
                // Some of the refusal has come, and there is more.
                client.read_exact(&mut answer[..1]).await.unwrap();
                client.write_all(b"x\r\n\r\n").await.unwrap();
            };
            let (request, ()) = tokio::join!(read(&mut io), asks);
            assert_eq!(request, b"x\r\n\r\n");
            let rest = poll_fn(|cx| io.line.poll_rest(cx));
            let (written, read) = tokio::join!(rest, client.read_exact(&mut answer[1..]));
            assert!(written.is_ok() && read.is_ok());
            assert_eq!(answer, REFUSAL);
        };
        run(test, departures).await;
    }

    #[tokio::test]
    async fn what_is_behind_an_unfinished_request_is_not_looked_at() {
        let (mut io, mut client, _) = io();
        client.write_all(b"y").await.unwrap();
        assert_eq!(read(&mut io).await, b"y");
        client.write_all(b"x\r\n\r\n").await.unwrap();
        assert_eq!(read(&mut io).await, b"x\r\n\r\n");
    }

    #[tokio::test]
    async fn what_cannot_be_written_ends_the_connection() {
        let (io, client, departures) = io();
        // A socket whose other end takes nothing and says so only to who writes, as under TLS.
        drop(client);
        let test = async {
            assert!(io.line.push(|waiting| {
                waiting.extend_from_slice(&REFUSAL);
                true
            }));
            let ended = poll_fn(|cx| {
                io.conn.note_waker(cx);
                match io.line.poll_rest(cx) {
                    Poll::Ready(Err(error)) => Poll::Ready(error),
                    _ => Poll::Pending,
                }
            });
            let error = tokio::time::timeout(std::time::Duration::from_secs(60), ended).await;
            assert_eq!(error.expect("the connection's task is woken").kind(), io::ErrorKind::BrokenPipe);
            assert!(!io.line.has_room(1), "nothing more is queued");
            assert!(
                matches!(poll_fn(|cx| Poll::Ready(io.line.poll_rest(cx))).await, Poll::Ready(Err(_))),
                "it stays so"
            );
        };
        run(test, departures).await;
    }

    /// What hyper writes is in order, whatever way it goes, and is all there when the connection is closed.
    #[tokio::test]
    async fn bytes_arrive_in_order_whatever_way_they_leave() {
        let (mut io, mut client, departures) = io();
        io.conn.owes();
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
                        io.conn.note_waker(cx);
                        assert!(!matches!(io.line.poll_rest(cx), Poll::Ready(Err(_))));
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
            departures,
        )
        .await;
        assert!(came == all, "{} of {}", came.len(), all.len());
    }
}
