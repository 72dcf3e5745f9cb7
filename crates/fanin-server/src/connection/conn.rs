//! What a connection is doing, and since when.

use std::cell::{Cell, OnceCell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::time::Instant;

use crate::metrics::{Closed, WorkerStats};

/// How long a client may take to close after an answer to a request that the server did not read to its end.
const LINGER: Duration = Duration::from_secs(2);

/// One connection, as the worker's housekeeping sees it. All that a request does to it is a few stores.
#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) remote: SocketAddr,
    /// The same as text, for the log.
    remote_text: OnceCell<Box<str>>,
    /// The worker's coarse time.
    now: Rc<Cell<Instant>>,
    phase: Cell<Phase>,
    /// When the phase began, or last saw progress.
    since: Cell<Instant>,
    /// Requests being served; more than one only with HTTP/2.
    active: Cell<u32>,
    /// Responses that hyper has, but not yet all bytes of.
    outgoing: Cell<u32>,
    /// The socket takes no more bytes since then.
    blocked_since: Cell<Option<Instant>>,
    /// Response bytes are hyper's answer to a request that we have seen. Otherwise hyper speaks for itself.
    owed: Cell<bool>,
    /// The client may still be sending a request that nobody will read.
    unread: Cell<bool>,
    answered_early: Cell<bool>,
    http2: Cell<bool>,
    /// HTTP/1.1: heads that have been read to their end and have not become a request yet, as far as is known. 0 between two
    /// requests: hyper holds no byte that came after the last one.
    heads: Cell<i32>,
    leaving: Cell<bool>,
    stats: Arc<WorkerStats>,
    expired: Cell<Option<Closed>>,
    waker: RefCell<Option<Waker>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No byte of a next request has come.
    Idle,
    /// A TLS handshake or a request's head is arriving.
    Head,
    /// A request is being served.
    Busy,
    /// All is said; waiting for the client to close.
    Linger,
}

impl Conn {
    pub(crate) fn new(remote: SocketAddr, now: Rc<Cell<Instant>>, stats: Arc<WorkerStats>) -> Conn {
        // The coarse time may be old when the worker was idle.
        now.set(Instant::now());
        Conn {
            remote,
            remote_text: OnceCell::new(),
            phase: Cell::new(Phase::Idle),
            since: Cell::new(now.get()),
            now,
            active: Cell::new(0),
            outgoing: Cell::new(0),
            blocked_since: Cell::new(None),
            owed: Cell::new(false),
            unread: Cell::new(false),
            answered_early: Cell::new(false),
            http2: Cell::new(false),
            heads: Cell::new(0),
            leaving: Cell::new(false),
            stats,
            expired: Cell::new(None),
            waker: RefCell::new(None),
        }
    }

    /// The client's address as text.
    pub(crate) fn remote_text(&self) -> &str {
        self.remote_text.get_or_init(|| self.remote.to_string().into())
    }

    fn enter(&self, phase: Phase) {
        self.phase.set(phase);
        self.since.set(self.now.get());
    }

    /// From now on it speaks HTTP/2: bytes between requests are frames, not the start of a head.
    pub(super) fn speaks_http2(&self) {
        self.http2.set(true);
        self.enter(Phase::Idle);
    }

    /// The HTTP/2 client was told to end: once no request runs, it lingers.
    pub(super) fn says_goodbye(&self) {
        self.leaving.set(true);
        self.expired.set(None);
        if self.active.get() == 0 {
            self.enter(Phase::Linger);
        }
    }

    /// A TLS handshake begins.
    pub(super) fn handshake(&self) {
        self.enter(Phase::Head);
    }

    /// Bytes came in.
    #[inline]
    pub(super) fn has_read(&self) {
        match self.phase.get() {
            Phase::Idle if !self.http2.get() => self.enter(Phase::Head),
            // A body, or a request that does not await the answer to the one before.
            Phase::Busy => self.loses_count(),
            _ => {}
        }
    }

    /// Whether what comes next is a request's head, or more of one.
    #[inline]
    pub(super) fn awaits_head(&self) -> bool {
        matches!(self.phase.get(), Phase::Idle | Phase::Head) && !self.http2.get()
    }

    /// Bytes of a head came in, and perhaps of what is behind it.
    #[inline]
    pub(super) fn has_read_head(&self, bytes: &[u8]) {
        if self.phase.get() == Phase::Idle {
            self.enter(Phase::Head);
        }
        if bytes.ends_with(b"\r\n\r\n") {
            self.heads.set(self.heads.get() + 1);
        }
    }

    /// Whether there is nothing of a request or a response on the connection, neither here nor at hyper.
    #[inline]
    pub(super) fn is_at_rest(&self) -> bool {
        self.phase.get() == Phase::Idle && self.heads.get() == 0 && !self.owed.get() && self.outgoing.get() == 0
    }

    /// From now on it is not known where heads begin.
    fn loses_count(&self) {
        self.heads.set(i32::MIN / 2);
    }

    /// The request that has begun has a body.
    pub(crate) fn has_body(&self) {
        self.loses_count();
    }

    /// A request's head is complete.
    #[inline]
    pub(crate) fn request_begins(&self) {
        self.heads.set(self.heads.get().saturating_sub(1));
        self.active.set(self.active.get() + 1);
        self.phase.set(Phase::Busy);
        self.owed.set(true);
        self.unread.set(false);
    }

    /// A request is answered or given up.
    #[inline]
    pub(crate) fn request_ends(&self) {
        self.active.set(self.active.get() - 1);
        if self.active.get() == 0 {
            self.enter(if self.leaving.get() { Phase::Linger } else { Phase::Idle });
        }
    }

    /// hyper gets a response.
    #[inline]
    pub(crate) fn response_begins(&self) {
        self.outgoing.set(self.outgoing.get() + 1);
    }

    /// hyper has taken all bytes of a response, or given it up.
    #[inline]
    pub(crate) fn response_ends(&self) {
        self.outgoing.set(self.outgoing.get() - 1);
    }

    /// The response is made although the request's body has not been read.
    pub(crate) fn leaves_unread(&self) {
        self.unread.set(true);
    }

    pub(super) fn is_unread(&self) -> bool {
        self.unread.get()
    }

    pub(super) fn lingers(&self) {
        self.enter(Phase::Linger);
    }

    /// Bytes went out, all that the socket was asked to take or some.
    #[inline]
    pub(super) fn has_written(&self) {
        self.blocked_since.set(None);
        if matches!(self.phase.get(), Phase::Idle | Phase::Linger) {
            self.since.set(self.now.get());
        }
    }

    /// The socket takes nothing now.
    pub(super) fn is_blocked(&self) {
        if self.blocked_since.get().is_none() {
            self.blocked_since.set(Some(self.now.get()));
        }
    }

    /// An answer goes out to something that did not become a request. It is the last one on this connection.
    pub(super) fn answers_early(&self) {
        self.stats.protocol_errors.add(1);
        self.answered_early.set(true);
        self.unread.set(true);
    }

    /// Whether [`answers_early`](Self::answers_early) was called.
    pub(super) fn has_answered_early(&self) -> bool {
        self.answered_early.get()
    }

    /// Everything that was to be written has been.
    #[inline]
    pub(super) fn has_flushed(&self) {
        if self.active.get() == 0 && self.outgoing.get() == 0 {
            self.owed.set(false);
        }
    }

    /// What is written from now on is not to be looked at.
    pub(super) fn owes(&self) {
        self.owed.set(true);
    }

    /// Whether what is written now is hyper's own answer, to something that did not become a request.
    #[inline]
    pub(super) fn is_hypers_own(&self) -> bool {
        !self.owed.get() && !self.http2.get()
    }

    /// Whether the head of a request has begun to arrive.
    pub(super) fn is_in_head(&self) -> bool {
        self.phase.get() == Phase::Head
    }

    /// To be called on each poll: lets [`wake`](Self::wake) find the connection's task.
    #[inline]
    pub(super) fn note_waker(&self, cx: &Context<'_>) {
        let mut waker = self.waker.borrow_mut();
        if waker.is_none() {
            *waker = Some(cx.waker().clone());
        }
    }

    /// Runs something with the waker of the connection's task.
    #[inline]
    pub(super) fn with_waker<R>(&self, run: impl FnOnce(&Waker) -> R) -> R {
        run(self.waker.borrow().as_ref().unwrap_or(Waker::noop()))
    }

    /// Wakes the connection's task, to look at [`expired`](Self::expired) and at the worker's state.
    pub(crate) fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    /// Why it must end, if it must.
    #[inline]
    pub(super) fn expired(&self) -> Option<Closed> {
        self.expired.get()
    }

    /// Notes why it must end, if a bound has just been passed.
    pub(crate) fn check(&self, now: Instant, server: &fanin_config::Server) -> Option<Closed> {
        if self.expired.get().is_some() {
            return None;
        }
        let past = |since: Instant, bound: Duration| now.saturating_duration_since(since) > bound;
        let closed = match self.phase.get() {
            _ if self.blocked_since.get().is_some_and(|since| past(since, server.idle_timeout)) => Closed::Write,
            Phase::Idle if past(self.since.get(), server.idle_timeout) => Closed::Idle,
            Phase::Head if past(self.since.get(), server.header_timeout) => Closed::Header,
            Phase::Linger if past(self.since.get(), LINGER) => Closed::Linger,
            _ => return None,
        };
        self.expired.set(Some(closed));
        Some(closed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conn() -> (Conn, Rc<Cell<Instant>>, fanin_config::Server) {
        let now = Rc::new(Cell::new(Instant::now()));
        let conn = Conn::new("127.0.0.1:1".parse().unwrap(), now.clone(), Arc::default());
        (conn, now, fanin_config::Server::default())
    }

    fn after(conn: &Conn, now: &Cell<Instant>, wait: Duration, server: &fanin_config::Server) -> Option<Closed> {
        now.set(now.get() + wait);
        conn.check(now.get(), server)
    }

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn idle_then_head_have_their_own_bounds() {
        let (conn, now, server) = conn();
        assert_eq!(after(&conn, &now, server.idle_timeout, &server), None);
        conn.has_read();
        assert_eq!(after(&conn, &now, server.header_timeout, &server), None);
        // More bytes of the same head do not prolong it.
        conn.has_read();
        assert_eq!(after(&conn, &now, MS, &server), Some(Closed::Header));
        assert_eq!(after(&conn, &now, MS, &server), None, "reported once");
    }

    #[test]
    fn it_is_at_rest_only_where_one_head_came_at_a_time() {
        fn ends_one(conn: &Conn) {
            conn.request_begins();
            conn.request_ends();
            assert!(!conn.is_at_rest(), "the response is still to be written");
            conn.has_flushed();
        }
        let begun = |reads: &[&[u8]]| {
            let conn = conn().0;
            reads.iter().for_each(|bytes| conn.has_read_head(bytes));
            assert!(!conn.is_at_rest());
            ends_one(&conn);
            conn
        };
        assert!(conn().0.is_at_rest());
        assert!(begun(&[b"GET\r\n\r\n"]).is_at_rest());
        assert!(begun(&[b"GE", b"T\r\n\r\n"]).is_at_rest());
        // Whose end is not seen is taken for one with more behind it.
        assert!(!begun(&[b"GET\r\n", b"\r\n"]).is_at_rest());
        let half_behind = begun(&[b"GET\r\n\r\nGE"]);
        assert!(!half_behind.is_at_rest());
        half_behind.has_read_head(b"T\r\n\r\n");
        ends_one(&half_behind);
        assert!(!half_behind.is_at_rest(), "for good");
        let two = begun(&[b"GET\r\n\r\nGET\r\n\r\n"]);
        ends_one(&two);
        assert!(!two.is_at_rest());
        let with_body = begun(&[b"GET\r\n\r\n"]);
        with_body.has_read_head(b"GET\r\n\r\n");
        with_body.has_body();
        ends_one(&with_body);
        assert!(!with_body.is_at_rest());
        let ahead = begun(&[b"GET\r\n\r\n"]);
        ahead.has_read_head(b"GET\r\n\r\n");
        ahead.request_begins();
        ahead.has_read();
        ahead.request_ends();
        ahead.has_flushed();
        assert!(!ahead.is_at_rest());
    }

    #[test]
    fn a_running_request_is_not_timed_out_here() {
        let (conn, now, server) = conn();
        conn.has_read();
        conn.request_begins();
        assert_eq!(after(&conn, &now, server.idle_timeout * 10, &server), None);
        conn.request_ends();
        assert_eq!(after(&conn, &now, server.idle_timeout, &server), None);
        assert_eq!(after(&conn, &now, MS, &server), Some(Closed::Idle));
    }

    #[test]
    fn a_client_that_takes_nothing_is_closed_even_while_it_asks_for_more() {
        let (conn, now, server) = conn();
        conn.speaks_http2();
        conn.request_begins();
        conn.is_blocked();
        assert_eq!(after(&conn, &now, server.idle_timeout, &server), None);
        conn.is_blocked();
        assert_eq!(after(&conn, &now, MS, &server), Some(Closed::Write));
    }

    #[test]
    fn progress_of_a_download_is_not_idleness() {
        let (conn, now, server) = conn();
        conn.request_begins();
        conn.request_ends();
        for _ in 0..5 {
            assert_eq!(after(&conn, &now, server.idle_timeout, &server), None);
            conn.has_written();
        }
    }
}
