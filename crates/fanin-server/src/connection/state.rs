//! A connection's state: its phase and since when, for its timeouts.

use std::cell::{Cell, OnceCell, RefCell};
use std::io::IoSlice;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use fanin_io::min_rate::{MinRate, Unsent};
use fanin_tls::ClientCertificate;
use tokio::time::Instant;

use super::held_back::{self, HeldBackBodies, HoldsBack};
use crate::client::{ClientAddress, ConnectionLimits};
use crate::metrics::{Closed, WorkerStats};
use crate::upgrade::Takeover;

/// How long a client may take to close after the response to a request that was not read to its end.
const LINGER: Duration = Duration::from_secs(2);

/// Over which a client's rate is judged while the worker holds too many bytes that clients have not read.
const CROWDED_WINDOW: Duration = Duration::from_secs(1);

/// One connection, as the worker's housekeeping sees it. A request costs it a few stores.
#[derive(Debug)]
pub(crate) struct ConnectionState {
    pub(crate) client: ClientAddress,
    pub(crate) limits: ConnectionLimits,
    /// The certificate that the client has presented.
    certificate: OnceCell<Arc<ClientCertificate>>,
    /// The worker's coarse time.
    now: Rc<Cell<Instant>>,
    phase: Cell<Phase>,
    /// When the phase began or last made progress.
    since: Cell<Instant>,
    /// Requests being served; more than one only with HTTP/2.
    active: Cell<u32>,
    /// Responses that hyper has not taken all bytes of.
    unfinished_responses: Cell<u32>,
    /// Bytes of responses that the client has not taken.
    unsent: Unsent,
    held_back: HeldBackBodies,
    /// Since then the socket has taken no bytes.
    blocked_since: Cell<Option<Instant>>,
    /// The next bytes that hyper writes belong to a response of ours. Otherwise they are hyper's own error response, or kept for what the
    /// connection goes on with.
    response_expected: Cell<bool>,
    /// The client may still be sending a request that is not read to its end.
    unread: Cell<bool>,
    pre_request_error: Cell<bool>,
    http2: Cell<bool>,
    /// HTTP/1.1: complete heads that were read and have not become a request yet. 0 between two requests: hyper then holds no byte
    /// behind the last request. Far below 0 once the count is lost.
    heads: Cell<i32>,
    shutting_down: Cell<bool>,
    stats: Arc<WorkerStats>,
    expired: Cell<Option<Closed>>,
    waker: RefCell<Option<Waker>>,
    /// What the connection goes on with once hyper has ended. It refers to this state, so it is taken when the connection ends.
    takeover: RefCell<Option<Box<Takeover>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No byte of a next request has come.
    Idle,
    /// A PROXY header, a TLS handshake or a request's head is arriving.
    Head,
    /// A request is being served.
    Busy,
    /// The last response is written; waiting for the client to close.
    Linger,
}

impl ConnectionState {
    pub(crate) fn new(peer: SocketAddr, now: Rc<Cell<Instant>>, stats: Arc<WorkerStats>) -> ConnectionState {
        // The coarse time may be old when the worker was idle.
        now.set(Instant::now());
        ConnectionState {
            client: ClientAddress::new(peer),
            limits: ConnectionLimits::default(),
            certificate: OnceCell::new(),
            phase: Cell::new(Phase::Idle),
            since: Cell::new(now.get()),
            unsent: Unsent::default(),
            held_back: HeldBackBodies::new(now.get()),
            now,
            active: Cell::new(0),
            unfinished_responses: Cell::new(0),
            blocked_since: Cell::new(None),
            response_expected: Cell::new(false),
            unread: Cell::new(false),
            pre_request_error: Cell::new(false),
            http2: Cell::new(false),
            heads: Cell::new(0),
            shutting_down: Cell::new(false),
            stats,
            expired: Cell::new(None),
            waker: RefCell::new(None),
            takeover: RefCell::default(),
        }
    }

    fn enter(&self, phase: Phase) {
        self.phase.set(phase);
        self.since.set(self.now.get());
    }

    /// The protocol is HTTP/2: bytes between requests are frames, not the start of a head.
    pub(super) fn set_http2(&self) {
        self.http2.set(true);
        self.enter(Phase::Idle);
    }

    /// GOAWAY was sent to the HTTP/2 client: the connection lingers once no request runs.
    pub(super) fn begin_shutdown(&self) {
        self.shutting_down.set(true);
        self.expired.set(None);
        if self.active.get() == 0 {
            self.enter(Phase::Linger);
        }
    }

    /// A TLS handshake or a PROXY header is due.
    pub(super) fn begin_handshake(&self) {
        self.enter(Phase::Head);
    }

    /// It has come; the first request has not.
    pub(super) fn end_handshake(&self) {
        self.enter(Phase::Idle);
    }

    /// The TLS handshake is complete.
    pub(super) fn set_certificate(&self, certificate: Option<Arc<ClientCertificate>>) {
        if let Some(certificate) = certificate {
            // A connection has one handshake.
            let _ = self.certificate.set(certificate);
        }
    }

    /// The certificate that the client has presented.
    #[inline]
    pub(crate) fn certificate(&self) -> Option<&Arc<ClientCertificate>> {
        self.certificate.get()
    }

    /// Bytes came in.
    #[inline]
    pub(super) fn on_read(&self) {
        match self.phase.get() {
            Phase::Idle if !self.http2.get() => self.enter(Phase::Head),
            // A body, or a pipelined request.
            Phase::Busy => self.stop_counting_heads(),
            _ => {}
        }
    }

    /// Whether the next bytes belong to a request's head.
    #[inline]
    pub(super) fn expects_head(&self) -> bool {
        matches!(self.phase.get(), Phase::Idle | Phase::Head) && !self.http2.get()
    }

    /// No byte of a next request has come.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.phase.get() == Phase::Idle
    }

    pub(super) fn is_http2(&self) -> bool {
        self.http2.get()
    }

    /// Bytes of a head came in, and perhaps some behind it.
    #[inline]
    pub(super) fn on_head_bytes(&self, bytes: &[u8]) {
        if self.phase.get() == Phase::Idle {
            self.enter(Phase::Head);
        }
        if bytes.ends_with(b"\r\n\r\n") {
            self.heads.set(self.heads.get() + 1);
        }
    }

    /// Whether no byte of a request or a response is pending, neither here nor in hyper.
    #[inline]
    pub(super) fn is_between_requests(&self) -> bool {
        self.phase.get() == Phase::Idle
            && self.heads.get() == 0
            && !self.response_expected.get()
            && self.unfinished_responses.get() == 0
    }

    /// From now on it is unknown where heads begin.
    fn stop_counting_heads(&self) {
        self.heads.set(i32::MIN / 2);
    }

    /// The request that has begun has a body.
    pub(crate) fn on_request_body(&self) {
        self.stop_counting_heads();
    }

    /// A request's head is complete.
    #[inline]
    pub(crate) fn on_request_start(&self) {
        self.heads.set(self.heads.get().saturating_sub(1));
        self.active.set(self.active.get() + 1);
        self.phase.set(Phase::Busy);
        self.response_expected.set(true);
        self.unread.set(false);
    }

    /// A request is answered or given up.
    #[inline]
    pub(crate) fn on_request_end(&self) {
        self.active.set(self.active.get() - 1);
        if self.active.get() == 0 {
            self.enter(if self.shutting_down.get() { Phase::Linger } else { Phase::Idle });
        }
    }

    /// hyper receives a response with a body of so many bytes.
    #[inline]
    pub(crate) fn on_response_start(&self, bytes: usize) {
        self.unsent.add(bytes);
        self.unfinished_responses.set(self.unfinished_responses.get() + 1);
    }

    /// hyper receives more bytes of a body that is made while it is sent.
    pub(crate) fn on_stream_bytes(&self, bytes: usize) {
        self.unsent.add(bytes);
    }

    /// Bytes of a response's body that the client has not taken.
    #[inline]
    pub(crate) fn unsent(&self) -> usize {
        self.unsent.bytes()
    }

    /// So many bytes of bodies were written, or will never be.
    #[inline]
    pub(crate) fn on_bytes_taken(&self, bytes: usize) {
        self.unsent.take(bytes);
    }

    /// hyper has taken all of a response, or dropped it with so many bytes left.
    #[inline]
    pub(crate) fn on_response_end(&self, left: usize) {
        self.on_bytes_taken(left);
        self.unfinished_responses.set(self.unfinished_responses.get() - 1);
    }

    /// The response is made before the request's body is read to its end.
    pub(crate) fn mark_unread(&self) {
        self.unread.set(true);
    }

    pub(super) fn has_unread_request(&self) -> bool {
        self.unread.get()
    }

    pub(super) fn begin_linger(&self) {
        self.enter(Phase::Linger);
    }

    /// The socket took bytes.
    #[inline]
    pub(super) fn on_write(&self) {
        self.blocked_since.set(None);
        if matches!(self.phase.get(), Phase::Idle | Phase::Linger) {
            self.since.set(self.now.get());
        }
    }

    /// The socket took nothing.
    pub(super) fn on_write_blocked(&self) {
        if self.blocked_since.get().is_none() {
            self.blocked_since.set(Some(self.now.get()));
        }
    }

    /// A pre-request error is written. It is the last response of this connection.
    pub(super) fn on_pre_request_error(&self) {
        self.stats.protocol_errors.add(1);
        self.pre_request_error.set(true);
        self.unread.set(true);
    }

    /// Whether [`on_pre_request_error`](Self::on_pre_request_error) was called.
    pub(super) fn has_pre_request_error(&self) -> bool {
        self.pre_request_error.get()
    }

    pub(super) fn is_write_blocked(&self) -> bool {
        self.blocked_since.get().is_some()
    }

    /// All bytes have been written.
    #[inline]
    pub(super) fn on_flush(&self) {
        if self.active.get() == 0 && self.unfinished_responses.get() == 0 {
            self.response_expected.set(false);
        }
    }

    /// The next bytes that hyper writes are passed on unchanged.
    pub(super) fn expect_response_bytes(&self) {
        self.response_expected.set(true);
    }

    /// Whether hyper writes an error response of its own, to bytes that did not become a request, or what is [kept](Self::keep_head).
    #[inline]
    pub(super) fn is_write_unexpected(&self) -> bool {
        !self.response_expected.get() && !self.http2.get()
    }

    /// Whether the head of a request has begun to arrive.
    pub(super) fn is_receiving_head(&self) -> bool {
        self.phase.get() == Phase::Head
    }

    /// Stores the waker of the connection's task for [`wake`](Self::wake). To be called on each poll.
    #[inline]
    pub(super) fn register_waker(&self, cx: &Context<'_>) {
        let mut waker = self.waker.borrow_mut();
        if waker.is_none() {
            *waker = Some(cx.waker().clone());
        }
    }

    /// hyper has ended. Another task goes on with the connection, and registers its waker.
    pub(super) fn change_task(&self) {
        *self.waker.borrow_mut() = None;
        self.response_expected.set(true);
    }

    /// Runs something with the waker of the connection's task.
    #[inline]
    pub(super) fn with_waker<R>(&self, run: impl FnOnce(&Waker) -> R) -> R {
        run(self.waker.borrow().as_ref().unwrap_or(Waker::noop()))
    }

    /// Wakes the connection's task, which checks [`expired`](Self::expired) and the worker's state.
    pub(crate) fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    /// hyper receives a response after which the connection goes on in another protocol.
    pub(crate) fn set_takeover(&self, takeover: Box<Takeover>) {
        self.response_expected.set(false);
        *self.takeover.borrow_mut() = Some(takeover);
    }

    /// What the connection goes on with.
    pub(super) fn take_takeover(&self) -> Option<Box<Takeover>> {
        self.takeover.borrow_mut().take()
    }

    /// Keeps what hyper writes after such a response; `false` if there was none. hyper ends without waiting until it is written.
    pub(super) fn keep_head(&self, slices: &[IoSlice<'_>]) -> bool {
        let mut takeover = self.takeover.borrow_mut();
        let Some(takeover) = &mut *takeover else { return false };
        slices.iter().for_each(|slice| takeover.head.extend_from_slice(slice));
        true
    }

    /// The timeout that ends it, once one has passed.
    #[inline]
    pub(super) fn expired(&self) -> Option<Closed> {
        self.expired.get()
    }

    /// Records a timeout that has just passed, and returns it. `crowded`: the worker's clients have not read more than its share
    /// of `max_unsent_total`.
    pub(crate) fn check_timeouts(&self, now: Instant, server: &fanin_config::Server, crowded: bool) -> Option<Closed> {
        if self.expired.get().is_some() {
            return None;
        }
        let exceeded = |since: Instant, timeout: Duration| now.saturating_duration_since(since) > timeout;
        let closed = match self.phase.get() {
            _ if self.blocked_since.get().is_some_and(|since| exceeded(since, server.idle_timeout)) => Closed::Write,
            _ if self.reads_too_slowly(now, server, crowded) => Closed::SlowReader,
            Phase::Idle if exceeded(self.since.get(), server.idle_timeout) => Closed::Idle,
            Phase::Head if exceeded(self.since.get(), server.header_timeout) => Closed::Header,
            Phase::Linger if exceeded(self.since.get(), LINGER) => Closed::Linger,
            _ => return None,
        };
        self.expired.set(Some(closed));
        Some(closed)
    }

    /// Ends it because it holds the most bytes that are not read, of too many on this worker.
    pub(crate) fn evict(&self) -> Option<Closed> {
        (self.expired.get().is_none()).then(|| {
            self.expired.set(Some(Closed::SlowReader));
            Closed::SlowReader
        })
    }
}

/// A body of a connection that the server does not read at present, until dropped.
pub(crate) type HeldBack = held_back::HeldBack<ConnectionState>;

impl HoldsBack for ConnectionState {
    fn bodies(&self) -> &HeldBackBodies {
        &self.held_back
    }
}

impl AsRef<Unsent> for ConnectionState {
    #[inline]
    fn as_ref(&self) -> &Unsent {
        &self.unsent
    }
}

impl ConnectionState {
    /// A clock that stands still while the client may be unable to send a body, because the server does not read another one.
    pub(crate) fn sending_clock(&self, now: Instant) -> Instant {
        self.held_back.clock(now)
    }

    /// A request's body came slower than the minimum rate.
    #[cold]
    pub(crate) fn on_slow_sender(&self) {
        self.stats.timeouts[Closed::SlowSender as usize].add(1);
    }

    /// Whether the client has taken less than the minimum rate for a whole window. Any other progress, such as the answer to a PING,
    /// does not count.
    fn reads_too_slowly(&self, now: Instant, server: &fanin_config::Server, crowded: bool) -> bool {
        let Some(mut window) = server.slow_reader_timeout else { return false };
        if crowded {
            window = window.min(CROWDED_WINDOW);
        }
        self.unsent.is_slow(MinRate { rate: server.min_read_rate, window }, now.into_std())
    }
}

#[cfg(test)]
mod tests;
