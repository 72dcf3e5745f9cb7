//! HTTP/2: many calls on one connection.
//!
//! Built on the `h2` crate instead of hyper's client. A call then needs one stream, but no task, no channel and no
//! second wake-up. That keeps waiting calls small, and the peer's limit of streams is known.
//!
//! Each worker has connections of its own: usually one, and up to `max_connections` when the peer's limit of streams is
//! reached. Sharing them between workers would save sockets and cost two thread switches for each call.
//!
//! A connection whose peer has vanished must not take calls until TCP gives up. It is pinged at intervals, and at once
//! when a call is dropped while nothing was received. Until the pong new calls avoid it; without a pong it is closed
//! and its calls fail.

mod streamed;

pub(super) use streamed::Window;

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Builder, Connection, SendRequest};
use h2::{Ping, Reason, RecvStream};
use http::header::CONTENT_LENGTH;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use super::attempt::{Attempt, Phase, Received};
use super::connection_budget::{ConnectPermit, OpenConnection};
use super::pool::{Pool, PoolKind};
use super::{body, stream};
use crate::endpoint::Endpoint;
use crate::error::{ErrorKind, Failure};
use crate::headers::strip_hop_by_hop;
use crate::metrics::Extra;

/// Flow-control windows: unread bytes of one answer, and of all answers of a connection.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 16 << 20;
/// The largest window that the protocol allows (RFC 9113, 6.9.1).
const MAX_WINDOW: u32 = i32::MAX as u32;
/// Streams assumed to be allowed until the peer's settings come.
const FIRST_STREAMS: usize = 100;
const MAX_HEADERS: u32 = 64 << 10;
/// A call dropped sooner than this shows nothing about its connection.
const SUSPICIOUS_AFTER: Duration = Duration::from_millis(10);
const MAX_RESENT: usize = 2;

/// HTTP/2 connections.
#[derive(Debug)]
pub(crate) struct Http2;

/// The connections of one worker to one endpoint.
#[derive(Default, Debug)]
pub(crate) struct Shared(Vec<Rc<Http2Connection>>);

/// One connection.
#[derive(Debug)]
pub(crate) struct Http2Connection {
    sender: SendRequest<Bytes>,
    in_flight: Cell<usize>,
    /// Streams that the peer allows.
    max_streams: Cell<usize>,
    /// Takes no new calls: closed, or the peer sent GOAWAY.
    closing: Cell<bool>,
    /// A dropped call received nothing. A ping has been sent.
    suspect: Cell<bool>,
    /// When something was last received, or when a call last started on an unused connection.
    last_read: Cell<Instant>,
    probe: Notify,
    shut: Notify,
    /// Answers that are not collected. Each adds a stream's window to the connection's, so that a slow reader of one takes no room from
    /// other answers.
    streamed: Cell<u32>,
    /// The present window.
    window: Cell<u32>,
}

impl Http2Connection {
    fn has_room(&self) -> bool {
        !self.closing.get() && self.in_flight.get() < self.max_streams.get()
    }
}

/// One call's stream on a connection.
#[derive(Debug)]
pub(crate) struct Lease {
    pool: Rc<Pool<Http2>>,
    connection: Rc<Http2Connection>,
    since: Instant,
    /// The stream has ended, or has never started.
    done: bool,
}

impl Drop for Lease {
    fn drop(&mut self) {
        let connection = &self.connection;
        connection.in_flight.set(connection.in_flight.get() - 1);
        if !self.done && connection.last_read.get() <= self.since && self.since.elapsed() >= SUSPICIOUS_AFTER {
            connection.suspect.set(true);
            connection.probe.notify_one();
        }
        self.pool.with_store(|store| {
            if connection.closing.get() {
                store.0.retain(|other| !Rc::ptr_eq(other, connection));
            }
        });
    }
}

impl PoolKind for Http2 {
    type Lease = Lease;
    type Store = Shared;

    fn take(pool: &Rc<Pool<Http2>>, store: &mut Shared) -> Option<Lease> {
        let free = store.0.iter().filter(|connection| connection.has_room());
        // A suspect connection is used only if no further one may be opened.
        let may_grow = store.0.len() < pool.endpoint.origin.max_connections;
        let connection = free
            .filter(|connection| !connection.suspect.get() || !may_grow)
            .min_by_key(|connection| (connection.suspect.get(), connection.in_flight.get()))?;
        connection.in_flight.set(connection.in_flight.get() + 1);
        Some(Lease { pool: pool.clone(), connection: connection.clone(), since: Instant::now(), done: true })
    }

    fn wants_more(endpoint: &Endpoint, store: &Shared, connecting: usize, waiting: usize) -> bool {
        waiting > connecting * FIRST_STREAMS && store.0.len() + connecting < endpoint.origin.max_connections
    }

    async fn connect(pool: Rc<Pool<Http2>>, permit: ConnectPermit) -> Result<(), Failure> {
        let endpoint = pool.endpoint.clone();
        let tcp = stream::connect(endpoint.address).await?;
        match &endpoint.origin.tls {
            None => start(&pool, tcp, permit).await,
            Some(tls) => start(&pool, tls.handshake(tcp, endpoint.address).await?, permit).await,
        }
    }

    fn close_unused(_: &Pool<Http2>, store: &mut Shared, before: Option<Instant>, release_requests: usize) {
        Self::close_idle(store, release_requests);
        store.0.retain(|connection| {
            if connection.in_flight.get() > 0 {
                return true;
            }
            let stays = before.is_none_or(|before| connection.last_read.get() > before) && !connection.closing.get();
            if !stays {
                connection.shut.notify_one();
            }
            stays
        });
    }

    fn close_idle(store: &mut Shared, count: usize) {
        let mut left = count;
        store.0.retain(|connection| {
            let closes = left > 0 && connection.in_flight.get() == 0;
            if closes {
                left -= 1;
                connection.shut.notify_one();
            }
            !closes
        });
    }

    fn idle(store: &Shared) -> usize {
        store.0.iter().filter(|connection| connection.in_flight.get() == 0).count()
    }
}

async fn start<S>(pool: &Rc<Pool<Http2>>, stream: S, permit: ConnectPermit) -> Result<(), Failure>
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let (sender, mut driver) = Builder::new()
        .enable_push(false)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .initial_max_send_streams(FIRST_STREAMS)
        .max_header_list_size(MAX_HEADERS)
        .handshake::<_, Bytes>(stream)
        .await
        .map_err(|error| Failure::new(ErrorKind::Connect, format!("{}: HTTP/2: {error}", pool.endpoint.address)))?;
    let connection = Rc::new(Http2Connection {
        sender,
        in_flight: Cell::new(0),
        max_streams: Cell::new(FIRST_STREAMS),
        closing: Cell::new(false),
        suspect: Cell::new(false),
        last_read: Cell::new(Instant::now()),
        probe: Notify::new(),
        shut: Notify::new(),
        streamed: Cell::new(0),
        window: Cell::new(CONNECTION_WINDOW),
    });
    let pings = driver.ping_pong();
    tokio::task::spawn_local(drive(
        driver,
        pings,
        connection.clone(),
        Rc::downgrade(pool),
        pool.endpoint.clone(),
        permit.opened(),
    ));
    pool.with_store(|store| store.0.push(connection));
    Ok(())
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.0.iter().for_each(|connection| connection.shut.notify_one());
    }
}

/// Polls a connection, and serves waiting calls when its peer allows more streams than before.
fn poll_connection<S>(
    driver: &mut Connection<S, Bytes>,
    connection: &Http2Connection,
    pool: &Weak<Pool<Http2>>,
    cx: &mut Context<'_>,
) -> Poll<Result<(), h2::Error>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let window = CONNECTION_WINDOW.saturating_add(STREAM_WINDOW.saturating_mul(connection.streamed.get()));
    if connection.window.replace(window) != window {
        driver.set_target_window_size(window.min(MAX_WINDOW));
    }
    let result = Pin::new(&mut *driver).poll(cx);
    let allowed = driver.max_concurrent_send_streams();
    if connection.max_streams.replace(allowed) < allowed
        && let Some(pool) = pool.upgrade()
    {
        pool.with_store(|_| ());
    }
    result
}

/// Runs a connection to its end and checks that its peer is alive.
async fn drive<S>(
    mut driver: Connection<S, Bytes>,
    mut pings: Option<h2::PingPong>,
    connection: Rc<Http2Connection>,
    pool: Weak<Pool<Http2>>,
    endpoint: Arc<Endpoint>,
    open: OpenConnection,
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    loop {
        tokio::select! {
            biased;
            end = poll_fn(|cx| poll_connection(&mut driver, &connection, &pool, cx)) => {
                reduce_pings_if_refused(&endpoint, &end);
                break;
            }
            () = connection.shut.notified() => break,
            () = connection.probe.notified() => {}
            () = sleep(endpoint.ping_interval()) => {
                if !endpoint.origin.ping_idle && connection.in_flight.get() == 0 {
                    continue;
                }
            }
        }
        let Some(pings) = pings.as_mut() else { continue };
        if pings.send_ping(Ping::opaque()).is_err() {
            break;
        }
        tokio::select! {
            biased;
            end = poll_fn(|cx| poll_connection(&mut driver, &connection, &pool, cx)) => {
                reduce_pings_if_refused(&endpoint, &end);
                break;
            }
            pong = timeout(endpoint.origin.pong_timeout, poll_fn(|cx| pings.poll_pong(cx))) => {
                if !matches!(pong, Ok(Ok(_))) {
                    break;
                }
                connection.suspect.set(false);
            }
        }
        if let Some(pool) = pool.upgrade() {
            pool.with_store(|_| ());
        }
    }
    connection.closing.set(true);
    // Dropping the connection fails its remaining streams.
    drop(driver);
    drop(open);
    if let Some(pool) = pool.upgrade() {
        pool.with_store(|store| store.0.retain(|other| !Rc::ptr_eq(other, &connection)));
    }
}

/// Some servers close connections that ping too often: gRPC's C core, and so Python, does by default when a call is
/// silent for long. From then on their endpoint is pinged less often.
#[cold]
fn reduce_pings_if_refused(endpoint: &Endpoint, end: &Result<(), h2::Error>) {
    if let Err(error) = end
        && error.is_remote()
        && error.reason() == Some(Reason::ENHANCE_YOUR_CALM)
        && endpoint.reduce_pings()
    {
        tracing::warn!(
            endpoint = %endpoint.address,
            "it closed a connection because of its pings and is pinged every {} s from now on; allow `keepalive` at the server \
             (grpc.http2.min_recv_ping_interval_without_data_ms) so that connections which vanish are noticed",
            endpoint.ping_interval().as_secs()
        );
    }
}

/// Sends one request and reads the whole answer, or only its head if the body is not collected.
pub(crate) async fn send(pool: &Rc<Pool<Http2>>, attempt: &Attempt<'_>) -> Result<Received, Failure> {
    if let Some(slot) = attempt.source {
        return streamed::send(pool, attempt, slot).await;
    }
    transact(pool, attempt, async |lease: &Lease| exchange(lease, attempt).await).await
}

/// Does something on a connection, and once more on another if it was surely not begun on that one.
pub(super) async fn transact<T>(
    pool: &Rc<Pool<Http2>>,
    attempt: &Attempt<'_>,
    exchange: impl AsyncFn(&Lease) -> Result<T, Failure>,
) -> Result<T, Failure> {
    Ok(transact_on(pool, attempt, exchange).await?.0)
}

/// The same, with the stream that it was done on.
pub(super) async fn transact_on<T>(
    pool: &Rc<Pool<Http2>>,
    attempt: &Attempt<'_>,
    exchange: impl AsyncFn(&Lease) -> Result<T, Failure>,
) -> Result<(T, Lease), Failure> {
    let mut resent = 0;
    loop {
        attempt.phase.set(Phase::Connecting);
        let mut lease = pool.checkout(attempt.age).await?;
        attempt.phase.set(Phase::Sent);
        attempt.metrics.count(Extra::Sent);
        lease.done = false;
        let result = exchange(&lease).await;
        // What ends by itself, well or badly, says that the connection is alive or is seen to be dead without a ping.
        lease.done = true;
        match result {
            Ok(received) => return Ok((received, lease)),
            Err(failure) if failure.unsent && lease.connection.closing.get() && resent < MAX_RESENT => {
                resent += 1;
                attempt.metrics.count(Extra::Resent);
            }
            Err(failure) => return Err(failure),
        }
    }
}

async fn exchange(lease: &Lease, attempt: &Attempt<'_>) -> Result<Received, Failure> {
    let (head, mut stream) =
        send_request(lease, attempt, attempt.http2_request()?, attempt.request.body.clone()).await?;
    let announced = head.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    // An answer to HEAD announces a body that does not come.
    let announced: u64 = if stream.is_end_stream() { 0 } else { announced.unwrap_or(0) };
    let mut parts = body::Parts::new(attempt.max_answer, announced)?;
    loop {
        let part = poll_fn(|cx| poll_part(lease, attempt.endpoint, &mut stream, cx));
        let Some(part) = body::within(attempt.chunk_timeout, part).await? else { break };
        let part = part.map_err(|mut failure| {
            failure.detail = format!("the answer broke off after {} bytes: {}", parts.len(), failure.detail).into();
            failure.unsent = false;
            failure
        })?;
        parts.push(part)?;
    }
    let mut headers = head.headers;
    strip_hop_by_hop(&mut headers);
    Ok(Received { status: head.status, headers: headers.into(), body: parts.finish(), at: Instant::now() })
}

/// Sends a request and waits for the head of its answer.
pub(super) async fn send_request(
    lease: &Lease,
    attempt: &Attempt<'_>,
    request: http::Request<()>,
    body: Bytes,
) -> Result<(http::response::Parts, RecvStream), Failure> {
    let connection = &lease.connection;
    let failed = |error: h2::Error| failure(lease, attempt.endpoint, &error);
    // Each call needs a handle of its own: a handle waits for one stream at a time.
    let mut sender = connection.sender.clone();
    poll_fn(|cx| sender.poll_ready(cx)).await.map_err(failed)?;
    let has_body = !body.is_empty();
    let (response, mut upload) = sender.send_request(request, !has_body).map_err(failed)?;
    if has_body {
        upload.send_data(body, true).map_err(failed)?;
    }
    drop(sender);
    let (head, stream) = response.await.map_err(failed)?.into_parts();
    connection.last_read.set(Instant::now());
    attempt.phase.set(Phase::Answering);
    Ok((head, stream))
}

/// The next part of an answer's body; `None` at its end.
pub(super) fn poll_part(
    lease: &Lease,
    endpoint: &Endpoint,
    stream: &mut RecvStream,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<Bytes, Failure>>> {
    let part = match ready!(stream.poll_data(cx)) {
        Some(Ok(part)) => part,
        Some(Err(error)) => return Poll::Ready(Some(Err(failure(lease, endpoint, &error)))),
        None => return Poll::Ready(None),
    };
    lease.connection.last_read.set(Instant::now());
    // Fails only if the stream has ended; then no window is needed.
    let _ = stream.flow_control().release_capacity(part.len());
    Poll::Ready(Some(Ok(part)))
}

pub(super) fn failure(lease: &Lease, endpoint: &Endpoint, error: &h2::Error) -> Failure {
    let gone = error.is_go_away() || error.is_io();
    if gone {
        lease.connection.closing.set(true);
    }
    let failure = Failure::new(ErrorKind::Protocol, format!("{}: HTTP/2: {error}", endpoint.address));
    // The peer names the streams that it has not processed: those above the last one in GOAWAY, and refused ones (RFC
    // 9113, 6.8 and 8.7).
    let untouched = (error.is_go_away() && error.is_remote() && error.reason() == Some(Reason::NO_ERROR))
        || error.reason() == Some(Reason::REFUSED_STREAM);
    if untouched { failure.unsent() } else { failure }
}
